"""Row by row: element-wise work, reductions over rows, softmax, norms and quantisation, in one pass over memory.

All computes of the kernel run under one loop over rows, so that what they hand on is a row in the first-level cache. What
is cheap to compute again, or is read once, is not stored at all.
"""

import math
from typing import Any

from tvm.s_tir import Schedule

from xformer.frontends.tvm import exchange, live
from xformer.frontends.tvm.fusion import Kernel
from xformer.frontends.tvm.mixing import IN_LANES, STRIDED
from xformer.frontends.tvm.nodes import STORED, VECTORS
from xformer.frontends.tvm.schedules import loops
from xformer.frontends.tvm.target import Machine

NEIGHBOURS = 16  # rows
TURNS = 4  # of a core at least, so that all have about as much to do


def apply(schedule: Schedule, kernel: Kernel, machine: Machine) -> None:
    """Put all blocks under the row loop of the first, and each one's columns into vectors."""
    inline(schedule)
    first, *rest = loops.blocks(schedule)
    for block in rest:
        if schedule.get_producers(block):
            schedule.reverse_compute_at(block, schedule.get_loops(first)[0], preserve_unit_loops=True)
        else:
            _over_rows(schedule, kernel, block, machine)
    _over_rows(schedule, kernel, first, machine)
    for block in [first, *rest]:
        exchanges = loops.name(schedule, block).startswith(IN_LANES)
        if exchanges:
            schedule.annotate(schedule.get_loops(block)[0], "pragma_import_llvm", exchange.code())
        vectors(schedule, block, exchange.LANES if exchanges else machine.lanes)


def apply_flat(schedule: Schedule, kernel: Kernel, machine: Machine) -> None:
    """One block without any structure: its outer loop in parallel, its inner one in vectors."""
    (block,) = loops.blocks(schedule)
    parallel(schedule, block)
    schedule.vectorize(schedule.fuse(*schedule.get_loops(block)[-2:]))


def _over_rows(schedule: Schedule, kernel: Kernel, block: Any, machine: Machine) -> None:
    """The block's rows on all cores; where not all are read, some neighbours at once, of whom the first decides.

    Cores then take turns: with whole sequences, which lie in memory one after the other, unless those are too few.
    """
    row = schedule.get_loops(block)[0]
    count = loops.extent(schedule, row)
    constant = not schedule.get(block).reads  # whose rows, if there are as many, may be read in another order
    if kernel.live and count == kernel.seed.shape[0] and not constant:
        sequence = kernel.live.inner * kernel.live.length
        some = math.gcd(sequence, NEIGHBOURS)
        turn = sequence if count >= TURNS * machine.cores * sequence else some
        outer, inner, _ = schedule.split(row, [None, turn // some, some])
        live.mark_groups(schedule, outer, 1, turn)
        live.mark(schedule, inner, some)
    parallel(schedule, block)


def parallel(schedule: Schedule, block: Any) -> None:
    """Run the block's outermost loop on all cores where there is enough to do."""
    nest = schedule.get_loops(block)
    work = 1
    for loop in nest:
        work *= loops.extent(schedule, loop)
    if work >= loops.PARALLEL and loops.extent(schedule, nest[0]) > 1:
        schedule.parallel(nest[0])


def vectors(schedule: Schedule, block: Any, lanes: int) -> None:
    """The columns of one block in vectors; those of a reduction inside the loop that it reduces over."""
    *_, column = nest = schedule.get_loops(block)
    if not loops.is_reduction(schedule, block):
        loops.vectorize(schedule, column, min(lanes, loops.extent(schedule, column)) if _stored(schedule, block) else lanes)
        return
    column, step = nest[-2:]
    if loops.extent(schedule, column) % lanes:
        return
    outer, lane = schedule.split(column, [None, lanes])
    held = loops.extent(schedule, outer) <= VECTORS  # what all the columns add up to stays in registers
    schedule.reorder(*((step, outer, lane) if held else (outer, step, lane)))
    schedule.vectorize(lane)
    if held:
        schedule.unroll(outer)
    start = schedule.decompose_reduction(block, step)
    schedule.vectorize(schedule.get_loops(start)[-1])
    if held:
        schedule.unroll(schedule.get_loops(start)[-2])


def inline(schedule: Schedule) -> None:
    """Leave out element-wise blocks that one block reads, or that need nothing of this kernel.

    Where several blocks would then need nothing either, the one that they read stays: all of them run under its row loop.
    """
    outputs = {loops.name(schedule, block) for block in schedule.get_output_blocks(schedule.get_sblock("root"))}
    for block in reversed(loops.blocks(schedule)):
        if _stored(schedule, block) or loops.is_reduction(schedule, block) or loops.name(schedule, block) in outputs:
            continue
        consumers = schedule.get_consumers(block)
        own, readers = loops.name(schedule, block), [loops.name(schedule, one) for one in consumers]
        if own.startswith(IN_LANES):  # a vector of its own length
            continue
        if any(map(_mixes, (own, *readers))) and not (len(readers) == 1 and readers[0].startswith(IN_LANES)):
            continue  # what is mixed would be computed again for each channel
        if len(consumers) == 1 or not (schedule.get_producers(block) or sum(len(schedule.get_producers(c)) == 1 for c in consumers) > 1):
            schedule.compute_inline(block)
    for block in loops.blocks(schedule):
        if not (_mixes(loops.name(schedule, block)) or _stored(schedule, block)):
            continue
        # Placing a block inverts what it says to read, and could not invert what this one reads: some of a row that is whole by then.
        schedule.annotate_buffer_access(block, 0, "read", lambda row, column: (row, column))


def _stored(schedule: Schedule, block: Any) -> bool:
    return any(name in schedule.get(block).annotations for name in STORED)


def _mixes(name: str) -> bool:
    return name.startswith((STRIDED, IN_LANES))
