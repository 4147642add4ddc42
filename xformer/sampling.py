"""Drawing tokens from logits, on the host, in fp64.

Random numbers come from a counter-based generator (Philox) keyed by seed and row and counted by step: the same seed gives
the same tokens on every namespace, unless two candidates lie within their rounding of each other.
"""

from dataclasses import dataclass
from numbers import Integral, Real

import numpy as np


@dataclass(frozen=True)
class Sampling:
    """How a token is drawn from logits. A temperature of 0 takes the most likely one and needs no seed."""

    temperature: float = 0.0
    top_k: int | None = None
    top_p: float | None = None
    seed: int = 0

    def __post_init__(self):
        if not (_is(self.temperature, Real) and 0 <= self.temperature < float("inf")):
            raise ValueError(f"temperature must be a number >= 0, got {self.temperature!r}")
        if self.top_k is not None and not (_is(self.top_k, Integral) and self.top_k >= 1):
            raise ValueError(f"top_k must be an integer >= 1, got {self.top_k!r}")
        if self.top_p is not None and not (_is(self.top_p, Real) and 0 < self.top_p <= 1):
            raise ValueError(f"top_p must be in (0, 1], got {self.top_p!r}")
        check_seed(self.seed)

    def choose(self, logits: np.ndarray, step: int) -> np.ndarray:
        """One id for each row of `logits` (b, v), as int32. Raises FloatingPointError when a row has NaN."""
        best = np.argmax(logits, axis=-1)  # of a row with NaN the place of the first: one pass finds both
        refuse(np.isnan(np.take_along_axis(logits, best[:, None], axis=-1)[:, 0]), step)
        if self.temperature == 0:
            return best.astype(np.int32)
        return np.array([self._draw(row, index, step) for index, row in enumerate(logits)], np.int32)

    def _draw(self, logits, row, step):
        order = np.argsort(-logits, kind="stable")[: self.top_k]
        below = logits[order].astype(np.float64)
        # Differences first: the quotients of a tiny temperature are infinite, and their difference is no number.
        with np.errstate(over="ignore"):
            weights = np.exp((below - below[0]) / self.temperature)
        total = np.cumsum(weights)
        if self.top_p is not None:  # the fewest tokens that reach top_p together
            total = total[: int(np.searchsorted(total, self.top_p * total[-1])) + 1]
        return order[min(int(np.searchsorted(total, uniform(self.seed, row, step) * total[-1], side="right")), len(total) - 1)]


def refuse(bad: np.ndarray, step: int) -> None:
    """Raise FloatingPointError if the logits of a row are `bad`: no token can be chosen from NaN."""
    if bad.any():
        raise FloatingPointError(f"the logits of row {int(np.argmax(bad))} at step {step} hold NaN")


def check_seed(seed: int) -> None:
    """Raise ValueError unless `seed` is an integer that the generator takes."""
    if not (_is(seed, Integral) and 0 <= seed < 2**64):
        raise ValueError(f"seed must be an integer in [0, 2^64), got {seed!r}")


def _is(value, kind) -> bool:
    """Whether it is a number of that kind, of Python or of NumPy; True and False are none."""
    return isinstance(value, kind) and not isinstance(value, bool)


def uniform(seed: int, row: int, step: int) -> float:
    """A number in [0, 1) that depends on its three arguments alone: Philox 4x64 (Salmon et al. 2011), one counter a step."""
    bits = np.random.Philox(key=np.array([seed, row], np.uint64), counter=step).random_raw()
    return (bits >> 11) * 2.0**-53
