"""How far two arrays are apart."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from xformer import backends, params


@dataclass(frozen=True)
class Difference:
    """Of a result to a reference: the largest absolute difference, the largest in ULP, and the cosine of the two.

    A ULP is the fp32 unit in the last place of the largest number of a row (along the last axis): a number near 0 that sums
    of larger ones cancelled to has no more digits than they. `equal` is whether all bits are; `integer` whether it is a
    difference of integers, which must be equal.
    """

    absolute: float
    ulp: float
    cosine: float
    equal: bool
    integer: bool


def difference(result: Any, reference: Any) -> Difference:
    """The difference of two trees of equal shapes, all their leaves together. NaN against a number is an infinite one."""
    pairs = [(_host(a), _host(b)) for (_, a), (_, b) in zip(params.items(result), params.items(reference), strict=True)]
    equal = all(np.array_equal(_bits(a), _bits(b)) for a, b in pairs)
    integer = pairs[0][1].dtype.kind in "iu"  # of a quantised operand: its values
    if integer:
        pairs = pairs[:1]
    apart, ulp = (max(values) for values in zip(*(_apart(a, b) for a, b in pairs), strict=True))
    return Difference(apart, ulp, 1.0 if equal else _cosine(pairs), equal, integer)


def _apart(a, b):
    """The largest absolute difference, and the largest in ULP."""
    a, b = a.astype(np.float64), b.astype(np.float64)
    with np.errstate(invalid="ignore"):
        apart = np.where((a == b) | (np.isnan(a) & np.isnan(b)), 0.0, np.abs(a - b))
    apart = np.where(np.isnan(apart), np.inf, apart)
    largest = np.max(np.where(np.isfinite(b), np.abs(b), 0.0), axis=-1, keepdims=True, initial=0.0) if b.ndim else np.abs(b)
    return float(apart.max(initial=0.0)), float((apart / np.spacing(largest.astype(np.float32))).max(initial=0.0))


def _cosine(pairs):
    a, b = (np.concatenate([np.ravel(pair[side]).astype(np.float64) for pair in pairs]) for side in (0, 1))
    norms = np.linalg.norm(a) * np.linalg.norm(b)
    return float(a @ b / norms) if norms else 0.0


def _host(array):
    return array if isinstance(array, np.ndarray) else backends.to_numpy(array)


def _bits(array):
    array = np.ascontiguousarray(array)
    return array.view(f"u{array.dtype.itemsize}")
