"""exp, erf and tanh as expressions that LLVM turns into vector code, in place of one library call an element.

What stands in an expression more than once is bound to a variable: the expressions are put into each other when kernels are
fused, and would grow with every function by the number of places. Only what TVM itself can put into vectors may be used: a
loop with `nearbyint` or `isnan` in it becomes a scalar one, and nothing tells.
"""

import functools
import math
from collections.abc import Callable
from typing import Any

from tvm import tirx

from xformer.frontends.tvm.dtypes import FLOATING, HALF
from xformer.ops import ERF_LIMIT, ERF_P, ERF_Q

# exp(r) on |r| <= ln(2) / 2 by its Taylor terms up to r^7: the first one left out is below 2^-27 of the sum.
EXP = tuple(1.0 / math.factorial(n) for n in range(8))
LN2_HIGH, LN2_LOW = 0.693359375, -2.12194440e-4  # ln(2) in two parts; the first has trailing zeros, so that n * it is exact
LEAST, MOST = -86.6, 88.72283  # exp gives 0 below (2^-125) and infinity above


def const(value: float, dtype: str = "float32") -> Any:
    """`value` as an expression; a 64-bit unsigned one may be larger than what TVM takes."""
    if dtype == "uint64" and value >= 1 << 63:
        return tirx.const(int(value) - (1 << 64), "int64").astype(dtype)
    return tirx.const(value, dtype)


def libm(name: str) -> Callable[..., Any]:
    """A function of C's mathematical library, called for each element; 16-bit floats go through float32."""

    def call(*values: Any) -> Any:
        dtype = dtype_of(values[0])
        if dtype in HALF:
            return narrowed(call(*(x.astype("float32") for x in values)), dtype)
        return tirx.call_pure_extern(dtype, name + "f" * (dtype == "float32"), *values)

    return call


def in_vectors(name: str, function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """`function` for float32, of C's mathematical library for others."""
    other = libm(name)
    return lambda x: function(x) if dtype_of(x) == "float32" else other(x)


def dtype_of(x: Any) -> str:
    """The dtype of an expression."""
    return str(x.dtype if hasattr(x, "dtype") else x.ty)


def bind(value: Any, body: Callable[[Any], Any]) -> Any:
    """body(value), with the value computed once."""
    variable = tirx.Var("x", dtype_of(value))
    return tirx.Let(variable, value, body(variable))


def polynomial(coefficients: tuple[float, ...], x: Any) -> Any:
    """The sum of coefficients[n] * x^n, by Horner's rule."""
    return functools.reduce(lambda total, c: total * x + const(c), reversed(coefficients[:-1]), const(coefficients[-1]))


def clamp(x: Any, least: Any, most: Any) -> Any:
    """`x` between the limits; NaN stays NaN."""
    return bind(x, lambda x: tirx.Select(x < least, least, tirx.Select(x > most, most, x)))


def isnan(x: Any) -> Any:
    """Whether x is NaN, by its bits; TVM takes x != x for false."""
    dtype = dtype_of(x)
    if dtype not in FLOATING:
        return tirx.const(False, "bool")
    if dtype == "float64":  # of which a model has no rows
        return tirx.isnan(x)
    if dtype in HALF:
        x = x.astype("float32")
    return (tirx.reinterpret("int32", x) & tirx.const(0x7FFFFFFF, "int32")) > tirx.const(0x7F800000, "int32")


def difference(a: Any, b: Any) -> Any:
    """a - b as it rounds: TVM would take (x + c) - c for x. Going through the bits hides `a` from it and costs nothing."""
    bits = {"float32": "int32", "float64": "int64"}.get(dtype_of(b))
    if bits is None or isinstance(a, tirx.FloatImm):
        return a - b
    return tirx.reinterpret(dtype_of(b), tirx.reinterpret(bits, a)) - b


def exp(x: Any) -> Any:
    """e^x within 2 ULP: NaN for NaN, 0 for -inf and for what would be below 2^-125."""
    return bind(x, _exp)


def _exp(x):
    # NaN has no integer exponent: here it becomes a limit, and comes back through `rest`.
    inside = tirx.Select(x > const(LEAST), tirx.Select(x < const(MOST), x, const(MOST)), const(LEAST))
    value = bind(tirx.round(inside * const(1.0 / math.log(2.0))), lambda n: _scaled(n, (x - n * const(LN2_HIGH)) - n * const(LN2_LOW)))
    return tirx.Select(x < const(LEAST), const(0.0), tirx.Select(x > const(MOST), const(math.inf), value))


def _scaled(n, rest):
    """e^rest * 2^(n - 1) * 2, since 2^n itself may be above the largest number."""
    exponent = (n.astype("int32") + tirx.const(126, "int32")) << 23
    return bind(rest, lambda rest: polynomial(EXP, rest)) * tirx.reinterpret("float32", exponent) * const(2.0)


def erf(x: Any) -> Any:
    """erf(x) by the same rational fit as on every other namespace: within 7 ULP and 4e-7, and 1 from where it rounds to that."""

    def inside(x):
        near = bind(x * x, lambda square: x * polynomial(ERF_P, square) / polynomial(ERF_Q, square))
        return tirx.Select(x > const(ERF_LIMIT), const(1.0), tirx.Select(x < const(-ERF_LIMIT), const(-1.0), near))

    return bind(x, inside)


def tanh(x: Any) -> Any:
    """tanh(x) within 2e-7: 2 / (1 + exp(-2 |x|)) - 1 with the sign of x; near 0, where that cancels, x - x^3 / 3 + ..."""
    return bind(x, lambda x: bind(x * x, lambda square: _tanh(x, square)))


def _tanh(x, square):
    far = const(2.0) / (const(1.0) + exp(const(-2.0) * tirx.Select(x < const(0.0), -x, x))) - const(1.0)
    near = x * polynomial((1.0, -1.0 / 3, 2.0 / 15, -17.0 / 315), square)
    return tirx.Select(square < const(0.01), near, tirx.Select(x < const(0.0), -const(1.0), const(1.0)) * far)


def narrowed(x: Any, dtype: str) -> Any:
    """float32 rounded to a 16-bit float."""
    return to_bfloat16(x) if dtype == "bfloat16" else x.astype(dtype)


def to_bfloat16(x: Any) -> Any:
    """fp32 rounded to the nearest bfloat16, half to even. On the bits: a cast and the cast back would be left out as a pair."""
    return bind(x, lambda x: bind(tirx.reinterpret("uint32", x), lambda bits: _rounded(x, bits)))


def _rounded(x, bits):
    lowest = (bits >> tirx.const(16, "uint32")) & tirx.const(1, "uint32")
    rounded = (bits + lowest + tirx.const(0x7FFF, "uint32")) >> tirx.const(16, "uint32")
    quiet = tirx.const(0x7FC0, "uint32")
    return tirx.reinterpret("bfloat16", tirx.Select(isnan(x), quiet, rounded).astype("uint16"))
