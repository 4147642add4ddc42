"""What the benchmarks' commands share: choices that are checked, and progress that is shown."""

import contextlib
import sys
from collections.abc import Callable, Iterator, Sequence

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TimeElapsedColumn, TimeRemainingColumn


def chosen(option: str, given: Sequence | None, known: Sequence) -> list:
    """What was given in the order of the `known`, or all of them."""
    unknown = sorted(set(given or ()) - set(known))
    if unknown:
        raise typer.BadParameter(f"{', '.join(map(repr, unknown))}; known: {', '.join(map(str, known))}", param_hint=option)
    return [one for one in known if not given or one in given]


@contextlib.contextmanager
def progress(problems: Console, total: int) -> Iterator[Callable[[str, float], None]]:
    """Something to be told what is going on and what share of a workload was done: a bar, or lines where there is no terminal."""
    columns = ("{task.description}", BarColumn(None), TaskProgressColumn(), TimeElapsedColumn(), "left", TimeRemainingColumn())
    # Tables go around the bar where both are on a terminal, and to the file where there is one.
    options = {"transient": True, "disable": not problems.is_terminal, "redirect_stdout": sys.stdout.isatty()}
    with Progress(*columns, console=problems, **options) as bar:
        task = bar.add_task("", total=total)
        said = ""

        def told(what: str, share: float) -> None:
            nonlocal said
            bar.update(task, advance=share, description=what)
            if not problems.is_terminal and what != said:
                now = bar.tasks[0]
                left = f", about {now.elapsed * (100 / now.percentage - 1):.0f} s left" if now.percentage and now.elapsed else ""
                problems.print(f"[{now.percentage:.0f} %{left}] {what}", highlight=False, markup=False)
            said = what

        yield told
