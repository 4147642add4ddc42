"""Results: one row a cell, shown as tables and stored as JSON and Markdown."""

import json
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks import measure
from benchmarks.ahead import rows as compiled
from benchmarks.peers import rows as peers
from xformer import storage


@dataclass
class Row:
    """One cell's figures. `skipped` says why there are none, `doubt` why they are not to be believed."""

    workload: str
    precision: str
    namespace: str
    samples: list[float] = field(default_factory=list)  # seconds, every one
    tokens_per_second: float | None = None
    operations_per_second: float | None = None
    share_of_peak: float | None = None
    speedup: float | None = None
    error: float | None = None
    compile: float | None = None  # seconds
    load: float | None = None  # seconds
    effective: str = ""
    doubt: str = ""
    skipped: str = ""

    @property
    def seconds(self) -> float:
        return statistics.median(self.samples)

    @property
    def note(self) -> str:
        return self.skipped or self.doubt


def _shown(text: str):
    """A figure that may not be there."""
    return lambda value: "" if value is None else text.format(value)


COLUMNS = {  # by name: the head of the column on a terminal of 80 columns (None: not there), and a row's text
    "namespace": ("name-\nspace", lambda row: row.namespace),
    "precision": ("preci-\nsion", lambda row: row.precision),
    "ms": ("ms", lambda row: f"{1e3 * row.seconds:.1f}"),
    "least": ("least", lambda row: f"{1e3 * min(row.samples):.1f}"),
    "spread": ("spread", lambda row: f"{measure.spread(row.samples):.0%}" if len(row.samples) > 1 else ""),
    "tokens/s": ("tokens\n/s", lambda row: f"{row.tokens_per_second:.0f}"),
    "GOP/s": ("GOP/s", lambda row: f"{row.operations_per_second / 1e9:.0f}"),
    "of peak": ("of\npeak", lambda row: f"{row.share_of_peak:.0%}"),
    "x NumPy fp32": ("x\nNumPy", lambda row: _shown("{:.2f}")(row.speedup)),
    "error": ("error", lambda row: _shown("{:.0e}")(row.error)),
    "compile s": ("com-\npile", lambda row: _shown("{:.1f}")(row.compile)),
    "load s": ("load\ns", lambda row: f"{row.load:.1f}"),
    "effective precision": (None, lambda row: row.effective),
    "note": (None, lambda row: row.note),
}
LEGEND = (
    "ms: median; least: the fastest sample; spread: slowest less fastest sample, as a share of the median",
    "GOP/s: 10^9 multiplications and additions a second in the contractions; decode: of the tokens after the first, without the prefill",
    "of peak: of the fastest contraction of 1024 x 1024 matrices that any library here did in that precision",
    "x NumPy fp32: speed-up over NumPy in fp32, measured in turn with it",
    "error of what was timed, against NumPy in fp32: norm of the difference over the norm; of a decode the share of tokens that differ",
    "compile: what the first run took beyond the second; load: until the model is ready, preparing its weights included",
    "effective precision: what a contraction's result shows that it was computed in",
)


@dataclass(frozen=True)
class Form:
    """A kind of result: the class of its rows, their columns, those that name a row, and what the columns mean."""

    row: type
    columns: dict[str, tuple]
    names: tuple[str, ...]
    legend: tuple[str, ...]


FORMS = {  # by a result's "kind"; those without one were measured
    "measured": Form(Row, COLUMNS, ("namespace", "precision"), LEGEND),
    "compiled": Form(compiled.Row, compiled.COLUMNS, compiled.NAMES, compiled.LEGEND),
    "peers": Form(peers.Row, peers.COLUMNS, peers.NAMES, peers.LEGEND),
}


def _form(result: dict[str, Any]) -> Form:
    return FORMS[result.get("kind", "measured")]


def rows_of(result: dict[str, Any]) -> list[Any]:
    """A stored result's rows, as what they were."""
    return [_form(result).row(**row) for row in result["rows"]]


def cells(row: Any) -> dict[str, str]:
    """A row's texts by column."""
    form = next(form for form in FORMS.values() if isinstance(row, form.row))
    shown = (*form.names, "note") if row.skipped else form.columns
    return {name: text(row) if name in shown else "" for name, (_, text) in form.columns.items()}


def show(title: str, rows: Sequence[Any], console: Console) -> None:
    """Print one workload's table, and below it why rows have no figures or none to believe."""
    table = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, padding=0)
    form = next(form for form in FORMS.values() if isinstance(rows[0], form.row))
    names = [name for name, (head, _) in form.columns.items() if head]
    for name in names:
        table.add_column(form.columns[name][0], justify="left" if name in form.names else "right", no_wrap=True)
    for row in rows:
        table.add_row(*(cells(row)[name] or "-" for name in names))
    console.print(table)
    for row in rows:
        if row.note:
            console.print(f"{' '.join(cells(row)[name] for name in form.names)}: {row.note}", highlight=False, markup=False)


def markdown(result: dict[str, Any]) -> str:
    """The whole result as tables to read."""
    lines = [f"# {result['title']}", "", *(f"- {key}: {value}" for key, value in (result["machine"] | result["run"]).items())]
    lines += [f"- versions: {', '.join(f'{name} {version}' for name, version in result['versions'].items())}"]
    lines += [f"- not measured: {name}: {reason}" for name, reason in result["left_out"].items()]
    shown = "{operations:.3g} operations a second in a large contraction, {bytes:.3g} bytes a second that all cores read"
    lines += [f"- peak in {precision}: {shown.format(**peaks)}" for precision, peaks in result.get("peaks", {}).items()]
    form = _form(result)
    lines += ["", *(f"- {line}" for line in form.legend)]
    every = rows_of(result)
    for workload in dict.fromkeys(row.workload for row in every):
        table = [form.columns, ["---"] * len(form.columns), *(cells(row).values() for row in every if row.workload == workload)]
        lines += ["", f"## {workload}", "", *("| " + " | ".join(text.replace("|", "/") for text in line) + " |" for line in table)]
    return "\n".join(lines) + "\n"


def merged(results: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Results of the same machine, versions and title as one, with the rows of the last where two have the same cell."""
    found: dict[str, dict[str, Any]] = {}
    for result in results:
        key = json.dumps([result["title"], result["machine"], result["versions"]])
        if key in found:
            names = ("workload", "precision", "namespace", *_form(result).names)
            last = {tuple(row[name] for name in names): row for row in found[key]["rows"] + result["rows"]}
            joined = {name: found[key].get(name, {}) | result.get(name, {}) for name in ("left_out", "peaks")}
            found[key] = result | joined | {"rows": list(last.values())}
        else:
            found[key] = result
    return list(found.values())


def read(path: Path) -> dict[str, Any]:
    """A result that `store` wrote. Raises ValueError for anything else."""
    try:
        result = json.loads(path.read_text(encoding="utf-8"))
        return result | {"rows": [asdict(row) for row in rows_of(result)]}
    except (ValueError, TypeError, KeyError) as problem:
        raise ValueError(f"{path}: not a benchmark's result ({type(problem).__name__}: {problem})") from problem


def store(folder: Path, name: str, result: dict[str, Any]) -> list[Path]:
    """Write NAME.json (every sample) and NAME.md into `folder`, both or neither."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{name}.json", folder / f"{name}.md"]
    with storage.replacing(*paths) as (data, text):
        data.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
        text.write_text(markdown(result), encoding="utf-8")
    return paths


def collected(
    title: str, rows: Iterable[Any], left_out: dict[str, str], where: dict[str, dict[str, Any]], kind: str = "measured"
) -> dict[str, Any]:
    """The result to store; `where` are the "machine", "run" and "versions" of `facts.py`, and where shares of them
    are in the rows the "peaks" by precision; `kind` is a key of FORMS.
    """
    return {"title": title, "kind": kind, **where, "left_out": left_out, "rows": [asdict(row) for row in rows]}
