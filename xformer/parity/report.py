"""Comparisons as tables to read, as JSON with every operation, and as a plot."""

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path

from xformer import storage
from xformer.parity.comparing import Comparison, Row

LEGEND = (
    "alone: an operation that is given what NumPy gave it; whole: at the end of all that came before it",
    "absolute: the largest difference; ULP: the same in fp32 units in the last place of the largest number of its row",
    "parts at: the first operation whose bits differ from NumPy's, as a whole",
    "worst: of all operations alone, by ULP; integers: the same of the operands and sums of an integer precision, 0 or a fault",
)
KEY, WHOLE, ALONE = ("precision", "place"), ("computed in", "parts at", "absolute", "ULP", "1 - cosine"), ("worst", "worst ULP", "integers")
SUMMARY = (*KEY, *WHOLE, *ALONE)


def summary(comparisons: Iterable[Comparison]) -> list[dict[str, str]]:
    """A row for each comparison, as texts by the columns of SUMMARY."""
    rows = []
    for found in comparisons:
        real = [row for row in found.rows if not row.alone.integer]
        worst = max(real, key=lambda row: row.alone.ulp)
        integers = [row.alone.absolute for row in found.rows if row.alone.integer]
        values = (
            found.precision,
            found.place,
            found.effective,
            found.parts_at or "nowhere",
            f"{found.output.absolute:.1e}",
            f"{found.output.ulp:.0f}",
            f"{max(1.0 - found.output.cosine, 0.0):.0e}",
            worst.name if worst.alone.ulp else "none",
            f"{worst.alone.ulp:.0f}",
            f"{max(integers):.0f}" if integers else "",
        )
        rows.append(dict(zip(SUMMARY, values, strict=True)))
    return rows


def by_layer(found: Comparison) -> dict[str, float]:
    """The largest absolute difference, as a whole, of the operations of each layer and of what comes before and after."""
    return _largest(found, lambda row: ".".join(row.name.split(".")[:2]) if row.name.startswith("layers.") else "outside", "whole")


def by_operation(found: Comparison) -> dict[str, float]:
    """The largest absolute difference, alone, of each kind of operation over all layers."""
    return _largest(found, lambda row: re.sub(r"^layers\.\d+\.", "", row.name), "alone")


def _largest(found, key, side):
    largest: dict[str, float] = {}
    for row in found.rows:
        if not row.alone.integer:
            largest[key(row)] = max(largest.get(key(row), 0.0), getattr(row, side).absolute)
    return largest


def markdown(title: str, comparisons: Sequence[Comparison]) -> str:
    """The summary, and the differences by layer and by operation."""
    lines = [
        f"# {title}",
        "",
        *(f"- {line}" for line in LEGEND),
        "",
        *_table(SUMMARY, [list(row.values()) for row in summary(comparisons)]),
    ]
    for heading, largest in (("By layer, whole", by_layer), ("By operation, alone", by_operation)):
        lines += ["", f"## {heading}"]
        for precision in dict.fromkeys(found.precision for found in comparisons):
            columns = {found.place: largest(found) for found in comparisons if found.precision == precision}
            names = list(next(iter(columns.values())))
            rows = [[name, *(f"{column[name]:.1e}" if column[name] else "0" for column in columns.values())] for name in names]
            lines += ["", *_table([precision, *columns], rows)]
    return "\n".join(lines) + "\n"


def _table(head, rows):
    return [f"| {' | '.join(line)} |" for line in (head, ["---"] * len(head), *rows)]


def write(folder: Path, title: str, comparisons: Sequence[Comparison]) -> list[Path]:
    """parity.json, parity.md and, where matplotlib is installed, parity.png in `folder`: all or none. Returns what was written."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"parity.{suffix}" for suffix in ("json", "md", *(["png"] if _can_plot() else []))]
    with storage.replacing(*paths) as (data, text, *pictures):
        data.write_text(json.dumps({"title": title, "comparisons": [asdict(found) for found in comparisons]}, indent=1), encoding="utf-8")
        text.write_text(markdown(title, comparisons), encoding="utf-8")
        for picture in pictures:
            _plot(picture, title, comparisons)
    return paths


def _can_plot() -> bool:
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError:
        return False
    return True


def _plot(path, title, comparisons):
    """The absolute difference, as a whole, along the operations: a panel a precision, a line a place."""
    from matplotlib.figure import Figure

    precisions = list(dict.fromkeys(found.precision for found in comparisons))
    figure = Figure(figsize=(9, 2.6 * len(precisions)), layout="constrained")
    panels = figure.subplots(len(precisions), 1, squeeze=False)[:, 0]
    for panel, precision in zip(panels, precisions, strict=True):
        for found in comparisons:
            if found.precision == precision:
                real: list[Row] = [row for row in found.rows if not row.alone.integer]
                panel.plot([row.whole.absolute or None for row in real], label=found.place, linewidth=1)
        panel.set_yscale("log")
        panel.set_ylabel(f"{precision}: difference")
        panel.legend(loc="lower right", fontsize="small")
    panels[0].set_title(title)
    panels[-1].set_xlabel("operation")
    figure.savefig(path, format="png", dpi=120)
