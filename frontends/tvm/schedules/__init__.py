"""The schedule of each kernel, by a rule that its structure picks: `contraction` or `rows`. No tuning, no default code."""

from typing import Any

from tvm import s_tir

from xformer.frontends.tvm import live
from xformer.frontends.tvm.contraction import Contract, Pack
from xformer.frontends.tvm.fusion import Kernel
from xformer.frontends.tvm.schedules import contraction, gpu, rows
from xformer.frontends.tvm.target import Machine


def rule(kernel: Kernel) -> str:
    """The rule that a kernel takes."""
    return "contraction" if isinstance(kernel.seed, Contract) else "pack" if isinstance(kernel.seed, Pack) else "rows"


def tunable(kernel: Kernel) -> bool:
    """Whether its rule leaves something open."""
    return isinstance(kernel.seed, Contract)


CPU = {"contraction": contraction.apply, "pack": rows.apply_flat, "rows": rows.apply}
GPU = {"contraction": gpu.contraction, "pack": gpu.flat, "rows": gpu.row_by_row}


def apply(kernel: Kernel, function: Any, machine: Machine) -> Any:
    """The kernel's function, scheduled by its rule. A ScheduleError is a fault of the rule, never of the model."""
    schedule = s_tir.Schedule(function)
    (GPU if machine.gpu else CPU)[rule(kernel)](schedule, kernel, machine)
    scheduled = schedule.mod["main"]
    if kernel.live is None:
        return scheduled
    place = kernel.arguments.index(kernel.live.counts)
    return live.cut(scheduled, kernel.live, place, kernel.live.counts in kernel.reads)
