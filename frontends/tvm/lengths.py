"""Which shapes programs are compiled for: a ladder of batch sizes, lengths and capacities, and padding up to it.

Padding is masked out: tokens of an encoder and of a decoder's forward pass are padded on the right, those of a prompt on
the left, where a cache expects them. It changes no result by more than rounding, in any precision: every token is
quantised by itself.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from xformer import params

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


def padded(x: np.ndarray, extents: Sequence[int], left: bool = False) -> np.ndarray:
    """`x` with zeros up to `extents` on its first axes; on the second axis before it if `left`."""
    missing = [(0, extent - own) for own, extent in zip(x.shape, extents, strict=False)]
    if left:
        missing[1] = missing[1][::-1]
    if not any(sum(pair) for pair in missing):
        return x
    return np.pad(x, missing + [(0, 0)] * (x.ndim - len(missing)))


def fit(name: str, arguments: tuple, positions: int) -> tuple[tuple, tuple[slice, ...]]:
    """The arguments of a model's function (after its parameters) on the ladder, and what of the result is asked for."""
    if name == "decode":
        ids, memory = arguments
        return (padded(ids, memory.real.shape[:1]), memory), (slice(len(ids)),)
    rows, length = arguments[0].shape[:2]
    extents = batch(rows), max(length, min(tokens(length), positions))
    if name == "prefill":
        *given, memory = arguments
        room = capacity(memory.capacity + extents[1] - length)
        memory = params.map(lambda path, leaf: _stretched(leaf, extents[0], room), memory)
        return (*(padded(x, extents, left=True) for x in given), memory), (slice(rows),)
    wanted = (slice(rows),) if name in ("embed", "pool") else (slice(rows), slice(length))
    return tuple(padded(x, extents) for x in arguments), wanted


def _stretched(x: Any, rows: int, room: int) -> Any:
    """An array of a cache with more rows and columns; its position as it is."""
    if x.ndim == 0:
        return x
    return padded(x, (rows, x.shape[1], room) if x.ndim == 4 else (rows, room))
