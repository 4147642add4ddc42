"""`python -m benchmarks.peers`: other products beside this library, in one run."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from benchmarks import console, facts, report
from benchmarks.peers import libraries, limits, rows, run
from benchmarks.peers.points import Point, points

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def main(
    precision: Annotated[list[str] | None, typer.Option(help="only this one; may be repeated")] = None,
    library: Annotated[list[str] | None, typer.Option(help="only this library beside ours; may be repeated")] = None,
    workload: Annotated[list[str] | None, typer.Option(help="only workloads whose name contains this; may be repeated")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="one encoder and one decoder, in fp32 and int8")] = False,
    full: Annotated[bool, typer.Option("--full", help="shapes that nobody tuned for too")] = False,
    budget: Annotated[float, typer.Option(min=0.1, help="seconds a row may take; one that would need more is skipped")] = 20.0,
    models: Annotated[Path, typer.Option(help="folder where models in all formats are kept")] = Path("results/models"),
    output: Annotated[Path, typer.Option(help="folder for the results")] = Path("results"),
) -> None:
    """Measure every product on this CPU beside our frontends, and say in how many cells we are ahead."""
    if quick and full:
        raise typer.BadParameter("--quick and --full exclude each other")
    wanted = selected(points("quick" if quick else "full" if full else "usual"), workload)
    precisions = console.chosen("--precision", precision or (["fp32", "int8"] if quick else None), libraries.PRECISIONS)
    peers = console.chosen("--library", library, [name for name in libraries.LIBRARIES if name not in libraries.OURS])
    problems, found, paths = Console(stderr=True), [], []
    if warning := facts.crowded():
        problems.print(warning, highlight=False, soft_wrap=True)
    where = facts.collect()
    effort = sum(point.workload.effort for point in wanted) * len(precisions)
    with console.progress(problems, effort) as told:
        told("what this machine does at most", 0.0)
        peaks, left_out = limits.measured(precisions)
        for point, new in run.measured(wanted, [*libraries.OURS, *peers], precisions, budget, models, told):
            for row in (row for row in new if not row.skipped):
                row.reached = limits.reached(point, row.precision, row.seconds, peaks.get(row.precision))
            report.show(f"{point.name}, {new[0].precision}", new, Console())
            found += new
            result = report.collected(
                "Peers on a CPU", found, left_out, where | {"peaks": peaks}, "peers"
            )  # so far: an interrupted run has its results
            paths = report.store(output, "-".join(["peers", *(precisions if precision else [])]), result)
    for line in rows.summary(found):
        Console().print(line, highlight=False, soft_wrap=True)
    for path in paths:
        problems.print(f"wrote {path}", highlight=False, markup=False)
    raise typer.Exit(any(row.skipped.startswith("failed") for row in found))


def selected(every: list[Point], parts: list[str] | None) -> list[Point]:
    """The points whose names contain one of `parts`, or all."""
    unknown = [part for part in parts or () if not any(part in point.name for point in every)]
    if unknown:
        names = ", ".join(point.name for point in every)
        raise typer.BadParameter(f"{', '.join(map(repr, unknown))}; known: {names}", param_hint="--workload")
    return [point for point in every if not parts or any(part in point.name for part in parts)]


if __name__ == "__main__":
    app()
