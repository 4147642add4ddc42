"""Which shapes programs are compiled for: a ladder of batch sizes, lengths and capacities, and padding up to it.

Padding is masked out: tokens of an encoder and of a decoder's forward pass are padded on the right, those of a prompt on
the left, where a cache expects them. It changes no result by more than rounding, in any precision: every token is
quantised by itself.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from xformer import params
from xformer.cache import Cache

STEP = 16  # lengths are multiples of it, so that rows of scores are whole vectors
CAPACITIES = (128, 256, 512, 1024)


def batch(size: int) -> int:
    """The next power of two."""
    return 1 << (size - 1).bit_length()


def tokens(count: int) -> int:
    """The next multiple of 16, 32, 64, .. such that at most a third is padding."""
    step = STEP
    while count > 4 * step:
        step *= 2
    return -(-count // step) * step


def capacity(count: int) -> int:
    """The next of 128, 256, 512, 1024, and beyond them the next multiple of 1024."""
    return next((rung for rung in CAPACITIES if rung >= count), -(-count // CAPACITIES[-1]) * CAPACITIES[-1])


def capacities(length: int, new: int) -> list[int]:
    """The rungs that generation from prompts padded to `length` may use for up to `new` tokens."""
    most = capacity(length + new)
    return [*(rung for rung in CAPACITIES if length < rung < most), most]


def padded(x: np.ndarray, extents: Sequence[int], left: bool = False) -> np.ndarray:
    """`x` with zeros up to `extents` on its first axes; on the second axis before it if `left`."""
    missing = [(0, extent - own) for own, extent in zip(x.shape, extents, strict=False)]
    if left:
        missing[1] = missing[1][::-1]
    if not any(sum(pair) for pair in missing):
        return x
    return np.pad(x, missing + [(0, 0)] * (x.ndim - len(missing)))


@dataclass(frozen=True)
class Shape:
    """What a call asks for, or what a program is compiled for; a function without a cache has no capacity."""

    batch: int
    length: int
    capacity: int = 0

    def __str__(self) -> str:
        length = f" x {self.length} tokens" if self.length else ""
        return f"{self.batch}{length}" + (f" in a cache of {self.capacity} columns" if self.capacity else "")

    def holds(self, asked: "Shape") -> bool:
        """Whether a call fits once it is padded: padding before a prompt takes columns of the cache too."""
        if not asked.length:  # a step of decoding: its cache is there already
            return self == asked
        room = self.capacity - asked.capacity - (self.length - asked.length if asked.capacity else 0)
        return self.batch >= asked.batch and self.length >= asked.length and room >= 0

    @property
    def size(self) -> int:
        """How much there is to compute, for choosing the smallest."""
        return self.batch * max(self.length, 1) * max(self.capacity, 1)


def shape(arguments: tuple) -> Shape:
    """The shape of a function's arguments (after its parameters), arrays or Specs. A step of decoding has length 0."""
    first, last = arguments[0], arguments[-1]
    if not isinstance(last, Cache):
        return Shape(*first.shape[:2])
    rows, capacity = last.real.shape
    return Shape(rows, first.shape[1] if len(first.shape) == 2 else 0, capacity)


def ladder(asked: Shape, positions: int) -> Shape:
    """The next shape on the ladder."""
    length = max(asked.length, min(tokens(asked.length), positions))
    return Shape(batch(asked.batch), length, capacity(asked.capacity + length - asked.length) if asked.capacity else 0)


def fit(arguments: tuple, wanted: Shape) -> tuple:
    """The arguments padded to a shape: before a prompt, after anything else."""
    if not wanted.capacity:
        return tuple(padded(x, (wanted.batch, wanted.length)) for x in arguments)
    *given, memory = arguments
    if not wanted.length:
        return padded(given[0], (wanted.batch,)), memory
    memory = params.map(lambda path, leaf: _stretched(leaf, wanted.batch, wanted.capacity), memory)
    return (*(padded(x, (wanted.batch, wanted.length), left=True) for x in given), memory)


def _stretched(x: Any, rows: int, room: int) -> Any:
    """An array of a cache with more rows and columns; its position as it is."""
    if x.ndim == 0:
        return x
    return padded(x, (rows, x.shape[1], room) if x.ndim == 4 else (rows, room))
