"""The other side of `worker`: a model in a process of its own, whose calls are timed like any other."""

import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks import apart
from benchmarks.__main__ import SLOW
from benchmarks.ahead import pool
from benchmarks.peers.libraries import Way
from benchmarks.peers.points import Point
from xformer import machine

PAUSE = 0.2  # seconds before a sample, beside that of `apart`: the threads of Intel's OpenMP keep their cores for as long
PATIENCE = 240.0  # seconds that an answer may take
COMMAND = (sys.executable, "-m", "benchmarks.peers.worker")


class PeerError(RuntimeError):
    """What another process could not do, in its own words."""

    @property
    def row(self) -> str:
        """As a row tells it: what a library does not offer is no failure."""
        told = str(self).removeprefix("NotImplementedError: ")
        return told if told != str(self) else f"failed: {self}"


def environment() -> dict[str, str | None]:
    """The same for every library: as many threads as there are cores, nobody asked for models, no settings that slow NumPy down."""
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), str(machine.cores()["usable"]))
    offline = dict.fromkeys(("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"), "1")
    return {**dict.fromkeys(SLOW), **threads, **offline, "TOKENIZERS_PARALLELISM": "false"}


class Remote:
    """A model of `source` in a process that lives as long as this does."""

    def __init__(self, source: Path, command: Sequence[str] = COMMAND):
        self.source, self.worker = source, pool.Worker(environment(), command)

    def ask(self, do: str, **job: Any) -> dict[str, Any]:
        """The other process's answer. Raises PeerError where it has none, and with what went wrong there."""
        answer = self.worker.run({"do": do, **job}, PATIENCE)
        if "failed" in answer:
            raise PeerError(answer["failed"])
        return answer

    def convert(self, module: str, role: str, folder: Path) -> None:
        """Write what the library needs to `folder`, unless it is there, and end the process: nothing of that stays in memory."""
        if not folder.exists():
            self.ask("convert", module=module, role=role, source=str(self.source), folder=str(folder))
            self.close()

    def load(self, module: str, way: Way, folder: Path) -> float:
        """Make the model ready; seconds."""
        job = {"library": way.library, "role": way.role, "precision": way.precision, "variant": way.variant}
        self.loaded = {"do": "load", "module": module, **job, "source": str(self.source), "folder": str(folder)}
        return self.ask(**self.loaded)["load"]

    def call(self, point: Point) -> apart.Call:
        """What is timed. A process that another point has ended starts again."""
        if self.worker.process is None:
            self.ask(**self.loaded)
        taken = self.ask("take", **asdict(point))
        parts = {part: apart.elsewhere if taken[part] else None for part in ("probe", "apart")}
        here = {"run": apart.elsewhere, "wait": apart.elsewhere, "compiles": True, "factor": taken["factor"], "least": taken["least"]}
        return apart.Call(**here, **parts, there=self._time)

    def judge(self, reference: Path) -> dict[str, float | None]:
        """The error of what was timed last."""
        return self.ask("judge", reference=str(reference))

    def refer(self, point: Point, reference: Path) -> None:
        """Let this model be what the others are compared with."""
        self.ask("take", **asdict(point))
        self.ask("refer", reference=str(reference))

    def close(self) -> None:
        """End the process, and with it the model."""
        self.worker.stop()

    def _time(self, part: str) -> tuple[float, None]:
        time.sleep(PAUSE)
        return self.ask("time", part=part)["seconds"], None
