"""Timing callables against each other on a noisy machine: warmed up, in turn, medians."""

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

MOST = 15  # samples of a call
SETTLED = 0.3  # seconds; a shorter call runs once untimed before each sample: threads that slept share a core at first
SHARE = 0.2  # of the budget that samples may take, unless `least` of them take more


@dataclass(frozen=True)
class Call:
    """What is timed: `wait(run())`, which is over only when the device has done the work.

    `probe` is a smaller run of the same program and `factor` how much longer `run` takes, without what is `apart`: a run
    whose time is taken off each sample. `floor` is the time in seconds that `run` takes at the least, by arithmetic, `least`
    how many samples are wanted. A first run may take any time where it `compiles`.
    """

    run: Callable[[], Any]
    wait: Callable[[Any], Any] = lambda result: result
    probe: Callable[[], Any] | None = None
    factor: float = 1.0
    apart: Callable[[], Any] | None = None
    floor: float = 0.0
    least: int = 3
    compiles: bool = False

    def time(self, part: str, clock: Callable[[], float]) -> tuple[float, Any]:
        """Seconds of one of "run", "probe" and "apart", and what it gave."""
        start = clock()
        output = self.wait(getattr(self, part)())
        return clock() - start, output


@dataclass
class Timing:
    """Seconds of one call: every sample, and what the first run took beyond the second. `skipped` says why there are none.

    `output` is that of the last whole run, the second warm-up run included; where it `settles`, an untimed run goes before
    each sample.
    """

    compile: float | None = None
    samples: list[float] = field(default_factory=list)
    output: Any = None
    skipped: str = ""
    settles: bool = False


def in_turn(
    calls: Sequence[Call],
    budget: float,
    clock: Callable[[], float] = time.perf_counter,
    tick: Callable[[float], Any] = lambda calls: None,
) -> list[Timing]:
    """Time the calls A B C A B C .., each for `budget` seconds at most.

    A call that would take longer is skipped with the predicted time, one that raises with its error; the others go on.
    `tick` is told after each run what share of a call is done.
    """
    timings = [Timing() for _ in calls]
    rounds = []
    for call, timing in zip(calls, timings, strict=True):
        rounds.append(_guarded(timing, _prepare, call, timing, budget, clock) or 0)
        tick(0.5 if rounds[-1] else 1.0)
    for turn in range(max(rounds, default=0)):
        for call, timing, wanted in zip(calls, timings, rounds, strict=True):
            if turn < wanted:
                if not timing.skipped:
                    _guarded(timing, _sample, call, timing, clock)
                tick(0.5 / wanted)
    return timings


def _prepare(call: Call, timing: Timing, budget: float, clock) -> int:
    """Warm up; how many samples are to be taken."""
    seconds = call.floor
    if call.least * seconds <= budget:
        seconds = _warm(call, timing, budget, clock)
    if call.least * seconds > budget:
        timing.skipped = f"skipped: predicted {call.least * seconds:.0f} s > budget {budget:.0f} s"
        return 0
    timing.settles = seconds < SETTLED
    return min(MOST, max(call.least, int(SHARE * budget / max(seconds, 1e-9))))


def _warm(call: Call, timing: Timing, budget: float, clock) -> float:
    """Run it until it is warm; the seconds that one sample will take."""
    trial = "probe" if call.probe else "run"
    first, _ = call.time(trial, clock)
    if call.least * first > 3 * budget and not call.compiles:
        return first
    second, output = call.time(trial, clock)
    timing.output = None if call.probe else output
    timing.compile = max(first - second, 0.0) if call.compiles else None
    if not call.apart:
        return call.factor * second
    apart, _ = call.time("apart", clock)
    return call.factor * max(second - apart, 0.0) + 2 * apart


def _sample(call: Call, timing: Timing, clock) -> None:
    if timing.settles:
        call.time("run", clock)
    apart = call.time("apart", clock)[0] if call.apart else 0.0
    seconds, timing.output = call.time("run", clock)
    timing.samples.append(seconds - apart)
    if timing.samples[-1] <= 0:
        timing.samples.clear()
        timing.skipped = "skipped: other work on this machine disturbs this more than it takes"


def _guarded(timing, step, *arguments):
    try:
        return step(*arguments)
    except Exception as error:  # one call's failure is a row, not the end of the table
        timing.samples.clear()
        timing.skipped = failure(error)


def failure(error: Exception) -> str:
    """An error as a row tells it: one line, or the `row` that it brings."""
    return getattr(error, "row", "") or f"failed: {type(error).__name__}: {(str(error).splitlines() or [''])[0]}"


def speedup(base: Sequence[float], other: Sequence[float]) -> float | None:
    """How many times faster `other` is, turn by turn; None without a turn in common."""
    ratios = [a / b for a, b in zip(base, other, strict=False)]
    return statistics.median(ratios) if ratios else None


def spread(samples: Sequence[float]) -> float:
    """From the fastest to the slowest sample, as a share of the median."""
    return (max(samples) - min(samples)) / statistics.median(samples)
