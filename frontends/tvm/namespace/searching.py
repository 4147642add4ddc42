"""Finding, sorting, picking, and sets."""

from collections import namedtuple
from typing import Any

from tvm import tirx

from xformer.frontends.tvm import eager
from xformer.frontends.tvm.array import Array
from xformer.frontends.tvm.dtypes import FLOATING, KINDS
from xformer.frontends.tvm.elements import astype, checked, result_type
from xformer.frontends.tvm.namespace.creation import arange
from xformer.frontends.tvm.namespace.elementwise import equal, isnan, less, less_equal, logical_and, logical_or, not_equal, where
from xformer.frontends.tvm.namespace.manipulation import axis_of, broadcast_to, concat, expand_dims, moveaxis, reshape
from xformer.frontends.tvm.namespace.reductions import _reduce, count_nonzero, cumulative_sum, max, min, sum
from xformer.frontends.tvm.nodes import Indexed

UniqueAll = namedtuple("UniqueAll", ["values", "indices", "inverse_indices", "counts"])
UniqueCounts = namedtuple("UniqueCounts", ["values", "counts"])
UniqueInverse = namedtuple("UniqueInverse", ["values", "inverse_indices"])


# ------------------------------------------------------------------------------------------------------------------- picking
def take(x: Array, indices: Array, /, *, axis: int | None = None) -> Array:
    """The slices of x along an axis that the indices name, from the end where negative.

    Raises IndexError for one that is outside; while a function is traced they have no values, and must be checked before.
    """
    if axis is None and x.ndim != 1:
        raise ValueError(f"take from shape {x.shape} needs an axis")
    axis = axis_of(0 if axis is None else axis, x.ndim)
    return _taken(x, within(indices, x.shape[axis]), axis)


def within(indices: Array, extent: int) -> Array:
    """The indices. Raises IndexError where they have values and one of them is outside an axis."""
    checked("an index", indices.dtype, KINDS["integral"])
    if indices.size and not indices.node.symbolic:
        least, most = int(min(indices)), int(max(indices))
        if least < -extent or most >= extent:
            raise IndexError(f"index {most if most >= extent else least} is outside an axis of {extent}")
    return indices


def _taken(x: Array, indices: Array, axis: int = 0) -> Array:
    shape = (*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :])

    def body(index, read):
        inner = read(indices, index[axis : axis + indices.ndim])
        return read(x, [*index[:axis], from_front(inner, indices, x.shape[axis]), *index[axis + indices.ndim :]])

    return Array(Indexed("take", body, (x, indices), shape, x.dtype, axis), shape)


def take_along_axis(x: Array, indices: Array, /, *, axis: int = -1) -> Array:
    """The elements of x along an axis that the indices name, which have the other axes of x."""
    axis = axis_of(axis, x.ndim)
    shape = tuple(b if place == axis or a == 1 else a for place, (a, b) in enumerate(zip(x.shape, indices.shape, strict=True)))
    x = broadcast_to(x, (*shape[:axis], x.shape[axis], *shape[axis + 1 :]))
    return _taken_along(x, broadcast_to(within(indices, x.shape[axis]), shape), axis)


def _taken_along(x: Array, indices: Array, axis: int) -> Array:
    shape = indices.shape

    def body(index, read):
        inner = from_front(read(indices, index), indices, x.shape[axis])
        return read(x, [*index[:axis], inner, *index[axis + 1 :]])

    return Array(Indexed("take_along_axis", body, (x, indices), shape, x.dtype, axis), shape)


def from_front(index: Any, indices: Array, extent: int) -> Any:
    """An element of the indices as an expression, counted from the front."""
    if indices.node.symbolic and indices.dtype == "int32":
        return index  # tokens and positions of a model, which never count from the end
    index = index.astype("int32")
    return tirx.Select(index < 0, index + extent, index)


# ------------------------------------------------------------------------------------------------------------------- finding
def _place(name: str, x: Array, found: Array, axis: int | None, keepdims: bool) -> Array:
    same = equal(x, found) if x.dtype not in FLOATING else logical_or(equal(x, found), isnan(x))
    extent = x.shape[axis if axis is not None else 0]
    places = reshape(arange(extent, dtype="int64"), (-1,) + (1,) * (x.ndim - 1 - (axis or 0)))
    return _reduce("min", where(same, broadcast_to(places, x.shape), 2**31 - 1), axis, keepdims)


def _argument(name: str, best, x: Array, axis: int | None, keepdims: bool) -> Array:
    checked(name, x.dtype, KINDS["numeric"])
    if axis is None:
        flat = _argument(name, best, reshape(x, (-1,)), 0, False)
        return reshape(flat, (1,) * x.ndim) if keepdims else flat
    place = axis_of(axis, x.ndim)
    return _place(name, x, best(x, axis=place, keepdims=True), place, keepdims)


def argmax(x: Array, /, *, axis: int | None = None, keepdims: bool = False) -> Array:
    """The index of the first maximum, as int64."""
    return _argument("argmax", max, x, axis, keepdims)


def argmin(x: Array, /, *, axis: int | None = None, keepdims: bool = False) -> Array:
    """The index of the first minimum, as int64."""
    return _argument("argmin", min, x, axis, keepdims)


def searchsorted(x1: Array, x2: Array, /, *, side: str = "left", sorter: Array | None = None) -> Array:
    """Where the elements of x2 belong in the sorted x1, before ("left") or after ("right") equal ones, as int64."""
    if side not in ("left", "right"):
        raise ValueError(f"side is 'left' or 'right', got {side!r}")
    own = result_type(x1, x2)
    x1, x2 = astype(x1 if sorter is None else take(x1, sorter), own), astype(x2, own)
    before = (less if side == "left" else less_equal)(x1, expand_dims(x2, -1))
    return sum(astype(before, "int64"), axis=-1)


def nonzero(x: Array, /) -> tuple[Array, ...]:
    """The indices of what is not zero, an array of int64 for each axis. The array must have values."""
    if x.ndim == 0:
        raise ValueError("nonzero of an array without axes")
    flat = reshape(x if x.dtype == "bool" else not_equal(x, 0), (-1,))
    places = eager.known(_places(flat))
    found, rest = [], places
    for extent in reversed(x.shape):
        found.append(rest % extent)
        rest = rest // extent
    return tuple(reversed(found))


def _places(flat: Array) -> Array:
    """The places of what is True, in order; how many there are is read now."""
    count = int(count_nonzero(flat))
    return searchsorted(cumulative_sum(astype(flat, "int32"), axis=0, dtype="int64"), arange(1, count + 1, dtype="int64"))


# ------------------------------------------------------------------------------------------------------------------- sorting
def argsort(x: Array, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Array:
    """The indices that sort x along an axis, NaN at the end, as int64. Equal elements stay in order.

    Each element's rank is the number of those before it: n^2 comparisons, in one kernel of vectors, for rows that are short.
    """
    if x.ndim == 0:
        return astype(x, "int64") * 0
    last = moveaxis(x, axis, -1)
    ranks = _ranks(last, descending)
    places = arange(last.shape[-1], dtype="int64")
    of_rank = equal(expand_dims(ranks, -2), expand_dims(places, 1))  # (.., rank, place)
    order = sum(where(of_rank, places, 0), axis=-1, dtype="int64")
    return moveaxis(order, -1, axis)


def _ranks(x, descending):
    a, b = expand_dims(x, -1), expand_dims(x, -2)  # is b before a?
    smaller = less(astype(b, "int8"), astype(a, "int8")) if x.dtype == "bool" else less(b, a)
    larger = less(astype(a, "int8"), astype(b, "int8")) if x.dtype == "bool" else less(a, b)
    before, after = (larger, smaller) if descending else (smaller, larger)
    if x.dtype in FLOATING:
        first, second = (isnan(b), isnan(a)) if descending else (isnan(a), isnan(b))
        before = logical_or(before, logical_and(first, ~second))
        after = logical_or(after, logical_and(second, ~first))
    places = arange(x.shape[-1], dtype="int32")
    earlier = less(expand_dims(places, 0), expand_dims(places, 1))
    return sum(astype(logical_or(before, logical_and(~after, earlier)), "int64"), axis=-1)


def sort(x: Array, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Array:
    """x in order along an axis, NaN at the end (at the front if descending)."""
    return _taken_along(x, argsort(x, axis=axis, descending=descending), axis_of(axis, x.ndim)) if x.ndim else x


# ---------------------------------------------------------------------------------------------------------------------- sets
def unique_all(x: Array, /) -> UniqueAll:
    """The distinct elements in order, where each is first, which each element is, and how many of each. NaN is never equal."""
    flat = reshape(x, (-1,))
    if not flat.size:
        none = arange(0, dtype="int64")
        return UniqueAll(flat, none, reshape(none, x.shape), none)
    order = argsort(flat)
    ordered = _taken(flat, order)
    starts = concat([equal(arange(1, dtype="int64"), 0), not_equal(ordered[1:], ordered[:-1])])
    places = eager.known(_places(starts))
    ends = concat([places[1:], arange(flat.size, flat.size + 1, dtype="int64")])
    group = cumulative_sum(astype(starts, "int32"), axis=0, dtype="int64") - 1
    inverse = _taken(group, argsort(order))
    return UniqueAll(_taken(ordered, places), _taken(order, places), reshape(inverse, x.shape), ends - places)


def unique_counts(x: Array, /) -> UniqueCounts:
    """The distinct elements in order, and how many of each."""
    found = unique_all(x)
    return UniqueCounts(found.values, found.counts)


def unique_inverse(x: Array, /) -> UniqueInverse:
    """The distinct elements in order, and which each element is."""
    found = unique_all(x)
    return UniqueInverse(found.values, found.inverse_indices)


def unique_values(x: Array, /) -> Array:
    """The distinct elements in order."""
    return unique_all(x).values


def isin(x1: Array, x2: Array, /, *, invert: bool = False) -> Array:
    """Whether each element of x1 is among those of x2."""
    flat = reshape(x2, (-1,))
    if not flat.size:
        return astype(arange(x1.size, dtype="int64") * 0, "bool") if not invert else equal(x1, x1)
    found = astype(max(astype(equal(expand_dims(x1, -1), flat), "int8"), axis=-1), "bool")
    return ~found if invert else found
