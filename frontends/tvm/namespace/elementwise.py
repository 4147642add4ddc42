"""Functions of each element."""

import functools
import operator
from collections.abc import Callable
from typing import Any

from tvm import tirx

from xformer.frontends.tvm import dtypes, elementary
from xformer.frontends.tvm.array import Array
from xformer.frontends.tvm.dtypes import BOOL, FLOATING, HALF, KINDS, SIGNED
from xformer.frontends.tvm.elementary import bind, const, libm
from xformer.frontends.tvm.elements import Scalar, astype, binary, checked, mapped, result_type, unary

INTEGRAL, NUMERIC = KINDS["integral"], KINDS["numeric"]
BITS = {"float32": ("uint32", 31), "float64": ("uint64", 63), **dict.fromkeys(HALF, ("uint16", 15))}


def _dtype(x: Any) -> str:
    return str(x.dtype if hasattr(x, "dtype") else x.ty)


def _unlike(a, b):
    """Whether two truth values differ; LLVM compares integers."""
    return a.astype("int8") != b.astype("int8")


# ---------------------------------------------------------------------------------------------------------------- arithmetic
add = binary("add", operator.add, kinds=NUMERIC)
subtract = binary("subtract", elementary.difference, kinds=NUMERIC)
multiply = binary("multiply", operator.mul, kinds=NUMERIC)
divide = binary("divide", lambda a, b: tirx.div(a, b), kinds=FLOATING)
negative = unary("negative", operator.neg, kinds=NUMERIC)
square = unary("square", lambda x: x * x, kinds=NUMERIC)
reciprocal = unary("reciprocal", lambda x: tirx.div(const(1, _dtype(x)), x), kinds=FLOATING)


def positive(x: Array, /) -> Array:
    """x itself."""
    checked("positive", x.dtype, NUMERIC)
    return x


def _floating(body: Callable) -> Callable:
    """body(a, b) of floats; 16-bit ones in float32."""

    def call(a: Any, b: Any) -> Any:
        if _dtype(a) in HALF:
            return elementary.narrowed(body(a.astype("float32"), b.astype("float32")), _dtype(a))
        return body(a, b)

    return call


def _floor_divide(a, b):
    if _dtype(a) in INTEGRAL:
        return tirx.floordiv(a, b)
    return _floating(_floor_quotient)(a, b)


def _floor_quotient(a, b):
    dtype = _dtype(a)
    zero, one, remainder = const(0, dtype), const(1, dtype), libm("fmod")

    def of(rest):
        # (a - rest) / b is whole but for its rounding; a remainder of the other sign lies one further down.
        whole = tirx.div(elementary.difference(a, rest), b) - tirx.Select(tirx.all(rest != zero, _unlike(rest < zero, b < zero)), one, zero)
        near = tirx.floor(whole)
        near = near + tirx.Select(whole - near > const(0.5, dtype), one, zero)
        signed = tirx.Select(near == zero, libm("copysign")(zero, tirx.div(a, b)), near)
        finite = tirx.all(b != zero, libm("fabs")(a) != tirx.infinity(dtype), libm("fabs")(b) != tirx.infinity(dtype))
        return tirx.Select(finite, signed, tirx.floor(tirx.div(a, b)))

    return bind(remainder(a, b), of)


def _remainder(a, b):
    if _dtype(a) in INTEGRAL:
        return tirx.floormod(a, b)
    return _floating(_float_remainder)(a, b)


def _float_remainder(a, b):
    zero = const(0, _dtype(a))

    def of(rest):
        other = tirx.all(rest != zero, _unlike(rest < zero, b < zero))
        return tirx.Select(rest == zero, libm("copysign")(zero, b), tirx.Select(other, rest + b, rest))

    return bind(libm("fmod")(a, b), of)


def _power(a, b):
    if _dtype(a) not in INTEGRAL:
        return libm("pow")(a, b)
    one = const(1, _dtype(a))
    result, base = one, a
    for bit in range(6):  # a base other than 0, 1 and -1 has left every dtype by its 64th power
        chosen = ((b >> const(bit, _dtype(a))) & one) != const(0, _dtype(a))
        result, base = tirx.Select(chosen, result * base, result), base * base
    return result


floor_divide = binary("floor_divide", _floor_divide, kinds=NUMERIC)
remainder = binary("remainder", _remainder, kinds=NUMERIC)
pow = binary("pow", _power, kinds=NUMERIC)
atan2 = binary("atan2", libm("atan2"), kinds=FLOATING)
copysign = binary("copysign", libm("copysign"), kinds=FLOATING)
hypot = binary("hypot", libm("hypot"), kinds=FLOATING)
nextafter = binary("nextafter", libm("nextafter"), kinds=FLOATING)


def _larger(a, b):
    return bind(a, lambda a: bind(b, lambda b: tirx.Select(tirx.any(a > b, _nan(a)), a, b)))


def _smaller(a, b):
    return bind(a, lambda a: bind(b, lambda b: tirx.Select(tirx.any(a < b, _nan(a)), a, b)))


def _nan(x):
    return elementary.isnan(x) if _dtype(x) in FLOATING else tirx.const(False, "bool")


maximum = binary("maximum", _larger, kinds=NUMERIC)
minimum = binary("minimum", _smaller, kinds=NUMERIC)


def logaddexp(x1: Array | Scalar, x2: Array | Scalar, /) -> Array:
    """log(exp(x1) + exp(x2)) without the sum's overflow."""
    checked("logaddexp", result_type(x1, x2), FLOATING)
    most, least = maximum(x1, x2), minimum(x1, x2)
    apart = where(equal(most, least), 0.0, subtract(least, most))  # two infinities of one sign are not apart
    return add(most, log1p(exp(apart)))


# ---------------------------------------------------------------------------------------------- comparisons, logic and bits
_compare = functools.partial(binary, dtype="bool")
less = _compare("less", operator.lt, kinds=NUMERIC)
less_equal = _compare("less_equal", operator.le, kinds=NUMERIC)
greater = _compare("greater", operator.gt, kinds=NUMERIC)
greater_equal = _compare("greater_equal", operator.ge, kinds=NUMERIC)
_equal = _compare("equal", lambda a, b: tirx.Not(_unlike(a, b)) if _dtype(a) == "bool" else tirx.EQ(a, b))
logical_and = binary("logical_and", lambda a, b: tirx.all(a, b), kinds=BOOL)
logical_or = binary("logical_or", lambda a, b: tirx.any(a, b), kinds=BOOL)
logical_xor = binary("logical_xor", _unlike, kinds=BOOL)
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
        return of_booleans(a, b) if _dtype(a) == "bool" else of_integers(a, b)

    return binary(name, body, kinds=BOOL + INTEGRAL)


bitwise_and = _bitwise("bitwise_and", operator.and_, lambda a, b: tirx.all(a, b))
bitwise_or = _bitwise("bitwise_or", operator.or_, lambda a, b: tirx.any(a, b))
bitwise_xor = _bitwise("bitwise_xor", operator.xor, _unlike)
bitwise_invert = unary("bitwise_invert", lambda x: tirx.Not(x) if _dtype(x) == "bool" else ~x, kinds=BOOL + INTEGRAL)


def _shifted(shift: Callable, beyond: Callable) -> Callable:
    """A shift by as many bits as there are or more: undefined in the hardware, what is left over here."""

    def body(a, b):
        dtype = _dtype(a)
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
isnan = unary("isnan", _nan, "bool", NUMERIC)


def _finite(x):
    return libm("fabs")(x) < tirx.infinity(_dtype(x)) if _dtype(x) in ("float32", "float64") else _finite(x.astype("float32"))


isfinite = unary("isfinite", lambda x: _finite(x) if _dtype(x) in FLOATING else tirx.const(True, "bool"), "bool", NUMERIC)


def isinf(x: Array, /) -> Array:
    """Whether each element is an infinity."""
    return logical_not(logical_or(isfinite(x), isnan(x)))


def real(x: Array, /) -> Array:
    """x itself: there are no complex numbers."""
    return x


def imag(x: Array, /) -> Array:
    """Zeros: there are no complex numbers."""
    return x * 0


def conj(x: Array, /) -> Array:
    """x itself: there are no complex numbers."""
    return x


def _sign_bit(x):
    bits, place = BITS[_dtype(x)]
    return (tirx.reinterpret(bits, x) >> const(place, bits)) != const(0, bits)


signbit = unary("signbit", _sign_bit, "bool", FLOATING)
sqrt = unary("sqrt", elementary.in_vectors("sqrt", lambda x: tirx.sqrt(x)), kinds=FLOATING)
exp = unary("exp", elementary.in_vectors("exp", elementary.exp), kinds=FLOATING)
erf = unary("erf", elementary.in_vectors("erf", elementary.erf), kinds=FLOATING)
tanh = unary("tanh", elementary.in_vectors("tanh", elementary.tanh), kinds=FLOATING)
expm1, log, log1p, log2, log10 = (unary(name, libm(name), kinds=FLOATING) for name in ("expm1", "log", "log1p", "log2", "log10"))
sin, cos, tan = (unary(name, libm(name), kinds=FLOATING) for name in ("sin", "cos", "tan"))
asin, acos, atan = (unary(name, libm(name), kinds=FLOATING) for name in ("asin", "acos", "atan"))
sinh, cosh = (unary(name, libm(name), kinds=FLOATING) for name in ("sinh", "cosh"))
asinh, acosh, atanh = (unary(name, libm(name), kinds=FLOATING) for name in ("asinh", "acosh", "atanh"))


def _whole(name: str, function: Callable) -> Callable[[Array], Array]:
    """A rounding, which leaves integers as they are."""

    def body(x):
        return elementary.narrowed(function(x.astype("float32")), _dtype(x)) if _dtype(x) in HALF else function(x)

    of_floats = unary(name, body, kinds=NUMERIC)

    def apply(x: Array, /) -> Array:
        return x if x.dtype in INTEGRAL else of_floats(x)

    apply.__name__, apply.__doc__ = name, f"{name} of each element, in the array's dtype."
    return apply


floor = _whole("floor", lambda x: tirx.floor(x))
ceil = _whole("ceil", lambda x: tirx.ceil(x))
trunc = _whole("trunc", lambda x: tirx.trunc(x))
round = _whole("round", lambda x: tirx.round(x))  # half to even: nearbyint in C


def _magnitude(x):
    dtype = _dtype(x)
    return tirx.Select(x < const(0, dtype), const(0, dtype) - x, x) if dtype in SIGNED else x if dtype in INTEGRAL else tirx.abs(x)


def _sign(x):
    zero, one = const(0, _dtype(x)), const(1, _dtype(x))
    below = const(-1, _dtype(x)) if _dtype(x) not in dtypes.UNSIGNED else zero
    return tirx.Select(x > zero, one, tirx.Select(x < zero, below, tirx.Select(_nan(x), x, zero)))


abs = unary("abs", _magnitude, kinds=NUMERIC)
sign = unary("sign", _sign, kinds=NUMERIC)


# ------------------------------------------------------------------------------------------------------------------ choosing
def where(condition: Array, x1: Array | Scalar, x2: Array | Scalar, /) -> Array:
    """x1 where the condition holds, else x2."""
    own = result_type(x1, x2)
    checked("the condition of where", condition.dtype, BOOL)
    return mapped("where", tirx.Select, condition, *(astype(x, own) if isinstance(x, Array) else _constant(x, own) for x in (x1, x2)))


def _constant(value: Scalar, dtype: str) -> Scalar:
    return float(value) if dtype in FLOATING else value


def clip(x: Array, /, min: Array | Scalar | None = None, max: Array | Scalar | None = None) -> Array:
    """x within the limits; NaN stays NaN."""
    checked("clip", x.dtype, NUMERIC)
    for limit, beyond in ((min, less), (max, greater)):
        if limit is None:
            continue
        if isinstance(limit, Array) and limit.dtype != x.dtype:
            dtypes.promoted(x.dtype, limit.dtype)
        limit = astype(limit, x.dtype) if isinstance(limit, Array) else _limit(limit, x.dtype)
        if limit is None:
            continue
        # A limit that is NaN makes the result NaN.
        off = beyond(x, limit) if not isinstance(limit, Array) or x.dtype not in FLOATING else logical_or(beyond(x, limit), isnan(limit))
        x = where(off, limit, x)
    return x


def _limit(value: Scalar, dtype: str) -> Scalar | None:
    """A limit in an array's dtype; None where no number of it is beyond."""
    if dtype in INTEGRAL and not (dtypes.iinfo(dtype).min <= value <= dtypes.iinfo(dtype).max):
        return None
    return value
