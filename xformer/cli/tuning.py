"""What the command line does with `xformer.frontends.tvm.tune` and its records."""

import contextlib
import functools
import sys
from pathlib import Path
from typing import Any

from xformer import checkpoint
from xformer import config as presets
from xformer.cli import compilation, terminal
from xformer.frontends import tvm
from xformer.frontends.tvm.tuning import records
from xformer.frontends.tvm.tuning.records import Record, Records


def tuned(
    name: str, batch: int, length: int | None, new: int, precision: str, target: str | None, trials: int, minutes: float | None
) -> None:
    """Tune the kernels of a model in a folder or of a preset, and say what was gained."""
    config = checkpoint.read(name).config if Path(name).is_dir() else presets.find(name)
    shape = (batch, length or compilation.usual_length(config), new)
    kept = records.load(shipped=False)
    with contextlib.ExitStack() as stack:
        told = functools.partial(_told, stack, {})
        options: dict[str, Any] = {"precision": precision, "target": target, "trials": trials, "minutes": minutes}
        found = tvm.tune(config, shape, records=kept, told=told, **options)
    terminal.gains(found)
    print(_state(kept))


def _told(stack: contextlib.ExitStack, bar: dict[str, Any], event: Any) -> None:
    """Show how far a search is: a bar on a terminal, a line for each kernel elsewhere."""
    kind = type(event).__name__
    if kind == "Planned":
        bar["advance"] = stack.enter_context(terminal.progress("trying", event.trials))
    elif kind == "Refused":
        print(f"refused: {event.kernel} with {event.tiling}: {event.reason}", file=sys.stderr)
    elif kind == "Trying":
        bar["advance"](1)
        if not sys.stderr.isatty() and bar.get("kernel") != event.kernel:
            print(f"tuning {event.kernel}", file=sys.stderr)
        bar["kernel"] = event.kernel


def _state(kept: Records) -> str:
    return f"{kept.path}: {len(kept.found)} kernels, {len(kept.everything())} measurements"


def shown(given: Path | None, wanted: Path | None, target: str | None) -> None:
    """Say which records there are, after those in the file `given` were taken in; write the best to `wanted`."""
    kept = records.load(shipped=False)
    if given is not None:
        _import(kept, given, target)
    if wanted is not None:
        best = records.shortened(kept)
        wanted.write_text("".join(map(records.line, best)), encoding="utf-8")
        print(f"{wanted}: {len(best)} kernels")
        return
    terminal.gains(records.shortened(kept))
    print(_state(kept))


def _import(kept: Records, given: Path, target: str | None) -> None:
    """Keep the records that count here; name the others."""
    from xformer.frontends.tvm.target import machine

    here, known = records.target(machine(target)), set(kept.everything())
    taken = 0
    for record in records.read(given):
        if reason := _refused(record, here):
            print(f"refused: {record.kernel} {record.workload[:12]}: {reason}", file=sys.stderr)
        elif record not in known:
            kept.append(record)
            taken += 1
    print(f"{given}: {taken} records taken in")


def _refused(record: Record, here: str) -> str:
    if record.tvm != records.version():
        return f"it is of apache-tvm {record.tvm}; {records.version()} is installed"
    return "" if record.target == here else f"it is for {record.target}; this is {here}"
