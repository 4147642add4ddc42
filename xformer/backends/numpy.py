"""NumPy: works in place where that saves passes over memory, bfloat16 from ml_dtypes."""

import ml_dtypes
import numpy as np

from xformer.ops import ERF_LIMIT, ERF_P, ERF_Q

bfloat16 = np.dtype(ml_dtypes.bfloat16)
BLOCK = 1 << 14  # elements: three fp32 buffers of this size stay inside a 256 KiB L2 cache


def write(cache, new, position):
    start = int(position)
    cache[..., start : start + new.shape[-2], :] = new
    return cache


def erf(x):
    """As the portable definition, block by block in place: one pass over memory instead of twenty-five."""
    result = np.empty(x.shape, x.dtype)
    source, target = np.ravel(x), result.reshape(-1)
    for start in range(0, source.size, BLOCK):
        piece = np.clip(source[start : start + BLOCK], -ERF_LIMIT, ERF_LIMIT)
        square = piece * piece
        piece *= _horner(ERF_P, square)
        piece /= _horner(ERF_Q, square)
        np.clip(piece, -1.0, 1.0, out=target[start : start + BLOCK])
    return result


def _horner(coefficients, x):
    total = np.full_like(x, coefficients[-1])
    for coefficient in coefficients[-2::-1]:
        total *= x
        total += coefficient
    return total


def from_numpy(array, device):
    return array  # no copy: weights stay in the mapped file
