"""The measuring itself: by model and precision, so that few models are in memory; all ways to run a point in turn."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import packages_distributions, version
from pathlib import Path
from typing import Any

from benchmarks import measure
from benchmarks.peers import libraries, weights
from benchmarks.peers.libraries import LIBRARIES, OURS, ROLES, Way
from benchmarks.peers.points import Point
from benchmarks.peers.remote import PeerError, Remote
from benchmarks.peers.rows import Row

WRONG = 0.5  # an error that no precision explains
Told = Callable[[str, float], Any]


def measured(
    points: Sequence[Point], names: Sequence[str], precisions: Sequence[str], budget: float, folder: Path, told: Told
) -> Iterator[tuple[Point, list[Row]]]:
    """Each point in each precision with a row for each way. Models in all formats are kept in `folder`.

    `told` gets what is being done and, after each run, how much of a point's effort that was.
    """
    for model in dict.fromkeys(point.model for point in points):
        wanted = [point for point in points if point.model == model]
        told(f"{model}: weights, and what NumPy makes of them", 0.0)
        source = weights.source(folder, model)
        references = _references(wanted, source)
        for precision in precisions:
            ways = list(libraries.ways(names, ROLES[wanted[0].kind], precision))
            with contextlib.ExitStack() as processes:
                opened, failed = _open(ways, source, processes, told)
                for point in wanted:
                    yield point, _rows(point, ways, opened, failed, references[point], budget, told)


def _references(points: Sequence[Point], source: Path) -> dict[Point, Path]:
    """By point a file with what NumPy computes in fp32."""
    paths = {point: source.with_name(f"{point.name}.npz") for point in points}
    if not all(path.exists() for path in paths.values()):
        with contextlib.closing(Remote(source)) as remote:
            remote.load("ours", Way("numpy", ROLES[points[0].kind], "fp32"), source)
            for point, path in paths.items():
                if not path.exists():
                    remote.refer(point, path)
    return paths


def _open(
    ways: Sequence[Way], source: Path, processes: contextlib.ExitStack, told: Told
) -> tuple[dict[Way, tuple[Remote, float]], dict[Way, str]]:
    """The models that load, with the seconds that it took, and why the others do not. They are closed with `processes`."""
    opened, failed = {}, {way: way.skipped for way in ways if way.skipped}
    for way in (way for way in ways if not way.skipped):
        told(f"{source.parent.name} {way.precision}: loading {way.name}", 0.0)
        library, remote = LIBRARIES[way.library], processes.enter_context(contextlib.closing(Remote(source)))
        folder = source.with_name(f"{library.module} {_version(library.packages[0])}")
        try:
            if library.converts:
                remote.convert(library.module, way.role, folder)
            opened[way] = remote, remote.load(library.module, way, folder)
        except PeerError as problem:  # rows, not the end of the table
            failed[way] = problem.row
            remote.close()
    return opened, failed


def _version(package: str) -> str:
    return version(packages_distributions()[package][0])


def _rows(point, ways, opened, failed, reference, budget, told) -> list[Row]:
    """The point's rows, in the order of the ways."""
    calls, failed = {}, dict(failed)
    for way, (remote, _) in opened.items():
        try:
            calls[way] = remote.call(point)
        except PeerError as problem:
            failed[way] = problem.row
    where = f"{point.name} {ways[0].precision}"
    told(where, 0.0)
    tick = lambda share: told(where, point.workload.effort * share / len(calls))  # noqa: E731
    timings = dict(zip(calls, measure.in_turn(list(calls.values()), budget, tick=tick), strict=True))
    base = next((timing for way, timing in timings.items() if way.library == OURS[0]), None)
    rows = []
    for way in ways:
        row = Row(point.name, way.precision, way.library, way.name, skipped=failed.get(way, ""))
        if way in timings:
            fill(row, timings[way], base, opened[way][1], point)
        if not row.skipped:
            judge(row, opened[way][0], reference)
        rows.append(row)
    return rows


def fill(row: Row, timing: measure.Timing, base: measure.Timing | None, load: float, point: Point) -> None:
    """A row's figures from its samples and from those of our first frontend."""
    row.samples, row.compile, row.load, row.skipped = timing.samples, timing.compile, load, timing.skipped
    if row.skipped:
        return
    row.tokens_per_second = point.workload.tokens / row.seconds
    row.ahead = measure.speedup(row.samples, base.samples) if base else None


def judge(row: Row, remote: Any, reference: Path) -> None:
    """Its error; the figure of a result that cannot be compared, or has nothing to do with the reference, is none."""
    try:
        found = remote.judge(reference)
        row.error, row.agreement = found["error"], found["agreement"]
        if not found["error"] < WRONG:  # NaN neither
            row.skipped = f"failed: wrong, its error is {found['error']:.1g}"
    except PeerError as problem:
        row.skipped = problem.row
    row.samples = [] if row.skipped else row.samples
