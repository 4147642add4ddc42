"""`python -m benchmarks.rivals`: our jit, a hand-written JAX version and torch.compile in turn, on the same weights."""

import functools
import json
import tempfile
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import jax.numpy as jnp
import numpy as np
import typer
from rich import box
from rich.console import Console
from rich.table import Table

import xformer
from benchmarks import facts, measure
from benchmarks.cells import PROBE, error
from benchmarks.measure import Call
from benchmarks.rivals import inductor, plain
from benchmarks.workloads import LENGTHS, NEW, PROMPT, Workload, preset
from xformer.frontends import jax as frontend

DTYPES = {"fp32": jnp.float32, "bf16": jnp.bfloat16}
WORKLOADS = (Workload(preset("bert-base"), "encode", 1, 128), Workload(preset("gpt2"), "decode", 1, PROMPT))
OURS = "xformer jit"


def main(
    precision: Annotated[list[str] | None, typer.Option(help="fp32 or bf16; may be repeated")] = None,
    budget: Annotated[float, typer.Option(min=0.1, help="seconds that a call's samples may take")] = 60.0,
    output: Annotated[Path, typer.Option(help="folder for the results")] = Path("results"),
) -> None:
    """Measure, and say how our jit compares with each of the others."""
    rows, where = [], facts.collect()
    if warning := facts.crowded():
        Console(stderr=True).print(warning, highlight=False, soft_wrap=True)
    output.mkdir(parents=True, exist_ok=True)
    for workload in WORKLOADS:
        new = [row for name in precision or DTYPES for row in measured(workload, name, budget)]
        show(workload.name, new)
        rows += new
        (output / "rivals.json").write_text(json.dumps(where | {"rows": rows}, indent=1) + "\n", encoding="utf-8")


def measured(workload: Workload, precision: str, budget: float) -> list[dict[str, Any]]:
    """A row for each way to run `workload`: every sample, the time of ours as a share of its, its error to ours in fp32."""
    model = xformer.init(workload.subject.config, 0, "jax")
    with tempfile.TemporaryDirectory() as folder:
        model.save(folder)
        found = calls(workload, precision, model, Path(folder))
        timings = dict(zip(found, measure.in_turn(list(found.values()), budget), strict=True))
    reference = timings[OURS].output if precision == "fp32" else _reference(workload, model)
    rows = []
    for name, timing in timings.items():
        row = {"workload": workload.name, "precision": precision, "way": name, "samples": timing.samples, "compile": timing.compile}
        if not timing.skipped:
            share = measure.speedup(timings[OURS].samples, timing.samples)
            row |= {"ours": share, "error": error(timing.output, reference), "tokens_per_second": workload.tokens / median(timing.samples)}
        rows.append(row | {"skipped": timing.skipped})
    return rows


def show(title: str, rows: list[dict[str, Any]]) -> None:
    """Print a workload's table."""
    heads = ("preci-\nsion", "", "ms", "least", "spread", "tokens\n/s", "com-\npile", "ours /\nthis", "error")
    table = Table(*heads, title=title, title_justify="left", box=box.SIMPLE_HEAD, padding=0)
    for row in rows:
        samples, figures = row["samples"], []
        if samples:
            figures = [f"{1e3 * median(samples):.1f}", f"{1e3 * min(samples):.1f}", f"{measure.spread(samples):.0%}"]
            figures += [f"{row['tokens_per_second']:.0f}", f"{row['compile']:.1f}", f"{row['ours']:.2f}", f"{row['error']:.0e}"]
        table.add_row(row["precision"], row["way"], *(figures or [row["skipped"]]))
    Console().print(table)


def calls(workload: Workload, precision: str, model: xformer.Model, folder: Path) -> dict[str, Call]:
    """What is timed, by name."""
    ids, config, dtype = workload.ids(), workload.subject.config, DTYPES[precision]
    ours = frontend.compile(xformer.init(config, 0, "jax", precision), lengths=LENGTHS)
    hand = plain.weights(model.params, dtype)
    if workload.kind == "encode":
        mask = np.ones_like(ids)
        torch_ = inductor.bert(folder, precision)
        runs = {
            OURS: lambda: ours(ids, mask),
            "plain jax": lambda: plain.bert(hand, jnp.asarray(ids), jnp.asarray(mask, bool), config, dtype),
            "torch.compile": lambda: torch_(ids, mask),
        }
        return {name: Call(run, np.asarray, compiles=True) for name, run in runs.items()}
    torch_ = inductor.gpt2(folder, precision, PROMPT + NEW)
    generate = {
        OURS: lambda count: ours.generate(ids, count, stop=()),
        "plain jax": lambda count: np.asarray(plain.gpt2(hand, jnp.asarray(ids), count, config, dtype, PROMPT + NEW))[:, :count],
        "torch.compile": lambda count: torch_(ids.astype(np.int64), count),
    }

    def call(run):
        some, one, every = (functools.partial(run, count) for count in (1 + PROBE, 1, NEW))
        return Call(every, np.asarray, some, (NEW - 1) / PROBE, one, compiles=True)

    return {name: call(run) for name, run in generate.items()}


def _reference(workload: Workload, model: xformer.Model) -> np.ndarray:
    compiled, ids = frontend.compile(model, lengths=LENGTHS), workload.ids()
    return np.asarray(compiled(ids) if workload.kind == "encode" else compiled.generate(ids, NEW, stop=()))


if __name__ == "__main__":
    typer.run(main)
