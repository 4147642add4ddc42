"""The table between a parameter tree and the names in somebody else's file: what a model's NAMES is made of.

A key is a path in the tree, with * for the layer; a value says which tensor of the file holds it, and how.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from xformer import params


@dataclass(frozen=True)
class Stored:
    """A tensor of a file, or one of `parts` equal pieces of its output axis; `transposed` where the file has (in, out)."""

    name: str
    transposed: bool = False
    part: int = 0
    parts: int = 1

    def shape(self, wanted: tuple[int, ...]) -> tuple[int, ...]:
        """The shape that the file's tensor must have for a leaf of shape `wanted`."""
        whole = (wanted[0] * self.parts, *wanted[1:])
        return whole[::-1] if self.transposed else whole

    def take(self, tensor: np.ndarray) -> np.ndarray:
        """The leaf: a view of the file's tensor."""
        whole = tensor.T if self.transposed else tensor
        size = whole.shape[0] // self.parts
        return whole[self.part * size : (self.part + 1) * size]


def conv1d(name: str, part: int = 0, parts: int = 1) -> Stored:
    """A weight of transformers' Conv1D, which is (in, out)."""
    return Stored(name, True, part, parts)


def gather(
    tensors: Mapping[str, np.ndarray], spec: Any, table: Mapping[str, Stored | str] | None, exact: bool = False
) -> tuple[Any, list[str]]:
    """The tree for `spec` out of a file's tensors, and all that is wrong: missing, unexpected, mis-shaped or not finite.

    Without a table, names are paths. `exact` asks for the spec's dtypes; otherwise any floating dtype will do.
    """
    problems, used, found = [], set(), {}
    for path, leaf, stored in _wanted(spec, table):
        tensor = tensors.get(stored.name)
        used.add(stored.name)
        if tensor is None:
            problems.append(f"missing {stored.name} {stored.shape(leaf.shape)}")
        elif tensor.shape != stored.shape(leaf.shape):
            problems.append(f"{stored.name} has shape {tensor.shape}, the config asks for {stored.shape(leaf.shape)}")
        elif str(tensor.dtype) != leaf.dtype if exact else "float" not in str(tensor.dtype):
            problems.append(f"{stored.name} has dtype {tensor.dtype}, expected {leaf.dtype}")
        else:
            found[path] = stored.take(tensor)
            if not _finite(found[path]):
                problems.append(f"{stored.name} holds NaN, infinity, or a number too large for fp32")
    problems += [f"unexpected {name} {tensors[name].shape}" for name in tensors if name not in used]
    return None if problems else params.map(lambda path, _: found[path], spec), list(dict.fromkeys(problems))


def scatter(tree: Any, table: Mapping[str, Stored | str] | None) -> dict[str, np.ndarray]:
    """The inverse of `gather`: the tensors of a file, from a tree of NumPy arrays."""
    pieces: dict[str, list] = {}
    for _, leaf, stored in _wanted(tree, table):
        pieces.setdefault(stored.name, []).append((stored.part, leaf.T if stored.transposed else leaf, stored.transposed))
    tensors = {}
    for name, parts in pieces.items():
        arrays = [array for _, array, _ in sorted(parts, key=lambda piece: piece[0])]
        axis = arrays[0].ndim - 1 if parts[0][2] else 0
        tensors[name] = np.ascontiguousarray(arrays[0] if len(arrays) == 1 else np.concatenate(arrays, axis=axis))
    return tensors


def _wanted(tree, table) -> Iterator[tuple[str, Any, Stored]]:
    for path, leaf in params.items(tree):
        if table is None:
            yield path, leaf, Stored(path)
            continue
        index = next((part for part in path.split(".") if part.isdigit()), "")
        entry = table[path.replace(f".{index}.", ".*.") if index else path]
        stored = entry if isinstance(entry, Stored) else Stored(entry)
        yield path, leaf, Stored(stored.name.replace("*", index), stored.transposed, stored.part, stored.parts)


def _finite(x: np.ndarray) -> bool:
    """Without a temporary as large as `x`: NaN and infinity both show in the extremes."""
    if x.size == 0 or np.issubdtype(x.dtype, np.integer):
        return True
    with np.errstate(over="ignore"):  # a number too large for fp32 is infinite in all that follows
        return bool(np.isfinite(np.float32(x.min())) and np.isfinite(np.float32(x.max())))
