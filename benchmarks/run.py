"""The measuring itself: model by model, so that few are in memory; all libraries and precisions of a workload in turn."""

import gc
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from benchmarks import apart, measure
from benchmarks.cells import Cell, Runner, error
from benchmarks.measure import Timing
from benchmarks.report import Row
from benchmarks.workloads import Subject, Workload

Pair = tuple[Runner, str]
BASE: Pair = (Runner("numpy", None), "fp32")


def measured(
    wanted: Sequence[Workload], found: Sequence[Runner], precisions: Sequence[str], budget: float, told: Callable[[str, float], Any]
) -> Iterator[tuple[Workload, list[Row]]]:
    """Each workload with a row for each of the `found` runners in each precision.

    NumPy in fp32 is measured with them whether it has a row or not. `told` gets what is being done and, after each run,
    how much of a workload's effort that was.
    """
    pairs = [(runner, precision) for precision in precisions for runner in found]
    for subject in dict.fromkeys(workload.subject for workload in wanted):
        opened, failed = _open(subject, list(dict.fromkeys([BASE, *pairs])), told)
        for workload in (workload for workload in wanted if workload.subject is subject):
            rows = _rows(workload, opened, budget, told)
            rows |= {pair: Row(workload.name, pair[1], pair[0].name, skipped=reason) for pair, reason in failed.items()}
            yield workload, [rows[pair] for pair in pairs]
        opened.clear()
        gc.collect()


def _open(subject: Subject, pairs: Sequence[Pair], told) -> tuple[dict[Pair, Any], dict[Pair, str]]:
    """The cells that open, and why the others do not."""
    told(f"{subject.name}: preparing {len(pairs)} models", 0.0)
    opened, failed = {}, {}
    for pair in pairs:
        try:
            opened[pair] = (apart.Cell if pair[0].alone else Cell).open(subject, *pair)
        except Exception as problem:  # rows, not the end of the table
            failed[pair] = measure.failure(problem)
    return opened, failed


def _rows(workload: Workload, opened: dict[Pair, Any], budget: float, told) -> dict[Pair, Row]:
    told(workload.name, 0.0)
    calls = [cell.call(workload) for cell in opened.values()]
    timings = measure.in_turn(calls, budget, tick=lambda share: told(workload.name, workload.effort * share / len(calls)))
    timed = dict(zip(opened, timings, strict=True))
    peaks = {precision: max(cell.peak.rate for (_, p), cell in opened.items() if p == precision) for _, precision in opened}
    return {pair: row(workload, cell, timed[pair], timed.get(BASE), peaks[pair[1]]) for pair, cell in opened.items()}


def row(workload: Workload, cell: Cell | apart.Cell, timing: Timing, base: Timing | None, peak: float) -> Row:
    """The figures of one cell, beside those of NumPy in fp32; `peak` is what the machine did at most in that precision."""
    made = Row(workload.name, cell.precision, cell.runner.name, timing.samples, compile=timing.compile, load=cell.load)
    made.effective, made.skipped = cell.peak.arithmetic, timing.skipped
    if timing.skipped:
        return made
    made.tokens_per_second = workload.tokens / made.seconds
    made.operations_per_second = workload.operations / made.seconds
    made.share_of_peak = made.operations_per_second / peak
    if base is not None:
        made.speedup = measure.speedup(base.samples, timing.samples)
        made.error = None if base.output is None else error(timing.output, base.output)
    made.doubt = doubt(made)
    return made


def doubt(row: Row) -> str:
    """Why a row's figures are not to be believed; "" if they may be."""
    if row.share_of_peak and row.share_of_peak > 1:
        return f"doubtful: {row.share_of_peak:.0%} of what this machine did at most in one large contraction"
    if row.error is not None and math.isnan(row.error):
        return "doubtful: the output holds NaN"
    return "doubtful: integer sums that are not exact" if "NOT" in row.effective else ""
