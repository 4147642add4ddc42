"""A model as a library's module gives it: what is timed of it, and what its results are worth."""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.cells import PROBE, error
from benchmarks.measure import Call
from benchmarks.peers.points import Point
from benchmarks.workloads import NEW

Array = Any  # of the library


@dataclass(frozen=True)
class Encoder:
    """`bind` makes a call of ids and mask, both (b, t) int64, that gives the hidden states (b, t, d)."""

    bind: Callable[[np.ndarray, np.ndarray], Callable[[], Array]]

    def call(self, point: Point) -> Call:
        """What is timed: the hidden states, with inputs that are there already."""
        return Call(self.bind(point.ids, point.mask.astype(np.int64)), np.asarray, compiles=True)

    def outputs(self, point: Point, timed: np.ndarray) -> dict[str, np.ndarray]:
        """What is compared with a reference: the states of real tokens that were timed."""
        return {"states": np.asarray(timed, np.float32)[point.mask]}


@dataclass(frozen=True)
class Decoder:
    """`generate(ids, count)` gives the most likely ids (b, count), `logits(ids)` the scores (b, v) of the first of them."""

    generate: Callable[[np.ndarray, int], np.ndarray]
    logits: Callable[[np.ndarray], Array]

    def call(self, point: Point) -> Call:
        """What is timed: the first token, or the NEW - 1 after it."""
        some, one, every = (functools.partial(self.generate, point.ids, count) for count in (1 + PROBE, 1, NEW))
        if point.kind == "prefill":
            return Call(one, np.asarray, compiles=True)
        return Call(every, np.asarray, some, (NEW - 1) / PROBE, one, least=2, compiles=True)

    def outputs(self, point: Point, timed: np.ndarray) -> dict[str, np.ndarray]:
        """What is compared with a reference: the first scores, and the ids that were timed."""
        return {"logits": np.asarray(self.logits(point.ids), np.float32), "ids": np.asarray(timed)}


Loaded = Encoder | Decoder


def judged(outputs: dict[str, np.ndarray], reference: dict[str, np.ndarray]) -> dict[str, float | None]:
    """The relative error of states or logits, and of ids the share before the first that differs."""
    values = next(name for name in ("states", "logits") if name in outputs)
    found: dict[str, float | None] = {"error": error(outputs[values], reference[values]), "agreement": None}
    if "ids" in outputs:
        same = outputs["ids"] == reference["ids"][:, : outputs["ids"].shape[1]]
        found["agreement"] = float(np.mean(np.cumprod(same, 1)))
    return found
