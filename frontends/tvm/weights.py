"""Weights as kernels read them: their layout in memory, and the file that they are mapped from."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from xformer import storage
from xformer.params import Spec

ALIGNMENT = 64  # bytes; compiled code loads whole vectors from the start of a tensor


@dataclass(frozen=True)
class Layout:
    """A weight (n, k) as [n / columns][k / depth][columns][depth], zeros beyond n and k.

    A `shift` is added to each element, which makes int8 unsigned: 128 is for instructions of which one side has no sign.
    """

    columns: int
    depth: int
    shift: int = 0

    def stored(self, dtype: str) -> str:
        """What a weight of `dtype` is stored as."""
        return f"u{dtype}" if self.shift else dtype

    def shape(self, n: int, k: int) -> tuple[int, int, int, int]:
        return -(-n // self.columns), -(-k // self.depth), self.columns, self.depth


@dataclass(frozen=True, kw_only=True)
class PackedSpec(Spec):
    """The shape (n, k) and dtype of a weight, and the layout that its buffer has."""

    layout: Layout


@dataclass(frozen=True, eq=False)
class PackedWeight:
    """A leaf of a parameter tree: the packed buffer of a weight (n, k)."""

    tensor: Any
    shape: tuple[int, int]
    layout: Layout

    @property
    def dtype(self) -> str:
        return str(self.tensor.dtype)


def spec(leaf: Any) -> Spec:
    """The shape and dtype of a leaf, packed or not, that a program is compiled for."""
    if isinstance(leaf, PackedWeight):
        return PackedSpec(leaf.shape, leaf.dtype, layout=leaf.layout)
    return Spec(tuple(int(extent) for extent in leaf.shape), str(leaf.dtype))


def write(path: Path, tensors: Mapping[str, np.ndarray]) -> None:
    """A safetensors file in which tensors start at multiples of ALIGNMENT, so that a mapped one is used where it lies.

    The format has no room between tensors: those whose size would shift the next one come last.
    """
    names = {dtype: name for name, dtype in storage.DTYPES.items()}
    order = sorted(tensors, key=lambda name: tensors[name].nbytes % ALIGNMENT != 0)
    header, start = {}, 0
    for name in order:
        x = tensors[name]
        header[name] = {"dtype": names[x.dtype], "shape": x.shape, "data_offsets": (start, start + x.nbytes)}
        start += x.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-(8 + len(text)) % ALIGNMENT)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for name in order:
            file.write(np.ascontiguousarray(tensors[name]).reshape(-1).view(np.uint8).data)
