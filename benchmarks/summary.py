"""A result in one small table: a line for each workload and library, a column for each precision."""

from typing import Any

from benchmarks.report import Row


def table(result: dict[str, Any]) -> str:
    """Markdown: milliseconds (speed-up over NumPy in FP32); of a decode, tokens a second. A cell without figures is empty."""
    rows = [Row(**row) for row in result["rows"]]
    precisions = list(dict.fromkeys(row.precision for row in rows))
    lines = [["", "", *(precision.upper() for precision in precisions)], ["---"] * (2 + len(precisions))]
    for workload, library in dict.fromkeys((row.workload, row.namespace) for row in rows):
        cells = {row.precision: _figure(row) for row in rows if (row.workload, row.namespace) == (workload, library)}
        lines.append([workload, library, *(cells.get(precision, "") for precision in precisions)])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def _figure(row: Row) -> str:
    if row.skipped:
        return ""
    figure = f"{row.tokens_per_second:.0f} tokens/s" if " decode " in row.workload else f"{1e3 * row.seconds:.1f} ms"
    return figure if row.speedup is None else f"{figure} ({row.speedup:.2f})"
