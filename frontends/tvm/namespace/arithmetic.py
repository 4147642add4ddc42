"""Arithmetic and functions of each element."""

import operator
from collections.abc import Callable
from typing import Any

from tvm import tirx

from xformer.frontends.tvm import dtypes, elementary
from xformer.frontends.tvm.array import Array
from xformer.frontends.tvm.dtypes import FLOATING, HALF, KINDS, SIGNED
from xformer.frontends.tvm.elementary import bind, const, dtype_of, isnan, libm
from xformer.frontends.tvm.elements import Scalar, binary, checked, mapped, result_type, unary
from xformer.frontends.tvm.namespace.logic import equal, unlike, where

INTEGRAL, NUMERIC = KINDS["integral"], KINDS["numeric"]


# ---------------------------------------------------------------------------------------------------------------- arithmetic
add = binary("add", operator.add, kinds=NUMERIC)
subtract = binary("subtract", elementary.difference, kinds=NUMERIC)
multiply = binary("multiply", operator.mul, kinds=NUMERIC)
divide = binary("divide", lambda a, b: tirx.div(a, b), kinds=FLOATING)
negative = unary("negative", operator.neg, kinds=NUMERIC)
square = unary("square", lambda x: bind(x, lambda x: x * x), kinds=NUMERIC)
reciprocal = unary("reciprocal", lambda x: tirx.div(const(1, dtype_of(x)), x), kinds=FLOATING)


def positive(x: Array, /) -> Array:
    """x itself."""
    checked("positive", x.dtype, NUMERIC)
    return x


def _floating(body: Callable) -> Callable:
    """body(a, b) of floats; 16-bit ones in float32."""

    def call(a: Any, b: Any) -> Any:
        if dtype_of(a) in HALF:
            return elementary.narrowed(body(a.astype("float32"), b.astype("float32")), dtype_of(a))
        return body(a, b)

    return call


def _floor_divide(a, b):
    if dtype_of(a) in INTEGRAL:
        return tirx.floordiv(a, b)
    return _floating(_floor_quotient)(a, b)


def _floor_quotient(a, b):
    dtype = dtype_of(a)
    zero, one, remainder = const(0, dtype), const(1, dtype), libm("fmod")

    def of(rest):
        # (a - rest) / b is whole but for its rounding; a remainder of the other sign lies one further down.
        whole = tirx.div(elementary.difference(a, rest), b) - tirx.Select(tirx.all(rest != zero, unlike(rest < zero, b < zero)), one, zero)
        near = tirx.floor(whole)
        near = near + tirx.Select(whole - near > const(0.5, dtype), one, zero)
        signed = tirx.Select(near == zero, libm("copysign")(zero, tirx.div(a, b)), near)
        finite = tirx.all(b != zero, tirx.abs(a) != tirx.infinity(dtype), tirx.abs(b) != tirx.infinity(dtype))
        return tirx.Select(finite, signed, tirx.floor(tirx.div(a, b)))

    return bind(remainder(a, b), of)


def _remainder(a, b):
    if dtype_of(a) in INTEGRAL:
        return tirx.floormod(a, b)
    return _floating(_float_remainder)(a, b)


def _float_remainder(a, b):
    zero = const(0, dtype_of(a))

    def of(rest):
        other = tirx.all(rest != zero, unlike(rest < zero, b < zero))
        return tirx.Select(rest == zero, libm("copysign")(zero, b), tirx.Select(other, rest + b, rest))

    return bind(libm("fmod")(a, b), of)


def _power(a, b):
    if dtype_of(a) not in INTEGRAL:
        return libm("pow")(a, b)
    return bind(b, lambda b: _by_squares(const(1, dtype_of(a)), a, b, 0))


def _by_squares(result, base, exponent, bit):
    """result * base^(exponent >> bit): a base other than 0, 1 and -1 has left every dtype by its 64th power."""
    if bit == 6:
        return result
    dtype = dtype_of(exponent)
    chosen = ((exponent >> const(bit, dtype)) & const(1, dtype)) != const(0, dtype)

    def step(result, base):
        return _by_squares(tirx.Select(chosen, result * base, result), base * base, exponent, bit + 1)

    return bind(result, lambda result: bind(base, lambda base: step(result, base)))


floor_divide = binary("floor_divide", _floor_divide, kinds=NUMERIC)
remainder = binary("remainder", _remainder, kinds=NUMERIC)
pow = binary("pow", _power, kinds=NUMERIC)
atan2 = binary("atan2", libm("atan2"), kinds=FLOATING)
copysign = binary("copysign", libm("copysign"), kinds=FLOATING)
hypot = binary("hypot", libm("hypot"), kinds=FLOATING)
nextafter = binary("nextafter", libm("nextafter"), kinds=("float32", "float64"))  # those that C has


def _larger(a, b):
    return bind(a, lambda a: bind(b, lambda b: tirx.Select(tirx.any(a > b, isnan(a)), a, b)))


def _smaller(a, b):
    return bind(a, lambda a: bind(b, lambda b: tirx.Select(tirx.any(a < b, isnan(a)), a, b)))


maximum = binary("maximum", _larger, kinds=NUMERIC)
minimum = binary("minimum", _smaller, kinds=NUMERIC)


def logaddexp(x1: Array | Scalar, x2: Array | Scalar, /) -> Array:
    """log(exp(x1) + exp(x2)) without the sum's overflow."""
    checked("logaddexp", result_type(x1, x2), FLOATING)
    most, least = maximum(x1, x2), minimum(x1, x2)
    apart = where(equal(most, least), 0.0, subtract(least, most))  # two infinities of one sign are not apart
    return add(most, log1p(exp(apart)))


# ----------------------------------------------------------------------------------------------------- functions and rounding
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
        return elementary.narrowed(function(x.astype("float32")), dtype_of(x)) if dtype_of(x) in HALF else function(x)

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
    dtype = dtype_of(x)
    return tirx.Select(x < const(0, dtype), const(0, dtype) - x, x) if dtype in SIGNED else x if dtype in INTEGRAL else tirx.abs(x)


def _sign(x):
    zero, one = const(0, dtype_of(x)), const(1, dtype_of(x))
    below = const(-1, dtype_of(x)) if dtype_of(x) not in dtypes.UNSIGNED else zero
    return tirx.Select(x > zero, one, tirx.Select(x < zero, below, tirx.Select(isnan(x), x, zero)))


abs = unary("abs", _magnitude, kinds=NUMERIC)
sign = unary("sign", _sign, kinds=NUMERIC)


# ------------------------------------------------------------------------------------- of complex numbers, which there are not
def real(x: Array, /) -> Array:
    """x itself: there are no complex numbers."""
    return x


def imag(x: Array, /) -> Array:
    """Zeros: there are no complex numbers."""
    return mapped("imag", lambda element: const(0, x.dtype), x)


def conj(x: Array, /) -> Array:
    """x itself: there are no complex numbers."""
    return x
