"""Finding and sorting."""

from collections.abc import Callable

from xformer.frontends.tvm import eager
from xformer.frontends.tvm.array import Array
from xformer.frontends.tvm.dtypes import FLOATING, KINDS
from xformer.frontends.tvm.elements import astype, checked, result_type
from xformer.frontends.tvm.namespace.creation import arange
from xformer.frontends.tvm.namespace.logic import equal, isnan, less, less_equal, logical_and, logical_or, not_equal, where
from xformer.frontends.tvm.namespace.manipulation import axis_of, broadcast_to, expand_dims, moveaxis, reshape
from xformer.frontends.tvm.namespace.picking import take, taken_along
from xformer.frontends.tvm.namespace.reductions import count_nonzero, cumulative_sum, max, min, reduced, sum


# ------------------------------------------------------------------------------------------------------------------- finding
def _argument(name: str, best: Callable, x: Array, axis: int | None, keepdims: bool) -> Array:
    checked(name, x.dtype, KINDS["numeric"])
    if axis is None:
        flat = _argument(name, best, reshape(x, (-1,)), 0, False)
        return reshape(flat, (1,) * x.ndim) if keepdims else flat
    axis = axis_of(axis, x.ndim)
    found = equal(x, best(x, axis=axis, keepdims=True))
    if x.dtype in FLOATING:
        found = logical_or(found, isnan(x))
    places = reshape(arange(x.shape[axis], dtype="int64"), (-1,) + (1,) * (x.ndim - 1 - axis))
    return reduced("min", where(found, broadcast_to(places, x.shape), x.shape[axis]), axis, keepdims)


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
    places = eager.known(places_of(flat))
    found, rest = [], places
    for extent in reversed(x.shape):
        found.append(rest % extent)
        rest = rest // extent
    return tuple(reversed(found))


def places_of(flat: Array) -> Array:
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
    return taken_along(x, argsort(x, axis=axis, descending=descending), axis_of(axis, x.ndim)) if x.ndim else x
