"""The array: a strided view of the buffer that one TE compute fills, or of memory that holds values.

Reshaping, permuting, slicing and broadcasting change the view alone; nothing is computed until a later compute reads
through it. Every computed buffer is two-dimensional, rows x columns: the leading axes of the array's shape side by side,
and its last axis.
"""

import itertools
import math
import operator
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

from tvm import te, tirx

Term = tuple[Any, int, int]  # an index, its extent, and its stride in elements


class Array:
    """A handle: `shape` and `strides` (in elements) from `offset` on, over the row-major buffer of `node`."""

    if TYPE_CHECKING:  # the operators, which `namespace` gives
        __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = cast(Any, None)
        __and__ = __rand__ = __or__ = __ror__ = __lt__ = __le__ = __gt__ = __ge__ = __neg__ = __invert__ = cast(Any, None)
        __mod__ = __floordiv__ = __getitem__ = __setitem__ = __int__ = __bool__ = __float__ = __index__ = cast(Any, None)

    def __init__(self, node: Any, shape: Sequence[int], strides: Sequence[int] | None = None, offset: int = 0):
        self.node, self.shape, self.offset = node, tuple(shape), offset
        self.strides = row_major(self.shape) if strides is None else tuple(strides)

    def __array_namespace__(self, *, api_version: str | None = None) -> Any:
        return sys.modules[f"{__package__}.namespace"]

    dtype = property(lambda self: self.node.dtype)
    ndim = property(lambda self: len(self.shape))
    size = property(lambda self: math.prod(self.shape))
    device = property(lambda self: "cpu")

    def to_device(self, device: Any, /, *, stream: Any = None) -> "Array":
        """The array, which is on the one device that there is. Raises ValueError for another."""
        require_cpu(device)
        return self

    @property
    def key(self) -> tuple:
        """What tells this view from others of the same buffer."""
        return self.shape, self.strides, self.offset

    @property
    def contiguous(self) -> bool:
        """Whether the view is its whole buffer, in order."""
        return self.offset == 0 and self.size == math.prod(self.node.shape) and _packed(self.shape, self.strides)

    def same(self) -> "Array":
        """Another handle of the same array."""
        return Array(self.node, self.shape, self.strides, self.offset)

    def view(self, shape: Sequence[int], strides: Sequence[int], offset: int = 0) -> "Array":
        """Another view of the same buffer, `offset` elements further."""
        return Array(self.node, shape, strides, self.offset + offset)

    def broadcast_to(self, shape: Sequence[int]) -> "Array":
        """As NumPy broadcasts. Raises ValueError when the shapes do not fit."""
        lead = len(shape) - self.ndim
        if lead < 0 or any(own not in (1, wanted) for own, wanted in zip(self.shape, shape[lead:], strict=True)):
            raise ValueError(f"cannot broadcast shape {self.shape} to {tuple(shape)}")
        strides = [
            0 if own == 1 and wanted != 1 else stride for own, wanted, stride in zip(self.shape, shape[lead:], self.strides, strict=True)
        ]
        return self.view(shape, [0] * lead + strides)

    def sliced(self, keys: tuple[Any, ...]) -> "Array":
        """A view: what slices, integers, None and ... pick. Raises IndexError for what is outside."""
        taken = sum(entry is not None and entry is not Ellipsis for entry in keys)
        if taken > self.ndim:
            raise IndexError(f"{taken} indices for an array of rank {self.ndim}")
        fill = (slice(None),) * (self.ndim - taken)
        at = keys.index(Ellipsis) if any(entry is Ellipsis for entry in keys) else len(keys)
        shape, strides, offset, axis = [], [], 0, 0
        for entry in (*keys[:at], *fill, *keys[at + 1 :]):
            if entry is None:
                shape.append(1)
                strides.append(0)
                continue
            extent, stride = self.shape[axis], self.strides[axis]
            axis += 1
            if isinstance(entry, slice):
                start, stop, step = entry.indices(extent)
                shape.append(len(range(start, stop, step)))
                strides.append(stride * step)
                offset += start * stride if shape[-1] else 0
            else:
                index = operator.index(entry)
                if not -extent <= index < extent:
                    raise IndexError(f"index {index} is outside an axis of {extent}")
                offset += index % extent * stride
        return self.view(shape, strides, offset)

    # ------------------------------------------------------------------------------------------------ inside a TE compute
    def at(self, buffer: te.Tensor, index: Sequence[Any], extra: Sequence[Term] = ()) -> Any:
        """The element at a logical index; `extra` terms are added to it."""
        return buffer[coordinates([*zip(index, self.shape, self.strides, strict=True), *extra], self.offset, self.node.shape)]

    def element(self, buffer: te.Tensor, row: Any, column: Any, extra: Sequence[Term] = ()) -> Any:
        """The element at a row (all axes but the last, side by side) and a column."""
        terms = [*self.row_terms(row), (column, self.shape[-1], self.strides[-1])] if self.ndim else []
        return buffer[coordinates([*terms, *extra], self.offset, self.node.shape)]

    def row_terms(self, row: Any) -> list[Term]:
        """The row's index taken apart into as few axes as the strides allow."""
        axes: list[tuple[int, int]] = []
        for extent, stride in zip(self.shape[:-1], self.strides[:-1], strict=True):
            if extent == 1:
                continue
            if axes and axes[-1][1] == extent * stride:
                axes[-1] = (axes[-1][0] * extent, stride)
            else:
                axes.append((extent, stride))
        terms, inner = [], 1
        for place, (extent, stride) in reversed(list(enumerate(axes))):
            index = row if inner == 1 else row // inner
            terms.append((index if place == 0 else index % extent, extent, stride))
            inner *= extent
        return terms[::-1]

    def aligned(self, rows: int) -> bool:
        """Whether row r of the view lies in row r of its buffer."""
        if len(self.node.shape) != 2 or self.node.shape[0] != rows or math.prod(self.shape[:-1]) != rows:
            return False
        width = self.node.shape[1]
        axes = [(extent, stride) for _, extent, stride in self.row_terms(0)]
        return axes in ([(rows, width)], [] if rows == 1 else [(rows, width)]) and self.offset < max(width, 1)


def require_cpu(device: Any) -> None:
    """Raise ValueError, naming it, for another device than the one that there is; None is that one."""
    if device not in (None, "cpu"):
        raise ValueError(f"unknown device {device!r}; there is 'cpu'")


def row_major(shape: Sequence[int]) -> tuple[int, ...]:
    """The strides of a contiguous array."""
    return tuple(itertools.accumulate(reversed(shape[1:]), operator.mul, initial=1))[::-1] if shape else ()


def _packed(shape, strides):
    return all(extent == 1 or own == wanted for extent, own, wanted in zip(shape, strides, row_major(shape), strict=True))


def rows_and_columns(shape: Sequence[int]) -> tuple[int, int]:
    """The two-dimensional buffer that holds an array of this shape."""
    return math.prod(shape[:-1]), shape[-1] if shape else 1


def reshaped(x: Array, shape: tuple[int, ...]) -> Array | None:
    """A view of another shape, or None where the strides do not allow one."""
    if 0 in shape:
        return x.view(shape, row_major(shape))
    strides, axes = [], [(extent, stride) for extent, stride in zip(x.shape, x.strides, strict=True) if extent != 1]
    for extent in reversed(shape):
        if extent == 1:
            strides.append(0)
            continue
        while axes and axes[-1][0] < extent:
            if len(axes) < 2 or axes[-2][1] != axes[-1][0] * axes[-1][1]:
                return None
            (outer, _), (inner, stride) = axes[-2:]
            axes[-2:] = [(outer * inner, stride)]
        whole, stride = axes.pop()
        if whole % extent:
            return None
        strides.append(stride)
        if whole != extent:
            axes.append((whole // extent, stride * extent))
    return x.view(shape, strides[::-1])


def unravel(index: Any, shape: Sequence[int]) -> list[Any]:
    """The logical index of the element at a position in row-major order."""
    places = [index // stride if stride > 1 else index for stride in row_major(shape)]
    return [0 if extent == 1 else place % extent if axis else place for axis, (place, extent) in enumerate(zip(places, shape, strict=True))]


def coordinates(terms: Sequence[Term], offset: int, shape: Sequence[int]) -> tuple:
    """Where offset + sum(index * stride) lies in a row-major buffer, without divisions wherever no axis overflows."""
    whole = list(row_major(shape))
    result, pending = [], [term for term in terms if term[1] != 1 and term[2] != 0]
    start = [offset // stride % extent for stride, extent in zip(whole, shape, strict=True)]
    for axis in reversed(range(len(shape))):
        stride, extent = whole[axis], shape[axis]
        limit = stride * extent if axis else math.inf
        inside, pending = [t for t in pending if t[2] < limit], [t for t in pending if t[2] >= limit]
        inside, carried = _within(inside, stride, extent, axis)
        pending += carried
        most = start[axis] + sum((e - 1) * (s // stride) for _, e, s in inside)
        if any(s % stride for _, _, s in inside) or most >= extent:
            return _divided(terms, offset, shape)
        result.append(sum((index * (s // stride) for index, _, s in inside), tirx.const(start[axis], "int32")))
    return tuple(reversed(result))


def _within(terms, stride, extent, axis):
    """Split a lone term that runs over the end of its axis into a part inside it and one for the next axis."""
    if axis and len(terms) == 1 and terms[0][2] == stride and terms[0][1] > extent and terms[0][1] % extent == 0:
        index, whole, _ = terms[0]
        return [(index % extent, extent, stride)], [(index // extent, whole // extent, stride * extent)]
    return terms, []


def _divided(terms, offset, shape):
    flat = sum((index * stride for index, _, stride in terms), tirx.const(offset, "int32"))
    return tuple(flat // stride % extent for stride, extent in zip(row_major(shape), shape, strict=True))
