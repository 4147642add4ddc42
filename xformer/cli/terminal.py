"""What a person sees: progress on standard error, tables and text on standard output."""

import contextlib
import itertools
import json
import sys
from collections.abc import Callable, Iterator
from typing import Any
from unicodedata import category

import numpy as np
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from xformer.backends import NAMESPACES
from xformer.cli.exchange import Continuations, Vectors
from xformer.parity.report import ALONE, KEY, WHOLE
from xformer.precision import PRECISIONS

STYLES = {"works": "green", "missing": "yellow", "broken": "bold red"}


@contextlib.contextmanager
def progress(what: str, total: int | None) -> Iterator[Callable[[int], None]]:
    """A bar with the time left while the block runs, a moving one when `total` is unknown; only where a person reads it."""
    if not sys.stderr.isatty():
        yield lambda count: None
        return
    columns = [TextColumn("{task.description}"), BarColumn(), *([MofNCompleteColumn(), TimeRemainingColumn()] if total else [])]
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=total)
        yield lambda count: bar.advance(task, count)


def stream(prompt: str, pieces: Iterator[str]) -> None:
    """The pieces as they come; on a terminal, after the prompt."""
    watched = sys.stdout.isatty()
    if watched:
        _console().print(Text(printable(prompt), "dim"), end="", soft_wrap=True)
    for piece in pieces:
        print(printable(piece) if watched else piece, end="", flush=True)
    print()


def printable(text: str) -> str:
    """`text` without characters that command a terminal: a model writes them too."""
    return "".join("\ufffd" if category(character) == "Cc" and character not in "\n\t" else character for character in text)


def show(result: Vectors | Continuations) -> None:
    """A result to read."""
    if isinstance(result, Vectors):
        _vector(result) if len(result.texts) == 1 else _cosines(result)
        return
    for prompt, text in zip(result.prompts, result.texts, strict=True):
        if sys.stdout.isatty():
            _console().print(Text(printable(prompt), "dim"), Text(printable(text)), sep="", end="\n\n", soft_wrap=True)
        else:
            print(text)


def _vector(result: Vectors) -> None:
    vector, first = result.vectors[0], 8
    numbers = "  ".join(f"{number:+.4f}" for number in vector[:first])
    print(f"{len(vector)} numbers, norm {np.linalg.norm(vector):.4f}\n{numbers}" + ("  ..." if len(vector) > first else ""))


def _cosines(result: Vectors) -> None:
    """The cosine of each pair, for as many texts as fit in the width."""
    console, count = _console(), len(result.texts)
    shown = min(count, max(2, (console.width - 34) // 8))
    unit = result.vectors[:shown].astype(np.float64)
    unit /= np.maximum(np.linalg.norm(unit, axis=1, keepdims=True), np.finfo(np.float64).tiny)
    table = _table("", "cosine", *(str(index + 1) for index in range(shown)))
    for index, row in enumerate(unit @ unit.T):
        text = Text(printable(result.texts[index]), no_wrap=True, overflow="ellipsis")
        table.add_row(str(index + 1), text, *(f"{cosine:.3f}" for cosine in row))
    console.print(table)
    if shown < count:
        console.print(f"The first {shown} of {count} texts; --output or --json gives all vectors.")


def kernels(found: list[Any]) -> None:
    """What each function of a model became: its distinct kernels, how often each is called, and which rule made it."""
    console = _console()
    for function, group in itertools.groupby(found, key=lambda kernel: kernel.function):
        rows = list(group)
        table = _table("kernel", "rule", "calls", "result")
        for kernel in rows:
            table.add_row(kernel.name, kernel.rule, str(kernel.calls), kernel.result)
        console.print(table)
        console.print(f"{function}: {len(rows)} distinct kernels, {sum(kernel.calls for kernel in rows)} calls", soft_wrap=True)


def times(timings: list[Any], peaks: Any) -> None:
    """Each kernel's time, its share of its function, and the share of the machine's speed and bandwidth that it reaches."""
    console = _console()
    for function, group in itertools.groupby(timings, key=lambda timing: timing.kernel.function):
        rows = sorted(group, key=lambda timing: timing.total, reverse=True)
        total = sum(timing.total for timing in rows)
        table = _table("kernel", "calls", "us", "share", "GOP/s", "GB/s", "bound")
        for timing in rows:
            speed, traffic = timing.operations / timing.seconds, timing.bytes / timing.seconds
            bound = "compute" if speed / peaks.operations > traffic / peaks.bandwidth else "memory"
            reached = max(speed / peaks.operations, traffic / peaks.bandwidth)
            figures = (f"{1e6 * timing.seconds:.1f}", f"{timing.total / total:.0%}", f"{speed / 1e9:.0f}", f"{traffic / 1e9:.1f}")
            table.add_row(timing.kernel.name.partition(".")[2], str(timing.kernel.calls), *figures, f"{bound} {reached:.0%}")
        console.print(table)
        operations = sum(timing.kernel.calls * timing.operations for timing in rows)
        traffic = sum(timing.kernel.calls * timing.bytes for timing in rows)
        shares = f"{operations / total / peaks.operations:.0%} of the peak, {traffic / total / peaks.bandwidth:.0%} of the bandwidth"
        console.print(f"{function}: {1e3 * total:.2f} ms in kernels, {shares}", soft_wrap=True)
    console.print(f"measured peaks: {peaks.operations / 1e9:.0f} GOP/s, {peaks.bandwidth / 1e9:.1f} GB/s", soft_wrap=True)


def gains(records: list[Any]) -> None:
    """The fastest schedule of each kernel, and how much faster than the untuned one it is."""
    table = _table("kernel", "of target", "ms", "x untuned", "rows", "unroll", "panels")
    for record in sorted(records, key=lambda record: record.gain, reverse=True):
        sizes = (str(size) for size in vars(record.tiling).values())
        cpu = json.loads(record.target).get("mcpu", "") if record.target.startswith("{") else record.target
        table.add_row(record.kernel, cpu, f"{1e3 * record.seconds:.3f}", f"{record.gain:.2f}", *sizes)
    _console().print(table)


def parity(rows: list[dict[str, str]]) -> None:
    """The summary of `xformer.parity.report`, a row a place and precision."""
    console = _console()
    for title, names in (("As a whole", KEY + WHOLE), ("Each operation alone, given what NumPy gave it", KEY + ALONE)):
        table = _table(*names, title=title)
        for row in rows:
            table.add_row(*(row[name] for name in names))
        console.print(table)


def diagnose(facts: dict[str, Any]) -> None:
    """What `xformer.cli.doctor` found."""
    console, libraries = _console(), facts["libraries"]
    console.print(_machine(facts))
    console.print(_versions(libraries))
    console.print(_capabilities(libraries))
    for library in libraries:
        reasons: dict[str, list[str]] = {}
        for precision, finding in library.get("precisions", {}).items():
            if finding["state"] == "missing":
                reasons.setdefault(finding["why"], []).append(precision)
        for why, precisions in reasons.items():
            console.print(Text(f"{library['module']}, {' '.join(precisions)}: {why}", STYLES["missing"]))
    for note in facts["notes"]:
        console.print(Text(f"note: {note}"))
    for problem in facts["broken"]:
        console.print(Text(f"broken: {problem}", STYLES["broken"]))
    if not facts["broken"]:
        console.print(Text("Nothing that is installed is broken.", STYLES["works"]))


def _machine(facts: dict[str, Any]) -> Table:
    features, cores, memory = facts["cpu"]["features"], facts["cores"], facts["memory"]
    there = [name for name, present in (features or {}).items() if present]
    absent = [name for name, present in (features or {}).items() if not present]
    quota = "" if cores["quota"] is None else f", a quota of {cores['quota']:g}"
    sizes = {name: "unknown" if size is None else f"{size / 2**30:.1f} GiB" for name, size in memory.items()}
    limit = "" if memory["limit"] is None else f", a limit of {sizes['limit']}"
    table = Table.grid(padding=(0, 2))
    for name, value in {
        "xformer": f"{facts['xformer']}, Python {facts['python']}, {facts['platform']}",
        "CPU": facts["cpu"]["model"],
        "it has": ", ".join(there) or "unknown",
        "it has not": ", ".join(absent) or "unknown",
        "cores": f"{cores['usable']} to use: {cores['logical']} in the machine, {cores['allowed']} allowed{quota}",
        "memory": f"{sizes['available']} free of {sizes['total']}{limit}",
        "NumPy's BLAS": facts["blas"] or "unknown",
    }.items():
        table.add_row(Text(name, "bold"), Text(value))
    return table


def _versions(libraries: list[dict[str, Any]]) -> Table:
    table = _table("library", "installed", "wanted", "")
    for library in libraries:
        if not library["installed"]:
            state = Text(f"pip install {library['install']}", "dim")
        elif not library["fits"]:
            state = Text("another version is wanted", STYLES["broken"])
        else:
            imports = library["imports"]["state"]
            state = Text("imports" if imports == "works" else "does not import", STYLES[imports])
        table.add_row(library["distribution"], library["installed"] or "no", library["wanted"] or "any", state)
    return table


def _capabilities(libraries: list[dict[str, Any]]) -> Table:
    table = _table("namespace", *PRECISIONS, "devices")
    found = {library["module"]: library for library in libraries}
    for name in NAMESPACES:
        if not found[name]["installed"]:
            table.add_row(name, *[Text("-", "dim")] * len(PRECISIONS), Text("not installed", "dim"))
            continue
        states = [finding["state"] for finding in found[name]["precisions"].values()]
        devices = Text(", ".join(found[name]["devices"]) or "none", no_wrap=True, overflow="ellipsis")
        table.add_row(name, *(Text(state, STYLES[state]) for state in states), devices)
    return table


def _table(*headings: str, title: str | None = None) -> Table:
    return Table(*headings, box=SIMPLE_HEAD, header_style="bold", pad_edge=False, title=title, title_justify="left")


def _console() -> Console:
    return Console(highlight=False)
