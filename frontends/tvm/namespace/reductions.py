"""Reductions over axes, and sums along one."""

import builtins
import math
from collections.abc import Sequence

from tvm import tirx

from xformer.frontends.tvm.array import Array
from xformer.frontends.tvm.dtypes import FLOATING, KINDS, SIGNED, UNSIGNED
from xformer.frontends.tvm.elements import astype, checked, mapped
from xformer.frontends.tvm.namespace.arithmetic import add, multiply, sqrt, subtract
from xformer.frontends.tvm.namespace.creation import arange, full
from xformer.frontends.tvm.namespace.logic import not_equal, where
from xformer.frontends.tvm.namespace.manipulation import axes_of, axis_of, concat, expand_dims, moveaxis, permute_dims, reshape
from xformer.frontends.tvm.nodes import Indexed, Reduce

Axes = int | Sequence[int] | None
LONG, BLOCK = 1 << 14, 1 << 8  # elements from which on a sum is one of blocks, and those of a block
SHORT = 512  # elements up to which running sums are sums over a triangle


def reduced(name: str, x: Array, axis: Axes, keepdims: bool, start: float | None = None) -> Array:
    """One reduction over all the axes; `start` is the result of none at all, where there is one."""
    axes = axes_of(axis, x.ndim)
    kept = tuple(1 if place in axes else extent for place, extent in enumerate(x.shape))
    shape = kept if keepdims else tuple(extent for place, extent in enumerate(x.shape) if place not in axes)
    if not axes:
        return x
    if not math.prod(x.shape[place] for place in axes):
        if start is None:
            raise ValueError(f"{name} of no elements: shape {x.shape}, axis {axis}")
        return full(shape, start, dtype=x.dtype)
    if len(axes) > 1:
        rest = [place for place in range(x.ndim) if place not in axes]
        x, place = permute_dims(x, (*rest, *axes)), len(rest)
        x = reshape(x, (*x.shape[:place], math.prod(x.shape[place:])))
        return reshape(reduced(name, x, place, False), shape)
    if name == "sum" and x.dtype in FLOATING and x.shape[axes[0]] > LONG:
        return reshape(_in_blocks(moveaxis(x, axes[0], -1)), shape)
    node = Reduce(name, x, axes[0], keepdims, x.dtype)
    return Array(node, node.logical)


def _in_blocks(x: Array) -> Array:
    """The sum over a long last axis by sums of blocks: one after the other, what is added would in the end be lost to rounding."""
    count = x.shape[-1] // BLOCK
    blocks = reshape(x[..., : count * BLOCK], (*x.shape[:-1], count, BLOCK))
    sums = reduced("sum", blocks, -1, False)
    total = _in_blocks(sums) if count > BLOCK else reduced("sum", sums, -1, False)
    return add(total, reduced("sum", x[..., count * BLOCK :], -1, False)) if x.shape[-1] % BLOCK else total


def _accumulated(x: Array, dtype: str | None) -> Array:
    """x in the dtype of its sums: at least as wide as the default one of its kind."""
    checked("a sum", x.dtype, KINDS["numeric"])
    if dtype is None and x.dtype in SIGNED + UNSIGNED:
        dtype = "int64" if x.dtype in SIGNED else "uint64"
    return astype(x, dtype or x.dtype)


def sum(x: Array, /, *, axis: Axes = None, dtype: str | None = None, keepdims: bool = False) -> Array:
    """The sum over axes."""
    return reduced("sum", _accumulated(x, dtype), axis, keepdims, 0)


def prod(x: Array, /, *, axis: Axes = None, dtype: str | None = None, keepdims: bool = False) -> Array:
    """The product over axes."""
    return reduced("prod", _accumulated(x, dtype), axis, keepdims, 1)


def mean(x: Array, /, *, axis: Axes = None, keepdims: bool = False) -> Array:
    """The mean over axes; NaN of no elements."""
    checked("mean", x.dtype, FLOATING)
    count = math.prod(x.shape[place] for place in axes_of(axis, x.ndim))
    return reduced("sum", x, axis, keepdims, 0.0) * (1.0 / count if count else math.nan)


def var(x: Array, /, *, axis: Axes = None, correction: float = 0.0, keepdims: bool = False) -> Array:
    """The variance over axes, of `correction` degrees of freedom less; NaN where there are none."""
    count = math.prod(x.shape[place] for place in axes_of(axis, x.ndim)) - correction
    apart = subtract(x, mean(x, axis=axis, keepdims=True))
    return reduced("sum", multiply(apart, apart), axis, keepdims, 0.0) * (1.0 / count if count > 0 else math.nan)


def std(x: Array, /, *, axis: Axes = None, correction: float = 0.0, keepdims: bool = False) -> Array:
    """The square root of the variance."""
    return sqrt(var(x, axis=axis, correction=correction, keepdims=keepdims))


def max(x: Array, /, *, axis: Axes = None, keepdims: bool = False) -> Array:
    """The maximum over axes, NaN if there is one."""
    checked("max", x.dtype, KINDS["numeric"])
    if x.node.name == "abs" and x.dtype == "float32":
        # Without a sign, numbers are ordered as their bits are and NaN is above all: the maximum of integers has no case of its own.
        bits = mapped("bits", lambda one: tirx.reinterpret("int32", one), x, dtype="int32")
        return mapped("of_bits", lambda one: tirx.reinterpret("float32", one), max(bits, axis=axis, keepdims=keepdims), dtype="float32")
    return reduced("max", x, axis, keepdims)


def min(x: Array, /, *, axis: Axes = None, keepdims: bool = False) -> Array:
    """The minimum over axes, NaN if there is one."""
    checked("min", x.dtype, KINDS["numeric"])
    return reduced("min", x, axis, keepdims)


def any(x: Array, /, *, axis: Axes = None, keepdims: bool = False) -> Array:
    """Whether an element over axes is not zero."""
    return astype(reduced("max", _truth(x), axis, keepdims, 0), "bool")


def all(x: Array, /, *, axis: Axes = None, keepdims: bool = False) -> Array:
    """Whether no element over axes is zero."""
    return astype(reduced("min", _truth(x), axis, keepdims, 1), "bool")


def _truth(x):
    return astype(x if x.dtype == "bool" else not_equal(x, 0), "int8")


def count_nonzero(x: Array, /, *, axis: Axes = None, keepdims: bool = False) -> Array:
    """How many elements over axes are not zero, as int64."""
    return sum(astype(_truth(x), "int64"), axis=axis, keepdims=keepdims)


def _running(name: str, x: Array, axis: int | None, include_initial: bool, start: int, combine) -> Array:
    if axis is None:
        if x.ndim != 1:
            raise ValueError(f"{name} of shape {x.shape} needs an axis")
        axis = 0
    axis = axis_of(axis, x.ndim)
    if x.shape[axis]:
        x = _triangle(x, axis) if start == 0 and x.shape[axis] <= SHORT else _doubling(x, axis, start, combine)
    if include_initial:
        first = full((*x.shape[:axis], 1, *x.shape[axis + 1 :]), start, dtype=x.dtype)
        return concat([first, x], axis=axis)
    return x


def _triangle(x, axis):
    """One reduction, for masks and what else is short."""
    count, tail = x.shape[axis], (1,) * (x.ndim - 1 - axis)
    places = arange(count, dtype="int32")
    seen = reshape(expand_dims(places, 0) <= expand_dims(places, 1), (count, count, *tail))
    wide = expand_dims(x, axis)
    return reduced("sum", where(seen, wide.broadcast_to((*x.shape[: axis + 1], *x.shape[axis:])), 0), axis + 1, False)


def _doubling(x, axis, start, combine):
    """Each step combines with what is 1, 2, 4, .. places before."""
    step = 1
    while step < x.shape[axis]:
        x = combine(x, _later(x, axis, step, start))
        step *= 2
    return x


def _later(x: Array, axis: int, step: int, start: int) -> Array:
    """x moved along an axis, `start` before it."""

    def body(index, read):
        inside = tirx.max(index[axis] - step, 0)
        return tirx.Select(index[axis] >= step, read(x, [*index[:axis], inside, *index[axis + 1 :]]), tirx.const(start, x.dtype))

    return Array(Indexed("later", body, (x,), x.shape, x.dtype, axis, step, start), x.shape)


def cumulative_sum(x: Array, /, *, axis: int | None = None, dtype: str | None = None, include_initial: bool = False) -> Array:
    """Sums of the first 1, 2, .. elements along an axis."""
    return _running("cumulative_sum", _accumulated(x, dtype), axis, include_initial, 0, add)


def cumulative_prod(x: Array, /, *, axis: int | None = None, dtype: str | None = None, include_initial: bool = False) -> Array:
    """Products of the first 1, 2, .. elements along an axis."""
    return _running("cumulative_prod", _accumulated(x, dtype), axis, include_initial, 1, multiply)


def diff(x: Array, /, *, axis: int = -1, n: int = 1, prepend: Array | None = None, append: Array | None = None) -> Array:
    """Differences of neighbours along an axis, n times."""
    place = axis_of(axis, x.ndim)
    parts = [part for part in (prepend, x, append) if part is not None]
    x = concat(parts, axis=place) if len(parts) > 1 else x
    before = (slice(None),) * place
    for _ in range(n):
        later, earlier = x[(*before, slice(1, None))], x[(*before, slice(None, builtins.max(x.shape[place] - 1, 0)))]
        x = not_equal(later, earlier) if x.dtype == "bool" else subtract(later, earlier)
    return x
