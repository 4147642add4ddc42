"""`python -m benchmarks`: measure this machine; `python -m benchmarks report FILE..`: show stored results again."""

import json
import os
import statistics
import sys
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from rich.console import Console
from rich.progress import MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from benchmarks import cells, measure, report, workloads
from benchmarks.report import Row
from xformer.precision import PRECISIONS

SLOW = ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE")  # where set, they keep NumPy from the CPU's own kernels

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
Choice = Annotated[list[str] | None, typer.Option()]


@app.callback(invoke_without_command=True)
def main(
    context: typer.Context,
    hardware: Annotated[str, typer.Option(help="cpu, gpu or tpu")] = "cpu",
    precision: Choice = None,
    library: Choice = None,
    workload: Annotated[list[str] | None, typer.Option(help="only workloads whose name contains this")] = None,
    quick: Annotated[bool, typer.Option(help="only two small encoder workloads")] = False,
    budget: Annotated[float, typer.Option(help="seconds a cell may take")] = 6.0,
    output: Path = Path("results"),
    require_hardware: Annotated[bool, typer.Option(help="fail when there is no such hardware")] = False,
) -> None:
    """Measure every library on this hardware in every precision, against NumPy fp32 in the same minutes."""
    if context.invoked_subcommand:
        return
    if hardware not in ("cpu", "gpu", "tpu"):
        raise typer.BadParameter(f"{hardware!r}; known: cpu, gpu, tpu")
    chosen = [name for name in PRECISIONS if not precision or name in precision]
    if set(precision or ()) - set(PRECISIONS):
        raise typer.BadParameter(f"{', '.join(precision or ())}; known: {', '.join(PRECISIONS)}")
    found, left_out = cells.runners(hardware)
    found = {name: runner for name, runner in found.items() if not library or name in library}
    console, problems = Console(), Console(stderr=True)
    for name, reason in left_out.items():
        problems.print(f"left out: {name}: {reason}", highlight=False)
    if not found:
        problems.print(f"nothing to measure on {hardware}")
        raise typer.Exit(1 if require_hardware or library else 0)
    wanted = [w for w in workloads.workloads(quick) if not workload or any(part in w.name for part in workload)]
    rows = run(wanted, found, chosen, budget, console, problems)
    name = "bench-" + "-".join([hardware, *(chosen if precision else [])])
    result = report.collected(f"Benchmark: {hardware}", rows, left_out)
    for path in report.store(output, name, result):
        problems.print(f"wrote {path}", highlight=False)
    raise typer.Exit(any(row.skipped.startswith("failed") for row in rows))


@app.command("report")
def show_again(files: list[Path]) -> None:
    """Show stored results."""
    for path in files:
        typer.echo(report.markdown(json.loads(path.read_text(encoding="utf-8"))))


def run(wanted, found, precisions, budget, console, problems) -> list[Row]:
    """Model by model and precision by precision, so that few models are in memory; a table after each workload."""
    rows: list[Row] = []
    baseline = cells.runners("cpu")[0]["numpy"]
    columns = (TextColumn("{task.description}"), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=problems, transient=True, disable=not problems.is_terminal) as progress:
        task = progress.add_task("measuring", total=len(wanted) * len(precisions))
        for subject in dict.fromkeys(w.subject for w in wanted):
            base = cells.Cell.open(subject, "numpy", *baseline, "fp32")
            for precision in precisions:
                opened, failed = _open(subject, found, precision, base)
                for workload in (w for w in wanted if w.subject is subject):
                    progress.update(task, description=f"{workload.name} {precision}")
                    if not problems.is_terminal:
                        problems.print(f"measuring {workload.name} {precision}", highlight=False)
                    new = [*_measured(workload, base, opened, found, precision, budget), *(Row(workload.name, *row) for row in failed)]
                    report.show(f"{workload.name} {precision} ({subject.source})", new, console)
                    rows += new
                    progress.advance(task)
    order = {workload.name: index for index, workload in enumerate(wanted)}
    return sorted(rows, key=lambda row: order[row.workload])


def _open(subject, found, precision, base):
    opened, failed = [], []
    for name, (runner, device) in found.items():
        if (name, precision) == ("numpy", "fp32"):
            opened.append(base)
            continue
        try:
            opened.append(cells.Cell.open(subject, name, runner, device, precision))
        except Exception as error:  # a row, not the end of the table
            failed.append((precision, name, [], *[None] * 8, f"failed: {type(error).__name__}: {error}"))
    return opened, failed


def _measured(workload, base, opened, found, precision, budget) -> list[Row]:
    together = opened if base in opened else [base, *opened]
    calls = [cell.call(workload) for cell in together]
    timings = dict(zip(map(id, together), measure.in_turn(calls, budget), strict=True))
    reference, rows = base.output(workload), []
    first = _prefill_seconds(workload, together, budget)
    for cell in opened:
        timing, row = timings[id(cell)], Row(workload.name, precision, cell.runner, skipped=timings[id(cell)].skipped)
        rows.append(row)
        if row.skipped:
            continue
        row.samples = [seconds - first[id(cell)] for seconds in timing.samples]
        row.seconds = statistics.median(row.samples)
        row.tokens_per_second = workload.tokens / row.seconds
        row.operations_per_second = workload.operations / row.seconds
        row.share_of_peak = row.operations_per_second / cells.peak(*found[cell.runner], precision)
        pairs = zip(timings[id(base)].samples, timing.samples, strict=False)
        ratios = [(a - first[id(base)]) / (b - first[id(cell)]) for a, b in pairs]
        row.speedup = statistics.median(ratios) if ratios else None  # none where the baseline itself was skipped
        row.error = float(np.linalg.norm(cell.output(workload) - reference) / np.linalg.norm(reference))
        row.compile, row.load = timing.compile, cell.load
    return rows


def _prefill_seconds(workload, together, budget) -> dict[int, float]:
    """What a decode's measured call spends before its second token: the same call for one token."""
    if workload.kind != "decode":
        return {id(cell): 0.0 for cell in together}
    one = workloads.Workload(workload.subject, "prefill", workload.batch, workload.length)
    timings = measure.in_turn([cell.call(one) for cell in together], budget / 3)
    return {id(cell): timing.median if timing.samples else 0.0 for cell, timing in zip(together, timings, strict=True)}


if __name__ == "__main__":
    if any(name in os.environ for name in SLOW):
        clean = {name: value for name, value in os.environ.items() if name not in SLOW}
        os.execve(sys.executable, [sys.executable, "-m", "benchmarks", *sys.argv[1:]], clean)
    app()
