"""`python -m benchmarks.ahead --hardware tpu`: compile the models for hardware that is not here, and report what became of them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from benchmarks import console, facts, report, workloads
from benchmarks.ahead import pool
from benchmarks.ahead.chips import CHIPS, Chip
from benchmarks.ahead.rows import Row
from benchmarks.workloads import PROMPT
from xformer.precision import PRECISIONS

PROGRAMS = (("bert-base", "encode", 1, 128), ("gpt2", "prefill", 1, 128), ("gpt2", "decode", 1, PROMPT))
DEVICES = (1, 4)
QUICK = {"tpu": "v5e", "gpu": "h100"}
ENVIRONMENT = {  # of a worker: only the compiler of an accelerator is used, and nobody is asked whether there is one
    "tpu": {"JAX_PLATFORMS": "cpu", "TPU_SKIP_MDS_QUERY": "1", "ALLOW_MULTIPLE_LIBTPU_LOAD": "1"},
    "gpu": {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": "--xla_gpu_autotune_level=0"},  # tuning would run the kernels
}

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def main(
    hardware: Annotated[str, typer.Option(help="tpu or gpu")] = "tpu",
    precision: Annotated[list[str] | None, typer.Option(help="only this one; may be repeated")] = None,
    chip: Annotated[list[str] | None, typer.Option(help="only this chip; may be repeated")] = None,
    devices: Annotated[list[int] | None, typer.Option(help="only on 1 or on 4; may be repeated")] = None,
    quick: Annotated[bool, typer.Option(help="one chip, on one device")] = False,
    budget: Annotated[float, typer.Option(min=1, help="seconds that one program may take to compile")] = 100.0,
    limit: Annotated[float, typer.Option(min=1, help="seconds after which no other program is begun")] = 780.0,
    jobs: Annotated[int, typer.Option(min=1, help="compilers at a time")] = 2,
    output: Annotated[Path, typer.Option(help="folder for the results")] = Path("results"),
) -> None:
    """Compile BERT and GPT-2 for every chip, precision and number of devices. Fails where no program was compiled."""
    known = {name: one for name, one in CHIPS.items() if one.hardware == console.chosen("--hardware", [hardware], list(ENVIRONMENT))[0]}
    precisions = console.chosen("--precision", precision, list(PRECISIONS))
    names = console.chosen("--chip", chip or ([QUICK[hardware]] if quick else None), list(known))
    counts = console.chosen("--devices", devices or (DEVICES[:1] if quick else None), DEVICES)
    cells = wanted([known[name] for name in names], precisions, counts)
    problems, rows = Console(stderr=True), []
    where, title = facts.collect(), f"Compiled ahead of time: {hardware}"
    name = "-".join(["ahead", hardware, *(precisions if precision else [])])
    workers = [pool.Worker(ENVIRONMENT[hardware]) for _ in range(min(jobs, len(cells)))]
    for number, (cell, answer) in enumerate(pool.run(cells, workers, budget, limit), 1):
        rows.append(row(cell, answer))
        said = rows[-1].skipped or f"{rows[-1].compile:.1f} s"
        told = f"{rows[-1].workload}, {cell['precision']}, {cell['devices']} x {cell['chip']}: {said}"
        problems.print(f"[{number} of {len(cells)}] {told}", highlight=False, markup=False, soft_wrap=True)
        rows.sort(key=lambda one: order(one, names))
        paths = report.store(
            output, name, report.collected(title, rows, {}, where, "compiled")
        )  # so far: an interrupted run has its results
    for workload in dict.fromkeys(one.workload for one in rows):
        report.show(workload, [one for one in rows if one.workload == workload], Console())
    for path in paths:
        problems.print(f"wrote {path}", highlight=False, markup=False)
    raise typer.Exit(all(one.skipped for one in rows))


def wanted(chips: Sequence[Chip], precisions: Sequence[str], devices: Sequence[int] = DEVICES) -> list[pool.Job]:
    """The cells in the order in which they are compiled. Those in int32, which take as long as all others, come last."""
    cells = [
        {"chip": chip.name, "devices": count, "precision": precision, "model": model, "kind": kind, "batch": batch, "length": length}
        for count in devices
        for precision in ("bf16", "int8", "fp32", "int32")
        if precision in precisions
        for chip in chips
        for model, kind, batch, length in PROGRAMS
    ]
    return sorted(cells, key=lambda cell: cell["precision"] == "int32")


def row(cell: pool.Job, answer: dict) -> Row:
    """A cell and a worker's answer as a row of the report."""
    workload = workloads.Workload(workloads.preset(cell["model"]), cell["kind"], cell["batch"], cell["length"])
    made = Row(workload.name, cell["precision"], "jax", cell["chip"], cell["devices"])
    if "failed" in answer:
        made.skipped = answer["failed"]
        return made
    for name, value in answer.items():
        setattr(made, name, value)
    chip = CHIPS[cell["chip"]]
    rates = ", ".join(f"{name} {chip.peaks[name] / 1e12:.0f} TOP/s" if name in chip.peaks else f"{name} none" for name in made.operations)
    made.peak = f"{rates}, {chip.bandwidth / 1e9:.0f} GB/s ({chip.source})"
    return made


def order(row: Row, chips: list[str]) -> tuple:
    """Where a row stands in the report."""
    kinds = [kind for _, kind, _, _ in PROGRAMS]
    kind = next(index for index, kind in enumerate(kinds) if f" {kind} " in row.workload)
    return kind, chips.index(row.chip), row.devices, list(PRECISIONS).index(row.precision)


if __name__ == "__main__":
    app()
