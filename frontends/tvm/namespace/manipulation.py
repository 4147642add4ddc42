"""Shapes: views where there is one, copies elsewhere."""

import math
from collections.abc import Sequence

from tvm import tirx

from xformer.frontends.tvm.array import Array, reshaped
from xformer.frontends.tvm.elements import astype, broadcast_shapes, mapped, result_type
from xformer.frontends.tvm.nodes import Indexed


class AxisError(ValueError, IndexError):
    """An axis that an array does not have: both kinds of error, since users expect either."""


def axis_of(axis: int, rank: int) -> int:
    """An axis, counted from the front. Raises AxisError when there is none."""
    if not -rank <= axis < rank:
        raise AxisError(f"axis {axis} is outside an array of rank {rank}")
    return axis % rank


def axes_of(axis: int | Sequence[int] | None, rank: int) -> tuple[int, ...]:
    """Some axes, counted from the front; None: all. Raises ValueError when one is named twice."""
    if axis is None:
        return tuple(range(rank))
    found = tuple(axis_of(one, rank) for one in (axis if isinstance(axis, tuple | list) else (axis,)))
    if len(set(found)) != len(found):
        raise ValueError(f"axes {axis} name one twice")
    return found


def copied(x: Array) -> Array:
    """x in a buffer of its own."""
    return mapped("copy", lambda element: element, x)


def contiguous(x: Array) -> Array:
    """x alone in its buffer, in order; copied where it is not."""
    return x if x.contiguous else copied(x)


def reshape(x: Array, /, shape: Sequence[int], *, copy: bool | None = None) -> Array:
    """x in another shape, one extent of which may be -1. Raises ValueError when the sizes differ."""
    shape = tuple(shape)
    if -1 in shape:
        rest = -math.prod(shape)
        shape = tuple((x.size // rest if rest else 0) if extent == -1 else extent for extent in shape)
    if math.prod(shape) != x.size:
        raise ValueError(f"cannot reshape {x.shape} to {shape}")
    viewed = reshaped(x, shape)
    if viewed is None and copy is False:
        raise ValueError(f"cannot reshape {x.shape} to {shape} without a copy")
    return Array(contiguous(x).node, shape) if viewed is None else viewed


def permute_dims(x: Array, /, axes: Sequence[int]) -> Array:
    """x with its axes in another order."""
    axes = axes_of(tuple(axes), x.ndim)
    if len(axes) != x.ndim:
        raise ValueError(f"permute_dims needs each of {x.ndim} axes once, got {axes}")
    return x.view([x.shape[axis] for axis in axes], [x.strides[axis] for axis in axes])


def matrix(x: Array) -> Array:
    """x. Raises ValueError when it is no matrix, nor several."""
    if x.ndim < 2:
        raise ValueError(f"a matrix has two axes or more, got shape {x.shape}")
    return x


def matrix_transpose(x: Array, /) -> Array:
    """x with its last two axes exchanged."""
    return permute_dims(matrix(x), (*range(x.ndim - 2), x.ndim - 1, x.ndim - 2))


def moveaxis(x: Array, source: int | Sequence[int], destination: int | Sequence[int], /) -> Array:
    """x with the source axes at the destinations, the others in their order."""
    start, end = axes_of(_many(source), x.ndim), axes_of(_many(destination), x.ndim)
    if len(start) != len(end):
        raise ValueError(f"{len(start)} axes cannot go to {len(end)} places")
    order = [axis for axis in range(x.ndim) if axis not in start]
    for place, axis in sorted(zip(end, start, strict=True)):
        order.insert(place, axis)
    return permute_dims(x, order)


def _many(axis):
    return axis if isinstance(axis, tuple | list) else (axis,)


def expand_dims(x: Array, /, axis: int | Sequence[int] = 0) -> Array:
    """x with axes of extent 1 at places of the result."""
    count = x.ndim + len(_many(axis))
    places = axes_of(_many(axis), count)
    shape, strides = iter(x.shape), iter(x.strides)
    pairs = [(1, 0) if place in places else (next(shape), next(strides)) for place in range(count)]
    return x.view([extent for extent, _ in pairs], [stride for _, stride in pairs])


def squeeze(x: Array, /, axis: int | Sequence[int]) -> Array:
    """x without axes of extent 1. Raises ValueError for another extent."""
    places = axes_of(_many(axis), x.ndim)
    if wide := [place for place in places if x.shape[place] != 1]:
        raise ValueError(f"axis {wide[0]} of shape {x.shape} is not 1 wide")
    kept = [place for place in range(x.ndim) if place not in places]
    return x.view([x.shape[place] for place in kept], [x.strides[place] for place in kept])


def flip(x: Array, /, *, axis: int | Sequence[int] | None = None) -> Array:
    """x with the elements along axes in the reverse order."""
    places = axes_of(axis, x.ndim)
    return x[tuple(slice(None, None, -1) if place in places else slice(None) for place in range(x.ndim))] if x.ndim else x


def broadcast_to(x: Array, /, shape: Sequence[int]) -> Array:
    """As NumPy broadcasts. Raises ValueError when the shapes do not fit."""
    return x.broadcast_to(tuple(shape))


def broadcast_arrays(*arrays: Array) -> list[Array]:
    """All of one shape."""
    shape = broadcast_shapes(*(x.shape for x in arrays))
    return [x.broadcast_to(shape) for x in arrays]


def concat(arrays: Sequence[Array], /, *, axis: int | None = 0) -> Array:
    """Arrays one after the other along an axis; None: flattened."""
    if axis is None:
        return concat([reshape(x, (-1,)) for x in arrays], axis=0)
    place, dtype = axis_of(axis, arrays[0].ndim), result_type(*arrays)
    if odd := [x.shape for x in arrays if x.ndim != arrays[0].ndim or _without(x.shape, place) != _without(arrays[0].shape, place)]:
        raise ValueError(f"shapes {arrays[0].shape} and {odd[0]} do not go together along axis {axis}")
    parts = [astype(x, dtype) for x in arrays if x.shape[place]] or [astype(arrays[0], dtype)]
    starts = [sum(x.shape[place] for x in parts[:count]) for count in range(len(parts))]
    shape = (*parts[0].shape[:place], sum(x.shape[place] for x in parts), *parts[0].shape[place + 1 :])

    def body(index, read):
        own = index[place]
        result = None
        for x, start in reversed(list(zip(parts, starts, strict=True))):
            inside = tirx.max(tirx.min(own - start, x.shape[place] - 1), 0)
            element = read(x, [*index[:place], inside, *index[place + 1 :]])
            result = element if result is None else tirx.Select(own < start + x.shape[place], element, result)
        return result

    return Array(Indexed("concat", body, parts, shape, dtype, place), shape)


def _without(shape, axis):
    return *shape[:axis], *shape[axis + 1 :]


def stack(arrays: Sequence[Array], /, *, axis: int = 0) -> Array:
    """Arrays of one shape along a new axis."""
    return concat([expand_dims(x, axis) for x in arrays], axis=axis_of(axis, arrays[0].ndim + 1))


def unstack(x: Array, /, *, axis: int = 0) -> tuple[Array, ...]:
    """The slices along an axis."""
    place = axis_of(axis, x.ndim)
    return tuple(x[(slice(None),) * place + (index,)] for index in range(x.shape[place]))


def roll(x: Array, /, shift: int | Sequence[int], *, axis: int | Sequence[int] | None = None) -> Array:
    """x with its elements moved along axes, those at the end to the front; axis None: of the flattened array."""
    if axis is None:
        return reshape(roll(reshape(x, (-1,)), shift, axis=0), x.shape)
    shifts = shift if isinstance(shift, tuple | list) else (shift,) * len(_many(axis))
    for count, place in zip(shifts, (axis_of(one, x.ndim) for one in _many(axis)), strict=True):
        extent = x.shape[place]
        if extent and (moved := count % extent):
            before = (slice(None),) * place
            x = concat([x[(*before, slice(extent - moved, None))], x[(*before, slice(None, extent - moved))]], axis=place)
    return x


def tile(x: Array, repetitions: Sequence[int], /) -> Array:
    """x so many times along each axis."""
    rank = max(x.ndim, len(repetitions))
    counts = (1,) * (rank - len(repetitions)) + tuple(repetitions)
    x = reshape(x, (1,) * (rank - x.ndim) + x.shape)
    wide = reshape(x, tuple(extent for own in x.shape for extent in (1, own)))
    shape = tuple(extent for count, own in zip(counts, x.shape, strict=True) for extent in (count, own))
    return reshape(wide.broadcast_to(shape), tuple(count * own for count, own in zip(counts, x.shape, strict=True)))


def meshgrid(*arrays: Array, indexing: str = "xy") -> list[Array]:
    """Coordinates of a grid from those of its axes."""
    if indexing not in ("xy", "ij"):
        raise ValueError(f"indexing is 'xy' or 'ij', got {indexing!r}")
    if len({x.dtype for x in arrays}) > 1 or any(x.ndim > 1 for x in arrays):
        raise ValueError(f"meshgrid needs one-dimensional arrays of one dtype, got {', '.join(map(repr, arrays))}")
    order = list(range(len(arrays)))
    if indexing == "xy" and len(arrays) > 1:
        order[:2] = [1, 0]
    along = [tuple(-1 if place == own else 1 for own in range(len(arrays))) for place in order]
    axes = [reshape(x, shape) for x, shape in zip(arrays, along, strict=True)]
    return broadcast_arrays(*axes) if axes else []
