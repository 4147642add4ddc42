"""exp, erf and tanh as expressions that LLVM turns into vector code, in place of one library call an element.

An argument stands in its expression many times; the compiler computes what is common once.
"""

import functools
import math
from typing import Any

from tvm import tirx

from xformer.ops import ERF_LIMIT, ERF_P, ERF_Q

# exp(r) on |r| <= ln(2) / 2 by its Taylor terms up to r^7: the first one left out is below 2^-27 of the sum.
EXP = tuple(1.0 / math.factorial(n) for n in range(8))
LN2_HIGH, LN2_LOW = 0.693359375, -2.12194440e-4  # ln(2) in two parts; the first has trailing zeros, so that n * it is exact
LEAST, MOST = -86.6, 88.72283  # exp gives 0 below (2^-125) and infinity above


def const(value: float, dtype: str = "float32") -> Any:
    """`value` as an expression."""
    return tirx.const(value, dtype)


def polynomial(coefficients: tuple[float, ...], x: Any) -> Any:
    """The sum of coefficients[n] * x^n, by Horner's rule."""
    return functools.reduce(lambda total, c: total * x + const(c), reversed(coefficients[:-1]), const(coefficients[-1]))


def clamp(x: Any, least: Any, most: Any) -> Any:
    """`x` between the limits; NaN stays NaN."""
    return tirx.Select(x < least, least, tirx.Select(x > most, most, x))


def exp(x: Any) -> Any:
    """e^x within 2 ULP: NaN for NaN, 0 for -inf and for what would be below 2^-125."""
    # NaN has no integer exponent: here it becomes a limit, and comes back through `rest`.
    inside = tirx.Select(x > const(LEAST), tirx.Select(x < const(MOST), x, const(MOST)), const(LEAST))
    n = tirx.nearbyint(inside * const(1.0 / math.log(2.0)))
    rest = (x - n * const(LN2_HIGH)) - n * const(LN2_LOW)
    # e^x = e^rest * 2^(n - 1) * 2, since 2^n itself may be above the largest number.
    exponent = (n.astype("int32") + tirx.const(126, "int32")) << 23
    value = polynomial(EXP, rest) * tirx.reinterpret("float32", exponent) * const(2.0)
    return tirx.Select(x < const(LEAST), const(0.0), tirx.Select(x > const(MOST), const(math.inf), value))


def erf(x: Any) -> Any:
    """erf(x) by the same rational fit as on every other namespace: within 7 ULP and 4e-7."""
    inside = clamp(x, const(-ERF_LIMIT), const(ERF_LIMIT))
    square = inside * inside
    # P / Q stays within 4e-7 of 1 at the limits; nothing relies on |erf| <= 1.
    return inside * polynomial(ERF_P, square) / polynomial(ERF_Q, square)


def tanh(x: Any) -> Any:
    """tanh(x) within 2e-7: 2 / (1 + exp(-2 |x|)) - 1 with the sign of x; near 0, where that cancels, x - x^3 / 3 + ..."""
    far = const(2.0) / (const(1.0) + exp(const(-2.0) * tirx.Select(x < const(0.0), -x, x))) - const(1.0)
    near = x * polynomial((1.0, -1.0 / 3, 2.0 / 15, -17.0 / 315), x * x)
    return tirx.Select(x * x < const(0.01), near, tirx.Select(x < const(0.0), -const(1.0), const(1.0)) * far)


def to_bfloat16(x: Any) -> Any:
    """fp32 rounded to the nearest bfloat16, half to even. On the bits: a cast and the cast back would be left out as a pair."""
    bits = tirx.reinterpret("uint32", x)
    lowest = (bits >> tirx.const(16, "uint32")) & tirx.const(1, "uint32")
    rounded = (bits + lowest + tirx.const(0x7FFF, "uint32")) >> tirx.const(16, "uint32")
    quiet = tirx.const(0x7FC0, "uint32")
    return tirx.reinterpret("bfloat16", tirx.Select(tirx.isnan(x), quiet, rounded).astype("uint16"))
