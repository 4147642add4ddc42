"""The Array API over TE, as much of it as models use: what a function does with its arrays is traced, not run.

A traced array is handed to an ordinary function of `xformer`; its `__array_namespace__` leads here. Dtypes are their
names. Python scalars take the array's dtype; arrays of two dtypes do not mix. Comparisons with NaN and reductions behave
as the standard has them, which the built-in maximum and hyperbolic tangent of TE do not.
"""

import math
import operator
from collections.abc import Sequence
from typing import Any

from tvm import tirx

from xformer.frontends.tvm import elementary
from xformer.frontends.tvm.array import Array, reshaped
from xformer.frontends.tvm.contraction import Contract, Packed
from xformer.frontends.tvm.elements import Scalar, binary, common_dtype, mapped, unary
from xformer.frontends.tvm.nodes import Indexed, Input, Reduce, Write

bool = "bool"
int8, int16, int32, int64 = "int8", "int16", "int32", "int64"
bfloat16, float32, float64 = "bfloat16", "float32", "float64"


# --------------------------------------------------------------------------------------------------------- element by element
add = binary("add", operator.add)
subtract = binary("subtract", elementary.difference)
multiply = binary("multiply", operator.mul)
divide = binary("divide", lambda a, b: tirx.div(a, b))
less = binary("less", operator.lt, bool)
less_equal = binary("less_equal", operator.le, bool)
greater = binary("greater", operator.gt, bool)
greater_equal = binary("greater_equal", operator.ge, bool)
isnan = unary("isnan", elementary.isnan, bool)
_equal = binary("equal", lambda a, b: tirx.EQ(a, b), bool)
logical_and = binary("logical_and", lambda a, b: tirx.all(a, b))
logical_or = binary("logical_or", lambda a, b: tirx.any(a, b))
negative = unary("negative", operator.neg)
logical_not = unary("logical_not", lambda x: tirx.Not(x))
abs = unary("abs", lambda x: tirx.abs(x))
round = unary("round", lambda x: tirx.round(x))  # half to even in code for CPUs
sqrt = unary("sqrt", lambda x: tirx.sqrt(x))
exp = unary("exp", elementary.exp)
erf = unary("erf", elementary.erf)
tanh = unary("tanh", elementary.tanh)


def equal(x1: Array | Scalar, x2: Array | Scalar) -> Array:
    """equal of two arrays, or of an array and a scalar; an array equals itself but for NaN, which TVM does not know."""
    if isinstance(x1, Array) and isinstance(x2, Array) and x1.node is x2.node and x1.key == x2.key:
        return logical_not(isnan(x1))
    return _equal(x1, x2)


def not_equal(x1: Array | Scalar, x2: Array | Scalar) -> Array:
    """The opposite of equal."""
    return logical_not(equal(x1, x2))


for _name, _function in {"add": add, "sub": subtract, "mul": multiply, "truediv": divide, "and": logical_and, "or": logical_or}.items():
    setattr(Array, f"__{_name}__", lambda self, other, f=_function: f(self, other))
    setattr(Array, f"__r{_name}__", lambda self, other, f=_function: f(other, self))
for _name, _function in {"lt": less, "le": less_equal, "gt": greater, "ge": greater_equal, "eq": equal, "ne": not_equal}.items():
    setattr(Array, f"__{_name}__", lambda self, other, f=_function: f(self, other))
Array.__neg__ = lambda self: negative(self)
Array.__invert__ = lambda self: logical_not(self)
Array.__hash__ = object.__hash__  # type: ignore[method-assign]  # comparison gives arrays, as everywhere in the standard


def where(condition: Array, x1: Array | Scalar, x2: Array | Scalar) -> Array:
    """x1 where the condition holds, else x2."""
    common_dtype(x1, x2)
    return mapped("where", tirx.Select, condition, x1, x2)


def clip(x: Array, min: Scalar | None = None, max: Scalar | None = None) -> Array:
    """x within the limits; NaN stays NaN."""
    if min is not None:
        x = where(x < min, min, x)
    return x if max is None else where(x > max, max, x)


def astype(x: Array, dtype: str, *, copy: Any = True, device: Any = None) -> Array:
    """x in another dtype; a float that is to become an integer must fit it."""
    if x.dtype == dtype:
        return x
    if isinstance(x, Packed):
        raise TypeError(f"a packed weight of {x.dtype} cannot become {dtype}")
    if dtype == bfloat16 and x.dtype == float32:
        return mapped("astype", elementary.to_bfloat16, x, dtype=dtype)
    return mapped("astype", lambda element: element != 0 if dtype == bool else element.astype(dtype), x, dtype=dtype)


# ---------------------------------------------------------------------------------------------------------------- reductions
def _axis(x: Array, axis: int) -> int:
    if not -x.ndim <= axis < x.ndim:
        raise ValueError(f"axis {axis} is outside an array of rank {x.ndim}")
    return axis % x.ndim


def _reduce(name: str, x: Array, axis: int, keepdims: Any) -> Array:
    node = Reduce(name, x, _axis(x, axis), keepdims, x.dtype)
    return Array(node, node.logical)


def sum(x: Array, *, axis: int, dtype: str | None = None, keepdims: Any = False) -> Array:
    """The sum over an axis."""
    return _reduce("sum", astype(x, dtype or x.dtype), axis, keepdims)


def mean(x: Array, *, axis: int, keepdims: Any = False) -> Array:
    """The mean over an axis."""
    return sum(x, axis=axis, keepdims=keepdims) * (1.0 / x.shape[axis])


def max(x: Array, *, axis: int, keepdims: Any = False) -> Array:
    """The maximum over an axis, NaN if there is one."""
    return _reduce("max", x, axis, keepdims)


def argmax(x: Array, *, axis: int) -> Array:
    """The index of the first maximum, as int32."""
    axis = _axis(x, axis)
    places = reshape(arange(x.shape[axis], dtype=int32), (-1,) + (1,) * (x.ndim - 1 - axis))
    return _reduce("min", where(equal(x, max(x, axis=axis, keepdims=True)), places, 2**31 - 1), axis, False)


def cumulative_sum(x: Array, *, axis: int, dtype: str | None = None) -> Array:
    """Sums of the first 1, 2, .. elements along an axis: for masks, whose rows are short."""
    x, axis = astype(x, dtype or x.dtype), _axis(x, axis)
    count = x.shape[axis]
    tail = (1,) * (x.ndim - 1 - axis)
    source, target = arange(count, dtype=int32), reshape(arange(count, dtype=int32), (count, 1))
    seen = reshape(source <= target, (count, count, *tail))
    wide = x.view((*x.shape[:axis], 1, *x.shape[axis:]), (*x.strides[:axis], 0, *x.strides[axis:]))
    return sum(where(seen, wide, 0), axis=axis + 1)


# ------------------------------------------------------------------------------------------------------- shapes, picking, making
def contiguous(x: Array) -> Array:
    """x alone in its buffer, in order; copied where it is not."""
    return x if x.contiguous else mapped("copy", lambda element: element, x)


def reshape(x: Array, shape: Sequence[int]) -> Array:
    """x in another shape, one extent of which may be -1. Raises ValueError when the sizes differ."""
    shape = tuple(shape)
    if -1 in shape:
        rest = -math.prod(shape)
        shape = tuple(x.size // rest if extent == -1 else extent for extent in shape)
    if math.prod(shape) != x.size:
        raise ValueError(f"cannot reshape {x.shape} to {shape}")
    viewed = reshaped(x, shape)
    return Array(contiguous(x).node, shape) if viewed is None else viewed


def permute_dims(x: Array, axes: Sequence[int]) -> Array:
    """x with its axes in another order."""
    return x.view([x.shape[axis] for axis in axes], [x.strides[axis] for axis in axes])


def matrix_transpose(x: Array) -> Array:
    """x with its last two axes exchanged."""
    return permute_dims(x, (*range(x.ndim - 2), x.ndim - 1, x.ndim - 2))


def take(x: Array, indices: Array, *, axis: int) -> Array:
    """The slices of x along an axis that the indices name; they are checked before, not here."""
    axis = _axis(x, axis)
    shape = (*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :])

    def body(index, read):
        inner = read(indices, index[axis : axis + indices.ndim])
        return read(x, [*index[:axis], inner, *index[axis + indices.ndim :]])

    return Array(Indexed("take", body, (x, indices), shape, x.dtype, axis), shape)


def arange(stop: int, *, dtype: str, device: Any = None) -> Array:
    """0, 1, .. stop - 1."""
    return Array(Indexed("arange", lambda index, read: index[0].astype(dtype), (), (stop,), dtype), (stop,))


def full_like(x: Array, value: Scalar, *, dtype: str | None = None) -> Array:
    """`value` in the shape of x."""
    dtype = dtype or x.dtype
    return Array(Indexed("full", lambda index, read: tirx.const(value, dtype), (), x.shape, dtype, value), x.shape)


def ones_like(x: Array, *, dtype: str | None = None) -> Array:
    """Ones (or True) in the shape of x."""
    return full_like(x, 1, dtype=dtype)


# -------------------------------------------------------------------------------------------------------- verbs beyond the standard
def contract(a: Array, b: Array, accumulate: str) -> Array:
    """a @ transpose(b) accumulated in `accumulate`: a is (..., m, k); b (..., n, k), or (n, k) against any a."""
    shared = b.ndim == 2  # one GEMM over all rows of a
    lead, (m, k), n = (1,) if shared else a.shape[:-2], a.shape[-2:], b.shape[-2]
    if b.shape[-1] != k or not (shared or b.shape[:-2] == lead):
        raise ValueError(f"cannot contract {a.shape} with {b.shape} over the last axis")
    rows = a.size // k if shared else m
    node = Contract(reshape(contiguous(a), (math.prod(lead), rows, k)), b, accumulate)
    return Array(node, (*a.shape[:-1], n))


def write(cache: Array, new: Array, position: Array | int) -> Array:
    """`cache` (..., s, e) with `new` (..., t, e) at rows position .. position + t: in place where the cache is an argument."""
    if isinstance(cache.node, Input) and cache.shape == cache.node.shape and cache.contiguous and isinstance(position, Array):
        return Array(Write(cache, contiguous(new), position), cache.shape)
    start = position if isinstance(position, Array) else full_like(cache[..., :1, :1], position, dtype=int32)
    tokens = new.shape[-2]

    def body(index, read):
        row = index[-2] - read(start, [0] * start.ndim)
        inside = tirx.all(row >= 0, row < tokens)
        source = [*index[:-2], elementary.clamp(row, 0, tokens - 1), index[-1]]
        return tirx.Select(inside, read(new, source), read(cache, index))

    return Array(Indexed("write", body, (cache, new, start), cache.shape, cache.dtype), cache.shape)
