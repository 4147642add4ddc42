"""`python -m benchmarks ragged`: what padding costs. A batch without it and one with it, in turn, in the same compiled program."""

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np

from benchmarks import measure
from benchmarks.cells import Runner
from benchmarks.measure import Call
from benchmarks.workloads import Subject
from xformer import backends

LENGTHS = (128, 96, 80, 64, 48, 32, 24, 16)  # 488 of 1024 tokens are real


@dataclass(frozen=True)
class Ratio:
    """Seconds of the whole batch and of the padded one, medians, and how much of the whole one's time the padded one takes in each turn."""

    whole: float
    padded: float
    share: float


def real(lengths: Sequence[int] = LENGTHS) -> np.ndarray:
    """The mask (b, t) of texts of these lengths, padded to the longest."""
    return np.arange(max(lengths)) < np.array(lengths)[:, None]


def ratios(
    subject: Subject, runner: Runner, precisions: Sequence[str], budget: float, lengths: Sequence[int] = LENGTHS
) -> Iterator[tuple[str, Ratio]]:
    """By precision, measured for at most `budget` seconds each. Raises RuntimeError for a model that cannot be run, saying why."""
    mask = real(lengths)
    ids = np.random.default_rng(7).integers(4, subject.config.vocab_size - 1, mask.shape).astype(np.int32)
    for precision in precisions:
        model = runner.compiled(subject.make(runner.namespace, precision, runner.device))
        masks = np.ones_like(mask), mask
        calls = [Call(functools.partial(model, ids, m), backends.to_numpy, compiles=runner.jit is not None) for m in masks]
        whole, padded = measure.in_turn(calls, budget)
        if whole.skipped or padded.skipped:
            raise RuntimeError(whole.skipped or padded.skipped)
        yield precision, Ratio(median(whole.samples), median(padded.samples), 1 / measure.speedup(whole.samples, padded.samples))
