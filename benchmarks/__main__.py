"""`python -m benchmarks`: measure this machine; `python -m benchmarks report FILE..`: show stored results again."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from benchmarks import cells, console, facts, ragged, report, run, summary, workloads
from benchmarks.workloads import Workload
from xformer.precision import PRECISIONS

SLOW = ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE")  # where set, they keep NumPy from the CPU's own kernels

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.callback(invoke_without_command=True)
def main(
    context: typer.Context,
    hardware: Annotated[str, typer.Option(help="cpu, gpu or tpu")] = "cpu",
    precision: Annotated[list[str] | None, typer.Option(help="only this one; may be repeated")] = None,
    namespace: Annotated[list[str] | None, typer.Option(help="only this library; may be repeated")] = None,
    workload: Annotated[list[str] | None, typer.Option(help="only workloads whose name contains this; may be repeated")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="the two smallest workloads")] = False,
    full: Annotated[bool, typer.Option("--full", help="larger batches and longer texts too")] = False,
    budget: Annotated[float, typer.Option(min=0.1, help="seconds a cell may take; one that would need more is skipped")] = 8.0,
    output: Annotated[Path, typer.Option(help="folder for the results")] = Path("results"),
    require_hardware: Annotated[bool, typer.Option(help="fail when there is no such hardware")] = False,
) -> None:
    """Measure every library on this hardware in every precision, against NumPy fp32 in the same minutes."""
    if context.invoked_subcommand:
        return
    known = cells.NAMESPACES[console.chosen("--hardware", [hardware], cells.NAMESPACES)[0]]
    namespaces = console.chosen("--namespace", namespace or [name for name in known if name not in cells.ON_REQUEST], known)
    precisions = console.chosen("--precision", precision, PRECISIONS)
    if quick and full:
        raise typer.BadParameter("--quick and --full exclude each other")
    wanted = _selected(workloads.workloads("quick" if quick else "full" if full else "usual"), workload)
    problems = Console(stderr=True)
    found, left_out = cells.runners(hardware, namespaces)
    left_out |= {name: reason for name, reason in cells.ON_REQUEST.items() if name in known and name not in namespaces}
    for name, reason in left_out.items():
        problems.print(f"not measured: {name}: {reason}", highlight=False, markup=False)
    if not found:
        problems.print(f"nothing to measure on {hardware}", highlight=False)
        raise typer.Exit(1 if require_hardware or namespace else 0)
    where = facts.collect()
    if warning := facts.crowded():
        problems.print(warning, highlight=False, soft_wrap=True)
    rows, paths = [], []
    with console.progress(problems, sum(workload.effort for workload in wanted)) as told:
        for measured, new in run.measured(wanted, found, precisions, budget, told):
            report.show(f"{measured.name} ({measured.subject.source})", new, Console())
            rows += new
            result = report.collected(f"Benchmark: {hardware}", rows, left_out, where)  # so far: an interrupted run has its results
            paths = report.store(output, "-".join(["bench", hardware, *(precisions if precision else [])]), result)
    for path in paths:
        problems.print(f"wrote {path}", highlight=False, markup=False)
    raise typer.Exit(any(row.skipped.startswith("failed") for row in rows))


@app.command("report")
def show_again(
    files: Annotated[list[Path], typer.Argument(help="JSON files of results", exists=True, dir_okay=False)],
    short: Annotated[bool, typer.Option(help="one small table")] = False,
) -> None:
    """Show stored results as Markdown, those of the same machine and versions as one."""
    try:
        results = report.merged(report.read(path) for path in files)
    except ValueError as problem:
        raise typer.BadParameter(str(problem)) from problem
    for result in results:
        typer.echo(summary.table(result) if short else report.markdown(result))


@app.command("ragged")
def padding(
    namespace: Annotated[str, typer.Option(help="the library")] = "tvm",
    precision: Annotated[list[str] | None, typer.Option(help="only this one; may be repeated")] = None,
    model: Annotated[str, typer.Option(help="an encoder's preset")] = "bert-base",
    budget: Annotated[float, typer.Option(min=0.1, help="seconds that each of both batches may take")] = 8.0,
) -> None:
    """Measure what padding costs: texts of many lengths beside a batch of the longest, in one program."""
    found, left_out = cells.runners("cpu", [namespace])
    if not found:
        raise typer.BadParameter(left_out.get(namespace, "unknown"), param_hint="--namespace")
    tokens = ragged.real()
    typer.echo(f"{model} {tokens.shape[0]}x{tokens.shape[1]}, {tokens.sum()} of {tokens.size} tokens are real ({tokens.mean():.3f})")
    precisions = console.chosen("--precision", precision, PRECISIONS)
    try:
        for name, ratio in ragged.ratios(workloads.preset(model), found[0], precisions, budget):
            typer.echo(f"{name:6}{1e3 * ratio.whole:9.1f} ms whole {1e3 * ratio.padded:9.1f} ms padded   {ratio.share:.3f} of the whole")
    except RuntimeError as problem:
        raise typer.BadParameter(str(problem), param_hint="--budget") from problem


def _selected(every: list[Workload], parts: Sequence[str] | None) -> list[Workload]:
    chosen = [workload for workload in every if not parts or any(part in workload.name for part in parts)]
    if not chosen:
        names = ", ".join(workload.name for workload in every)
        raise typer.BadParameter(f"{', '.join(map(repr, parts or ()))}; known: {names}", param_hint="--workload")
    return chosen


if __name__ == "__main__":
    if any(name in os.environ for name in SLOW):
        clean = {name: value for name, value in os.environ.items() if name not in SLOW}
        os.execve(sys.executable, [sys.executable, "-m", "benchmarks", *sys.argv[1:]], clean)
    app()
