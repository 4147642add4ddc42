"""What a place computes in, whatever it was asked for: seen from the result of one contraction."""

import numpy as np

from xformer import backends, ops
from xformer.parity.places import Place
from xformer.precision import Precision, Quantized

SIZE = 256


def effective(place: Place, precision: Precision) -> str:
    """The arithmetic of a contraction of SIZE x SIZE operands in that precision."""
    draw = np.random.default_rng(0)
    operands = [precision.narrow(backends.from_numpy(place.xp, draw.standard_normal((SIZE, SIZE), np.float32))) for _ in "ab"]
    a, b = (operand.values if isinstance(operand, Quantized) else operand for operand in operands)
    dtype = ops.dtype(place.xp, precision.accumulator)
    result = place.transform(lambda a, b: ops.contract(a, b, dtype))(a, b)
    return arithmetic(precision, distance(result, a, b))


def distance(result, a, b) -> float:
    """The relative difference (Frobenius norms) of a @ transpose(b) to the product in fp64, which is exact here."""
    exact = np.matmul(*(backends.to_numpy(x).astype(np.float64) for x in (a, b.T)))
    return float(np.linalg.norm(backends.to_numpy(result) - exact) / np.linalg.norm(exact))


def arithmetic(precision: Precision, difference: float) -> str:
    """What a contraction was computed in, by its relative difference to the exact product of its operands."""
    if precision.accumulator == "int32":
        return f"{precision.name}, exact" if difference == 0 else f"{precision.name}, NOT exact"
    rounding = next(name for name, most in (("fp32", 1e-5), ("tf32", 1e-3), ("bf16", float("inf"))) if difference < most)
    return rounding if precision.name == "fp32" else f"{precision.name}, {rounding} sums"
