"""CuPy: erf from its SciPy half, bfloat16 from ml_dtypes, writes in place, devices by number."""

import cupy
import ml_dtypes
import numpy as np
from cupyx.scipy.special import erf

__all__ = ["bfloat16", "devices", "erf", "from_numpy", "to_numpy", "write"]

bfloat16 = np.dtype(ml_dtypes.bfloat16)


def write(cache, new, position):
    start = int(position)
    cache[..., start : start + new.shape[-2], :] = new
    return cache


def from_numpy(array, device):
    with cupy.cuda.Device(device):
        return cupy.asarray(array)


def to_numpy(x):
    return cupy.asnumpy(x)


def devices():
    return {f"cuda:{index}": index for index in range(cupy.cuda.runtime.getDeviceCount())}
