"""Results: one row a cell, shown as tables and stored as JSON and Markdown."""

import importlib.metadata
import json
import platform
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from xformer import machine, storage

LIBRARIES = ("xformer", "numpy", "ml_dtypes", "array-api-compat", "jax", "jaxlib", "cupy-cuda12x", "torch", "apache-tvm")


@dataclass
class Row:
    """One cell's figures. `skipped` says why there are none."""

    workload: str
    precision: str
    runner: str
    samples: list[float] = field(default_factory=list)  # seconds, every one
    seconds: float | None = None  # their median
    tokens_per_second: float | None = None
    operations_per_second: float | None = None
    share_of_peak: float | None = None
    speedup: float | None = None  # over NumPy fp32, sample by sample in the same minutes
    error: float | None = None  # relative to NumPy fp32: norm of the difference over norm
    compile: float | None = None  # seconds
    load: float | None = None  # seconds
    skipped: str = ""


COLUMNS = (
    ("precision", lambda row: row.precision),
    ("library", lambda row: row.runner),
    ("ms", lambda row: f"{1e3 * row.seconds:.1f}"),
    ("least", lambda row: f"{1e3 * min(row.samples):.1f}"),
    ("tokens/s", lambda row: f"{row.tokens_per_second:,.0f}"),
    ("GOP/s", lambda row: f"{row.operations_per_second / 1e9:.0f}"),
    ("of peak", lambda row: f"{row.share_of_peak:.0%}"),
    ("x NumPy", lambda row: "" if row.speedup is None else f"{row.speedup:.2f}"),
    ("error", lambda row: f"{row.error:.0e}"),
    ("compile s", lambda row: f"{row.compile:.1f}"),
    ("load s", lambda row: f"{row.load:.1f}"),
)


def cells(row: Row) -> list[str]:
    """A row's texts, one a column."""
    if row.skipped:
        return [row.precision, row.runner, row.skipped] + [""] * (len(COLUMNS) - 3)
    return [text(row) for _, text in COLUMNS]


def show(title: str, rows: Sequence[Row], console: Console) -> None:
    """Print one table, of one workload in one precision, and why rows have no figures."""
    table = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    for index, (name, _) in enumerate(COLUMNS[1:]):
        table.add_column(name.replace(" ", "\n"), justify="right" if index else "left", no_wrap=True)
    for row in rows:
        table.add_row(*((row.runner, *"-" * (len(COLUMNS) - 2)) if row.skipped else cells(row)[1:]))
    console.print(table)
    for row in rows:
        if row.skipped:
            console.print(f"{row.runner}: {row.skipped}", highlight=False)


def markdown(result: dict[str, Any]) -> str:
    """The whole result as tables to read."""
    lines = [f"# {result['title']}", "", *(f"- {key}: {value}" for key, value in result["machine"].items())]
    lines += [f"- versions: {', '.join(f'{name} {version}' for name, version in result['versions'].items())}"]
    lines += ["- ms: median; least: the fastest sample; GOP/s: 10^9 multiplications and additions of the contractions a second"]
    lines += ["- of peak: of one 1024^3 contraction in the same library and precision; x NumPy: speed-up over NumPy fp32, measured in turn"]
    lines += ["- error: norm of the difference to NumPy fp32 over its norm: hidden states, or the logits after the prompt"]
    lines += [f"- left out: {name}: {reason}" for name, reason in result["left_out"].items()]
    rows = [Row(**row) for row in result["rows"]]
    for workload in dict.fromkeys(row.workload for row in rows):
        lines += ["", f"## {workload}", "", "| " + " | ".join(name for name, _ in COLUMNS) + " |", "|" + "---|" * len(COLUMNS)]
        lines += ["| " + " | ".join(cells(row)) + " |" for row in rows if row.workload == workload]
    return "\n".join(lines) + "\n"


def facts() -> dict[str, Any]:
    """What the figures depend on: CPU, instructions, cores."""
    text = machine.description()
    features = machine.features(text, platform.machine()) or {}
    return {
        "CPU": machine.model(text),
        "instructions": ", ".join(name for name, there in features.items() if there) or "unknown",
        "cores": machine.cores()["usable"],
        "Python": platform.python_version(),
    }


def versions() -> dict[str, str]:
    """The installed libraries that take part."""
    found = {}
    for name in LIBRARIES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def store(folder: Path, name: str, result: dict[str, Any]) -> list[Path]:
    """Write NAME.json (every sample) and NAME.md into `folder`, both or neither."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{name}.json", folder / f"{name}.md"]
    with storage.replacing(*paths) as (data, text):
        data.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
        text.write_text(markdown(result), encoding="utf-8")
    return paths


def collected(title: str, rows: Iterable[Row], left_out: dict[str, str]) -> dict[str, Any]:
    """The result to store."""
    return {"title": title, "machine": facts(), "versions": versions(), "left_out": left_out, "rows": [asdict(row) for row in rows]}
