"""The host's side of generation: sampling, stopping and the loop over any (prefill, decode) pair.

Random numbers come from a counter-based generator (Philox) keyed by seed and row and counted by step, and the choice is
made on the host in fp64: the same seed gives the same tokens on every namespace, unless two candidates lie within their
rounding of each other.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Sampling:
    """How a token is drawn from logits. A temperature of 0 takes the most likely one and needs no seed."""

    temperature: float = 0.0
    top_k: int | None = None
    top_p: float | None = None
    seed: int = 0

    def __post_init__(self):
        if not (np.isfinite(self.temperature) and self.temperature >= 0):
            raise ValueError(f"temperature must be a number >= 0, got {self.temperature!r}")
        if self.top_k is not None and (isinstance(self.top_k, bool) or not isinstance(self.top_k, int) or self.top_k < 1):
            raise ValueError(f"top_k must be an integer >= 1, got {self.top_k!r}")
        if self.top_p is not None and not 0 < self.top_p <= 1:
            raise ValueError(f"top_p must be in (0, 1], got {self.top_p!r}")
        if isinstance(self.seed, bool) or not isinstance(self.seed, int) or not 0 <= self.seed < 2**64:
            raise ValueError(f"seed must be an integer in [0, 2^64), got {self.seed!r}")

    def choose(self, logits: np.ndarray, step: int) -> np.ndarray:
        """One id for each row of `logits` (b, v), as int32. Raises FloatingPointError when a row has NaN."""
        bad = np.isnan(logits).any(axis=-1)
        if bad.any():
            raise FloatingPointError(f"the logits of row {int(np.argmax(bad))} at step {step} hold NaN")
        if self.temperature == 0:
            return np.argmax(logits, axis=-1).astype(np.int32)
        return np.array([self._draw(row, index, step) for index, row in enumerate(logits)], np.int32)

    def _draw(self, logits, row, step):
        order = np.argsort(-logits, kind="stable")[: self.top_k]
        scores = logits[order].astype(np.float64) / self.temperature
        weights = np.exp(scores - scores[0])
        total = np.cumsum(weights)
        if self.top_p is not None:  # the fewest tokens that reach top_p together
            total = total[: int(np.searchsorted(total, self.top_p * total[-1])) + 1]
        return order[min(int(np.searchsorted(total, uniform(self.seed, row, step) * total[-1], side="right")), len(total) - 1)]


def uniform(seed: int, row: int, step: int) -> float:
    """A number in [0, 1) that depends on its three arguments alone: Philox 4x64 (Salmon et al. 2011), one counter a step."""
    bits = np.random.Philox(key=[seed, row], counter=[step, 0, 0, 0]).random_raw()
    return (bits >> 11) * 2.0**-53


def loop(
    prefill: Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, Any]],
    decode: Callable[[np.ndarray, Any], tuple[np.ndarray, Any]],
    tokens: np.ndarray,
    mask: np.ndarray,
    steps: int,
    sampling: Sampling,
    stop: Callable[[int, int], bool],
) -> Iterator[list[int | None]]:
    """Yield, for each step, every row's next id, or None once the row has stopped. A row stops where stop(row, id) is true.

    `prefill(tokens, mask)` and `decode(ids, cache)` return the next logits (b, v) and a cache for the next call.
    """
    logits, cache = prefill(tokens, mask)
    running = [True] * len(tokens)
    for step in range(steps):
        chosen = sampling.choose(logits, step)
        yield [int(token) if alive else None for token, alive in zip(chosen, running, strict=True)]
        running = [alive and not stop(row, int(chosen[row])) for row, alive in enumerate(running)]
        if not any(running) or step == steps - 1:
            return
        logits, cache = decode(chosen, cache)


def check_stop(stop: Sequence[int | str] | int | str | None, eos_token: int | None) -> tuple[frozenset[int], tuple[str, ...]]:
    """The ids and the texts that end a row; None means the model's end-of-text token, () means nothing."""
    if stop is None:
        return frozenset(() if eos_token is None else (eos_token,)), ()
    entries = (stop,) if isinstance(stop, int | str) else tuple(stop)
    for entry in entries:
        if isinstance(entry, bool) or not isinstance(entry, int | str) or entry == "":
            raise ValueError(f"stop takes token ids and texts, got {entry!r}")
    return frozenset(e for e in entries if isinstance(e, int)), tuple(e for e in entries if isinstance(e, str))


class Transcript:
    """The text of one row as its ids arrive, cut before the first of the `stops`."""

    def __init__(self, decode: Callable[[Sequence[int]], str], stops: Sequence[str] = ()):
        self.decode, self.stops = decode, stops
        self.ids: list[int] = []
        self.sent = 0
        self.stopped = False

    def push(self, token: int) -> str:
        """The text that `token` completes. Held back: a character in pieces, and what may be the start of a stop."""
        self.ids.append(token)
        text = self.decode(self.ids)
        found = [place for place in (text.find(stop) for stop in self.stops) if place >= 0]
        self.stopped = bool(found)
        end = min(found) if found else len(text.rstrip("\ufffd"))
        if not found:
            end = min([end, *(len(text) - size for stop in self.stops for size in range(1, len(stop)) if text.endswith(stop[:size]))])
        return self._send(text, end)

    def flush(self) -> str:
        """What was held back, once no more ids will come."""
        text = self.decode(self.ids)
        return "" if self.stopped else self._send(text, len(text))

    def _send(self, text, end):
        piece, self.sent = text[self.sent : end], max(self.sent, end)
        return piece
