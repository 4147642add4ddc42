"""What tuning has found, one JSON line a measurement: data, never code.

A record counts for one kernel (the SHA-256 of its TE), one target with its number of cores, and one version of TVM. The
fastest record of a kernel is the one that compiling uses.
"""

import hashlib
import importlib.metadata
import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from xformer.frontends.tvm import tiling
from xformer.frontends.tvm.tiling import Tiling

FOLDER = "XFORMER_TVM_RECORDS"  # the variable that names another folder than the usual one
FILE = "records.jsonl"
SHIPPED = Path(__file__).parent / FILE
CONFIRMED = 3  # measurements after which a tiling's gain is believed


@dataclass(frozen=True)
class Record:
    """One measurement of a kernel whose result was right: `seconds` with a tiling, in a run that needed `untuned` without one."""

    kernel: str  # for people
    workload: str
    target: str
    tvm: str
    tiling: Tiling
    seconds: float
    untuned: float

    @property
    def key(self) -> tuple[str, str, str]:
        """What it counts for."""
        return self.workload, self.target, self.tvm

    @property
    def gain(self) -> float:
        """How much faster than untuned: 1.1 is ten per cent."""
        return self.untuned / self.seconds


def version() -> str:
    """The version of TVM that is installed."""
    return importlib.metadata.version("apache-tvm")


def workload(computes: Any) -> str:
    """What tells a kernel from all others: its TE as a function, whatever the target."""
    return hashlib.sha256(computes.without_attr("target").script().encode()).hexdigest()


def target(machine: Any) -> str:
    """A target as records have it: everything that code depends on, and the cores that shared the work."""
    options = {"mcpu": machine.target.attrs.get("mcpu", "generic"), "mattr": machine.target.attrs.get("mattr", [])}
    options |= {"mtriple": machine.target.attrs.get("mtriple", ""), "cores": machine.cores}
    return json.dumps({name: str(value) for name, value in options.items()}, sort_keys=True)


@dataclass
class Records:
    """Records by what they count for, and how often compiling found one or did not. New ones go to the file `path`."""

    path: Path | None = None
    found: dict[tuple[str, str, str], list[Record]] = field(default_factory=dict)
    hits: int = 0
    misses: int = 0

    def add(self, record: Record) -> None:
        """Keep a record in memory."""
        self.found.setdefault(record.key, []).append(record)

    def append(self, record: Record) -> None:
        """Keep a record, on disk as well: in one write, so that two processes may append to one file."""
        if self.path is not None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("ab") as file:
                file.write(line(record).encode())
        self.add(record)

    def tiling(self, computes: Any, machine: Any) -> Tiling | None:
        """What is fastest for a kernel, given as its TE, on a machine; None where it was never tuned. Counted as a hit or a miss."""
        records = self.found.get((workload(computes), target(machine), version()), [])
        self.hits, self.misses = self.hits + bool(records), self.misses + (not records)
        return fastest(records).tiling if records else None

    def everything(self) -> list[Record]:
        """All records."""
        return [record for records in self.found.values() for record in records]


def folder() -> Path:
    """Where this user's records are: $XFORMER_TVM_RECORDS, or the folder for such data that the system names."""
    if os.environ.get(FOLDER):
        return Path(os.environ[FOLDER])
    return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share") / "xformer" / "tvm"


def load(path: Path | None = None, shipped: bool = True) -> Records:
    """The records in `path`, by default this user's, with those that came with the package. Raises ValueError for a damaged file."""
    result = Records(folder() / FILE if path is None else path)
    for source in ([SHIPPED] if shipped else []) + [result.path]:
        for record in read(source) if source is not None and source.is_file() else []:
            result.add(record)
    return result


def read(path: Path) -> list[Record]:
    """The records in a file. Raises ValueError naming the line that is none; a last line that was cut off is left out."""
    *lines, last = path.read_bytes().split(b"\n")
    if last:  # whoever wrote it was stopped
        lines += [last] if _whole(last) else []
    return [_record(text, f"{path}, line {number}") for number, text in enumerate(lines, 1) if text.strip()]


def line(record: Record) -> str:
    """A record as a file has it."""
    return json.dumps(asdict(record), sort_keys=True) + "\n"


def fastest(records: Sequence[Record]) -> Record:
    """Of one kernel's records the one with the largest gain, of a tiling measured several times the median one.

    Where some tilings were measured again, only they count: a single measurement may be luck. Where none gains anything, it
    is one of the untuned tiling.
    """
    by_tiling: dict[Tiling, list[Record]] = {}
    for record in records:
        by_tiling.setdefault(record.tiling, []).append(record)
    enough = min(max(map(len, by_tiling.values())), CONFIRMED)
    confirmed = [sorted(same, key=lambda record: record.gain) for same in by_tiling.values() if len(same) >= enough]
    medians = [same[len(same) // 2] for same in confirmed]
    best = max(medians, key=lambda record: record.gain)
    return best if best.gain > 1 else replace(best, tiling=tiling.DEFAULT, seconds=best.untuned)


def shortened(records: Records) -> list[Record]:
    """One record for each kernel, target and version: what is worth giving to others."""
    chosen = [fastest(same) for same in records.found.values()]
    return sorted(chosen, key=lambda record: (record.target, record.kernel, record.workload))


def _whole(text: bytes) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _record(text: bytes, where: str) -> Record:
    try:
        value = json.loads(text)
        if not isinstance(value, dict) or sorted(value) != sorted(item.name for item in fields(Record)):
            raise ValueError(f"a record has {', '.join(item.name for item in fields(Record))}")
        for name in ("kernel", "workload", "target", "tvm"):
            if not isinstance(value[name], str):
                raise ValueError(f"{name} must be a text, got {value[name]!r}")
        for name in ("seconds", "untuned"):
            if not isinstance(value[name], float) or not 0 < value[name] < float("inf"):
                raise ValueError(f"{name} must be a positive number of seconds, got {value[name]!r}")
        return Record(**{**value, "tiling": tiling.read(value["tiling"])})
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{where}: not a tuning record ({error})") from error
