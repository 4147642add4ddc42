"""Cells in a process of their own: opened, called and timed there, by its clock."""

import functools
import multiprocessing
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from multiprocessing.managers import BaseManager
from typing import Any

from benchmarks import cells, measure
from benchmarks.workloads import Subject, Workload

PAUSE = 0.1  # seconds; BLAS and XLA keep a core for some of that after their work is done


class Held:
    """A cell in the other process, and the call of it that is being timed."""

    def open(self, subject: Subject, name: str, precision: str) -> tuple[float, cells.Peak]:
        """Make the model; the seconds it took, and the peak of its library."""
        (runner,), _ = cells.runners("cpu", [name])
        self.cell = cells.Cell.open(subject, runner, precision)
        return self.cell.load, self.cell.peak

    def take(self, workload: Workload) -> measure.Call:
        """Make a call of it the one that is timed. What cannot go from process to process stands for itself in the result."""
        self.call = self.cell.call(workload)
        parts = {part: elsewhere if getattr(self.call, part) else None for part in ("run", "probe", "apart")}
        return replace(self.call, wait=elsewhere, **parts)

    def time(self, part: str) -> tuple[float, Any]:
        """As `Call.time`."""
        return self.call.time(part, time.perf_counter)


def elsewhere(*_: Any) -> Any:
    """Stands for a part of a call that another process has."""
    raise RuntimeError("this runs in another process")


class _Process(BaseManager):
    """One for all cells of a library, as the others have this process."""


_Process.register("Held", Held, exposed=("open", "take", "time"))


@functools.cache
def _process(name: str) -> _Process:
    started = _Process(ctx=multiprocessing.get_context("spawn"))  # a fork would inherit threads that are not there
    started.start()
    return started


@dataclass
class Cell:
    """As `cells.Cell`, in the process of its library; the model is freed with it."""

    runner: cells.Runner
    precision: str
    load: float
    peak: cells.Peak
    held: Any

    @classmethod
    def open(cls, subject: Subject, runner: cells.Runner, precision: str) -> "Cell":
        """The subject's model; raises what opening it there raised."""
        held = _process(runner.name).Held()  # type: ignore[attr-defined]
        return cls(runner, precision, *held.open(subject, runner.name, precision), held)

    def call(self, workload: Workload) -> "Call":
        """What is timed."""
        return Call(**vars(self.held.take(workload)), there=self.held.time)


@dataclass(frozen=True)
class Call(measure.Call):
    """A call that is made and timed in another process."""

    there: Callable[[str], tuple[float, Any]] = elsewhere

    def time(self, part: str, clock: Callable[[], float]) -> tuple[float, Any]:
        """Seconds by the other process's clock, once the threads of this one have gone to sleep."""
        time.sleep(PAUSE)
        return self.there(part)
