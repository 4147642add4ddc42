"""Timing callables against each other on a noisy machine: warmed up, in turn, medians."""

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

LEAST, MOST = 3, 15  # samples of a cell


@dataclass
class Timing:
    """Seconds of one callable: its first call, and the samples that followed. `skipped` says why there are none."""

    first: float = 0.0
    samples: list[float] = field(default_factory=list)
    skipped: str = ""

    @property
    def median(self) -> float:
        return statistics.median(self.samples)

    @property
    def compile(self) -> float:
        """What the first call took beyond a usual one."""
        return max(self.first - self.median, 0.0)


def in_turn(
    calls: Sequence[Callable[[], object]],
    budget: float,
    clock: Callable[[], float] = time.perf_counter,
    tick: Callable[[], object] = lambda: None,
) -> list[Timing]:
    """Time `calls`, which must return only when their work is done, A B C A B C .., each for about `budget` seconds at most.

    The first call of each is kept apart (it compiles), the second says how long one takes: a call that alone exceeds the
    budget is skipped with that figure. A call that raises is skipped with its error; the others go on. `tick` is called
    after each call.
    """
    timings = [Timing() for _ in calls]
    rounds = []
    for call, timing in zip(calls, timings, strict=True):
        timing.first = _timed(call, timing, clock, tick)
        if not timing.skipped and timing.first > 3 * budget:
            timing.skipped = f"skipped: the first call took {timing.first:.0f} s, budget {budget:.0f} s"
        seconds = 0.0 if timing.skipped else _timed(call, timing, clock, tick)
        if not timing.skipped and seconds > budget:
            timing.skipped = f"skipped: predicted {LEAST * seconds:.0f} s, budget {budget:.0f} s"
        rounds.append(0 if timing.skipped else min(MOST, max(LEAST, int(budget / max(seconds, 1e-9)))))
    for turn in range(max(rounds, default=0)):
        for call, timing, wanted in zip(calls, timings, rounds, strict=True):
            if turn < wanted and not timing.skipped:
                timing.samples.append(_timed(call, timing, clock, tick))
    return timings


def _timed(call, timing, clock, tick) -> float:
    start = clock()
    try:
        call()
    except Exception as error:  # one cell's failure is a row, not the end of the table
        timing.skipped = f"failed: {type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
    seconds = clock() - start
    tick()
    return seconds
