"""Questions about each element: comparisons, logic and bits, what a floating number is, and choosing by the answers."""

import functools
import operator
from collections.abc import Callable
from typing import Any

from tvm import tirx

from xformer.frontends.tvm import dtypes, elementary
from xformer.frontends.tvm.array import Array
from xformer.frontends.tvm.dtypes import BOOL, FLOATING, HALF, KINDS, SIGNED
from xformer.frontends.tvm.elementary import bind, const, dtype_of
from xformer.frontends.tvm.elements import Scalar, astype, binary, checked, mapped, result_type, unary

INTEGRAL, NUMERIC = KINDS["integral"], KINDS["numeric"]
BITS = {"float32": ("uint32", 31), "float64": ("uint64", 63), **dict.fromkeys(HALF, ("uint16", 15))}  # and where the sign is


def unlike(a: Any, b: Any) -> Any:
    """Whether two truth values differ, as expressions; LLVM compares integers."""
    return a.astype("int8") != b.astype("int8")


# --------------------------------------------------------------------------------------------------------------- comparisons
_compare = functools.partial(binary, dtype="bool")
less = _compare("less", operator.lt, kinds=NUMERIC)
less_equal = _compare("less_equal", operator.le, kinds=NUMERIC)
greater = _compare("greater", operator.gt, kinds=NUMERIC)
greater_equal = _compare("greater_equal", operator.ge, kinds=NUMERIC)
_equal = _compare("equal", lambda a, b: tirx.Not(unlike(a, b)) if dtype_of(a) == "bool" else tirx.EQ(a, b))
logical_and = binary("logical_and", lambda a, b: tirx.all(a, b), kinds=BOOL)
logical_or = binary("logical_or", lambda a, b: tirx.any(a, b), kinds=BOOL)
logical_xor = binary("logical_xor", unlike, kinds=BOOL)
logical_not = unary("logical_not", lambda x: tirx.Not(x), kinds=BOOL)


def equal(x1: Array | Scalar, x2: Array | Scalar, /) -> Array:
    """equal of two arrays, or of an array and a scalar; an array equals itself but for NaN, which TVM does not know."""
    if isinstance(x1, Array) and isinstance(x2, Array) and x1.node is x2.node and x1.key == x2.key and x1.dtype in FLOATING:
        return logical_not(isnan(x1))
    return _equal(x1, x2)


def not_equal(x1: Array | Scalar, x2: Array | Scalar, /) -> Array:
    """The opposite of equal."""
    return logical_not(equal(x1, x2))


def _bitwise(name: str, of_integers: Callable, of_booleans: Callable) -> Callable[[Any, Any], Array]:
    def body(a, b):
        return of_booleans(a, b) if dtype_of(a) == "bool" else of_integers(a, b)

    return binary(name, body, kinds=BOOL + INTEGRAL)


bitwise_and = _bitwise("bitwise_and", operator.and_, lambda a, b: tirx.all(a, b))
bitwise_or = _bitwise("bitwise_or", operator.or_, lambda a, b: tirx.any(a, b))
bitwise_xor = _bitwise("bitwise_xor", operator.xor, unlike)
bitwise_invert = unary("bitwise_invert", lambda x: tirx.Not(x) if dtype_of(x) == "bool" else ~x, kinds=BOOL + INTEGRAL)


def _shifted(shift: Callable, beyond: Callable) -> Callable:
    """A shift by as many bits as there are or more: undefined in the hardware, what is left over here."""

    def body(a, b):
        dtype = dtype_of(a)
        bits = dtypes.iinfo(dtype).bits
        inside = tirx.Select(b < const(bits, dtype), b, const(bits - 1, dtype))
        return bind(inside, lambda count: tirx.Select(b < const(bits, dtype), shift(a, count), beyond(a, dtype)))

    return body


bitwise_left_shift = binary("bitwise_left_shift", _shifted(operator.lshift, lambda a, dtype: const(0, dtype)), kinds=INTEGRAL)


def _all_sign(a, dtype):
    """What is left of a number once all of its bits are shifted out: its sign."""
    zero = const(0, dtype)
    return tirx.Select(a < zero, const(-1, dtype), zero) if dtype in SIGNED else zero


bitwise_right_shift = binary("bitwise_right_shift", _shifted(operator.rshift, _all_sign), kinds=INTEGRAL)


# ------------------------------------------------------------------------------------------------------- of floating numbers
isnan = unary("isnan", elementary.isnan, "bool", NUMERIC)


def _finite(x):
    dtype = dtype_of(x)
    if dtype in HALF:
        return _finite(x.astype("float32"))
    return tirx.abs(x) < tirx.infinity(dtype) if dtype in FLOATING else tirx.const(True, "bool")


isfinite = unary("isfinite", _finite, "bool", NUMERIC)


def isinf(x: Array, /) -> Array:
    """Whether each element is an infinity."""
    return logical_not(logical_or(isfinite(x), isnan(x)))


def _sign_bit(x):
    bits, place = BITS[dtype_of(x)]
    return (tirx.reinterpret(bits, x) >> const(place, bits)) != const(0, bits)


signbit = unary("signbit", _sign_bit, "bool", FLOATING)


# ------------------------------------------------------------------------------------------------------------------ choosing
def where(condition: Array, x1: Array | Scalar, x2: Array | Scalar, /) -> Array:
    """x1 where the condition holds, else x2."""
    own = result_type(x1, x2)
    checked("the condition of where", condition.dtype, BOOL)
    return mapped("where", tirx.Select, condition, *(astype(x, own) if isinstance(x, Array) else x for x in (x1, x2)))


def clip(x: Array, /, min: Array | Scalar | None = None, max: Array | Scalar | None = None) -> Array:
    """x within the limits, in its dtype; NaN stays NaN, and a limit that is NaN makes the result NaN.

    Raises OverflowError for a limit that the dtype does not have.
    """
    checked("clip", x.dtype, NUMERIC)
    for limit, beyond, lower in ((min, less, True), (max, greater, False)):
        if limit is None or _without_effect(limit, x.dtype, lower):
            continue
        off = beyond(x, limit)
        if isinstance(limit, Array):
            limit = astype(limit, x.dtype)
            off = logical_or(off, isnan(limit))
        x = where(off, limit, x)
    return x


def _without_effect(limit: Array | Scalar, dtype: str, lower: bool) -> bool:
    """Whether no number of an integer dtype is beyond a limit, which then need not be one of it."""
    if isinstance(limit, Array) or dtype not in INTEGRAL:
        return False
    return limit < dtypes.iinfo(dtype).min if lower else limit > dtypes.iinfo(dtype).max
