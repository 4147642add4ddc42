"""The trials of a program's kernels, in a process of their own that may crash without harm.

The process traces the program, and tries the tilings of one kernel after the other: the untuned one first, the others in an
order drawn from a fixed seed. What is measured is kept at once, so that a run which is stopped goes on where it was.
"""

import multiprocessing
import random
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from xformer.frontends.tvm.tiling import DEFAULT, Tiling
from xformer.frontends.tvm.tuning.records import Record, Records, target, version, workload

AGAIN, TURNS = 3, 3  # so many of a kernel's best tilings are measured so often once more: the first time was luck for some
Tried = tuple[str, str, Tiling]  # workload, target, tiling


@dataclass(frozen=True)
class Planned:
    """So many distinct kernels can be tuned, and so many of their tilings are left to be tried."""

    kernels: int
    trials: int


@dataclass(frozen=True)
class Trying:
    """A tiling is about to be tried: the last that is heard of it if the process dies."""

    kernel: str
    workload: str
    target: str
    tiling: Tiling


@dataclass(frozen=True)
class Refused:
    """A tiling whose result was wrong, or that ended its process: it is not kept."""

    kernel: str
    workload: str
    tiling: Tiling
    reason: str


@dataclass(frozen=True)
class Failed:
    """The whole search cannot go on."""

    reason: str


Event = Planned | Trying | Record | Refused
Job = tuple[Callable, tuple]  # a function that can be pickled, and its arguments as Specs


def search(jobs: Sequence[Job], chosen: Any, records: Records, trials: int, minutes: float | None) -> Iterator[Event]:
    """Try at most `trials` tilings of each distinct kernel of the jobs; records are kept as they are found.

    `chosen` is the target as `tvm.compile` takes it. Ends early after so many `minutes`; closing the iterator ends it too.
    Raises RuntimeError where the process cannot even trace the jobs.
    """
    deadline = None if minutes is None else time.monotonic() + 60 * minutes
    crashed: set[Tried] = set()
    while True:
        last: Trying | None = None
        known = {(record.workload, record.target, record.tiling) for record in records.everything() if record.tvm == version()}
        with _Child(jobs, chosen, known | crashed, trials) as events:
            for message in events(deadline):
                if isinstance(message, Failed):
                    raise RuntimeError(message.reason)
                last = message if isinstance(message, Trying) else None
                if isinstance(message, Record):
                    records.append(message)
                yield message
            code = events.code
        if code in (0, None):
            return
        if last is None:
            raise RuntimeError(f"the tuning process ended with {_ending(code)}, and not while it tried a schedule")
        crashed.add((last.workload, last.target, last.tiling))
        yield Refused(last.kernel, last.workload, last.tiling, f"its process ended with {_ending(code)}")


def _ending(code: int) -> str:
    return signal.Signals(-code).name if code < 0 else f"exit code {code}"


class _Child:
    """The process, for as long as the block lasts; called with a deadline it gives messages. `code` is None where it was ended."""

    def __init__(self, jobs: Sequence[Job], chosen: Any, known: set[Tried], trials: int):
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe(duplex=False)
        self.process = context.Process(target=_work, args=(theirs, jobs, chosen, known, trials), daemon=True)
        self.theirs = theirs
        self.code: int | None = None

    def __enter__(self) -> "_Child":
        self.process.start()
        self.theirs.close()  # so that its end is seen here
        return self

    def __call__(self, deadline: float | None) -> Iterator[Event | Failed]:
        while True:
            wait = None if deadline is None else max(deadline - time.monotonic(), 0)
            if not self.connection.poll(wait):
                return
            try:
                yield self.connection.recv()
            except EOFError:
                self.process.join()
                self.code = self.process.exitcode
                return

    def __exit__(self, *_: Any) -> None:
        if self.process.is_alive():
            self.process.kill()
        self.process.join()
        self.connection.close()


# ------------------------------------------------------------------------------------------------------ in the other process
def _work(connection: Connection, jobs: Sequence[Job], chosen: Any, known: set[Tried], trials: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever started this decides
    try:
        from xformer.frontends.tvm.target import machine

        to = machine(chosen)
        plans = _plans(jobs, to, known, trials)
        connection.send(Planned(len(plans), sum(len(plan.tilings) for plan in plans)))
        for plan in plans:
            _tune(connection.send, plan, to)
    except BrokenPipeError:
        return  # whoever asked is gone
    except Exception as error:  # told to the process that asked
        connection.send(Failed(f"{type(error).__name__}: {error}"))
    connection.close()


@dataclass(frozen=True)
class _Plan:
    """What is to be tried of one kernel."""

    name: str
    workload: str
    kernel: Any
    tilings: list[Tiling]


def _plans(jobs: Sequence[Job], to: Any, known: set[Tried], trials: int) -> list[_Plan]:
    from xformer.frontends.tvm import schedules
    from xformer.frontends.tvm.schedules import contraction
    from xformer.frontends.tvm.tracing import trace

    found: dict[str, _Plan] = {}
    for function, arguments in jobs:
        for name, distinct in trace(function, arguments, to).kernels.items():
            if schedules.tunable(distinct.kernel):
                key = workload(distinct.kernel.unscheduled(to))
                _, *others = contraction.tilings(distinct.kernel, to)
                random.Random(key).shuffle(others)
                left = [tiling for tiling in others[: max(trials - 1, 0)] if (key, target(to), tiling) not in known]
                found.setdefault(key, _Plan(name, key, distinct.kernel, left))
    return list(found.values())


def _tune(send: Callable[[Event], Any], plan: _Plan, to: Any) -> None:
    if not plan.tilings:
        return
    from xformer.frontends.tvm.tuning.trial import Bench

    bench = Bench(plan.kernel, to)
    untuned = bench.build(DEFAULT)
    if reason := bench.check(untuned):
        raise ValueError(f"{plan.name}, untuned: {reason}")
    made: dict[Tiling, Any] = {}
    gains: dict[Tiling, float] = {}

    def measured(tilings: list[Tiling]) -> None:
        base, *seconds = bench.times([untuned, *(made[tiling] for tiling in tilings)])
        for tiling, own in zip(tilings, seconds, strict=True):
            gains[tiling] = base / own
            send(Record(plan.name, plan.workload, target(to), version(), tiling, own, base))

    for tiling in plan.tilings:
        send(Trying(plan.name, plan.workload, target(to), tiling))
        try:
            made[tiling] = bench.build(tiling)
            reason = bench.check(made[tiling])
        except Exception as error:  # a schedule that cannot be: for some shapes there are such tilings
            reason = f"{type(error).__name__}: {str(error).strip().splitlines()[-1]}"
        if reason:
            send(Refused(plan.name, plan.workload, tiling, reason))
        else:
            measured([tiling])
    best = sorted(gains, key=gains.__getitem__, reverse=True)[:AGAIN]
    for _ in range(TURNS if best else 0):
        measured(best)
