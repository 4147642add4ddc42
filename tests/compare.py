"""Comparison of arrays of any namespace, bfloat16 included, on which NumPy's own helpers fail."""

from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file

from xformer import backends

GOLDEN = Path(__file__).parent / "golden"


def golden(name: str) -> dict[str, np.ndarray]:
    """The inputs and outputs that transformers left for a model in tests/golden; masks as booleans."""
    arrays = load_file(GOLDEN / name / "expected.safetensors")
    return {key: array.astype(bool) if key.endswith("mask") else array for key, array in arrays.items()}


def numbers(x: Any) -> np.ndarray:
    """An array of any namespace as fp64, or as int64 when it holds integers: exact for every dtype in use here."""
    x = backends.to_numpy(x) if not isinstance(x, np.ndarray) else x
    return x.astype(np.int64 if x.dtype.kind in "iub" else np.float64)


def worst(x: Any, reference: Any, where: Any = None) -> float:
    """The largest absolute difference, NaN where only one of the two is; `where` (boolean, leading axes) chooses what counts."""
    x, reference = numbers(x), numbers(reference)
    assert x.shape == reference.shape, f"{x.shape} against {reference.shape}"
    if where is not None:
        x, reference = x[where], reference[where]
    with np.errstate(invalid="ignore"):  # of two infinities
        difference = np.abs(x - reference)
    difference = np.where((x == reference) | (np.isnan(x) & np.isnan(reference)), 0.0, difference)
    return float(np.max(difference, initial=0.0))


def relative(x: Any, reference: Any) -> float:
    """The length of the difference over the length of the reference (Frobenius norms)."""
    x, reference = numbers(x), numbers(reference)
    assert x.shape == reference.shape, f"{x.shape} against {reference.shape}"
    return float(np.linalg.norm(x - reference) / np.linalg.norm(reference))


def ulp(x: Any, reference: Any) -> float:
    """The largest difference in units in the last place of fp32, at the magnitude of `reference`."""
    x, reference = numbers(x), numbers(reference)
    return float(np.max(np.abs(x - reference) / np.spacing(np.abs(reference).astype(np.float32)).astype(np.float64), initial=0.0))


def bits(x: Any) -> np.ndarray:
    """The bits of each element, for comparison without tolerance: also of NaN, of -0.0 and of bfloat16."""
    x = np.ascontiguousarray(x if isinstance(x, np.ndarray) else backends.to_numpy(x))
    return x.view(f"u{x.dtype.itemsize}")
