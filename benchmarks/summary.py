"""A result in one small table: what it comes to, without how it was found."""

from typing import Any

from benchmarks import report


def table(result: dict[str, Any]) -> str:
    """Markdown. Measured: a line for each workload and library, a column for each precision, with milliseconds, of a decode
    tokens a second, and the speed-up over NumPy in FP32. Compiled ahead of time: a column for each chip, with the ESTIMATE.

    A cell without figures is empty.
    """
    lines_by, column_by, figure, shown = FORMS[result.get("kind", "measured")]
    rows = report.rows_of(result)
    columns = list(dict.fromkeys(getattr(row, column_by) for row in rows))
    table = [[*lines_by, *map(shown, columns)], ["---"] * (len(lines_by) + len(columns))]
    for line in dict.fromkeys(_line(row, lines_by) for row in rows):
        cells = {getattr(row, column_by): figure(row) for row in rows if _line(row, lines_by) == line and not row.skipped}
        table.append([*map(str, line), *(cells.get(column, "") for column in columns)])
    return "\n".join(f"| {' | '.join(line)} |" for line in table) + "\n"


def _line(row, names):
    return tuple(getattr(row, name) for name in names)


def _measured(row):
    figure = f"{row.tokens_per_second:.0f} tokens/s" if " decode " in row.workload else f"{1e3 * row.seconds:.1f} ms"
    return figure if row.speedup is None else f"{figure} ({row.speedup:.2f})"


def _peer(row):
    figure = f"{row.tokens_per_second:.0f} tokens/s" if " decode " in row.workload else f"{1e3 * row.seconds:.1f} ms"
    return figure if row.ahead is None else f"{figure} ({row.ahead:.2f})"


def _compiled(row):
    return f"ESTIMATE {1e3 * row.estimate:.3f} ms"


FORMS = {  # by a result's "kind", as in report.py: what names a line, what names a column, a cell's text, a column's head
    "measured": (("workload", "namespace"), "precision", _measured, str.upper),
    "compiled": (("workload", "precision", "devices"), "chip", _compiled, str),
    "peers": (("workload", "way"), "precision", _peer, str.upper),
}
