"""What the rules share: looking at blocks, and vectors over a loop of any length."""

from typing import Any

from tvm.s_tir import Schedule
from tvm.tirx import IterVar

PARALLEL = 1 << 14  # elements from which on waking the other threads pays: about 5 us of one thread's work


def blocks(schedule: Schedule) -> list[Any]:
    """The blocks of a function in the order of their computation."""
    return schedule.get_child_blocks(schedule.get_sblock("root"))


def name(schedule: Schedule, block: Any) -> str:
    """A block's name: that of its TE compute."""
    return str(schedule.get(block).name_hint)


def is_reduction(schedule: Schedule, block: Any) -> bool:
    """Whether the block reduces over an axis."""
    return any(var.iter_type == IterVar.CommReduce for var in schedule.get(block).iter_vars)


def extent(schedule: Schedule, loop: Any) -> int:
    """How often a loop runs."""
    return int(schedule.get(loop).extent)


def vectorize(schedule: Schedule, loop: Any, lanes: int) -> Any | None:
    """Run a loop in vectors. Returns the loop over the vectors, or None where the length is no multiple of one."""
    length = extent(schedule, loop)
    if length % lanes:
        return None
    outer, inner = schedule.split(loop, [None, lanes])
    schedule.vectorize(inner)
    return outer
