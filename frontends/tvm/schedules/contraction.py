"""A contraction over packed panels: register tiles of rows x two vectors, the inner axis innermost, what follows fused in.

The tile's accumulators never leave the registers before bias, activation and residual have been applied. Panels of the
right operand go to the cores in turn, one or some at a time; they stay in the cache while all rows pass over them.
"""

import math
from typing import Any

from tvm.s_tir import Schedule

from xformer.frontends.tvm import live, tiling
from xformer.frontends.tvm.contraction import Packed
from xformer.frontends.tvm.fusion import Kernel
from xformer.frontends.tvm.schedules import intrinsics, loops, rows
from xformer.frontends.tvm.target import Machine
from xformer.frontends.tvm.tiling import DEFAULT, Tiling

READING = 8  # rows whose sums take as long as reading the right operand from beyond the second-level cache


def tilings(kernel: Kernel, machine: Machine) -> list[Tiling]:
    """What tuning may choose from for a kernel, the untuned tiling first."""
    a, b, *_ = kernel.seed.operands
    if kernel.seed.in_place(machine) == "rows":
        return [DEFAULT]
    layout = b.layout if isinstance(b, Packed) else machine.layout(b.dtype)
    panels, steps, *_ = layout.shape(b.shape[-2], a.shape[-1])
    return list(tiling.space(a.shape[-2], panels, steps, machine.most_rows))


def apply(schedule: Schedule, kernel: Kernel, machine: Machine) -> None:
    """Tile `total`, fuse what follows it, and prepare its operands before it."""
    if kernel.seed.in_place(machine) == "rows":
        _along_rows(schedule)
        return
    *others, store = loops.blocks(schedule)
    total = schedule.get_sblock("total")
    for block in others:
        if loops.name(schedule, block) in ("alternate", "widen", "pack"):
            _operand(schedule, kernel, block, machine)
        elif loops.name(schedule, block) != "total":
            schedule.compute_inline(block)
    _tile(schedule, kernel, total, store, machine)


def _along_rows(schedule: Schedule) -> None:
    """A vector of partial sums for each result, which stays in registers until it is one number."""
    *others, store = loops.blocks(schedule)
    sums = [block for block in others if loops.name(schedule, block).startswith(("partial", "halved"))]
    for block in others:
        if block not in sums:
            schedule.compute_inline(block)
    *outer, column = schedule.get_loops(store)
    for block in reversed(sums):
        schedule.compute_at(block, column, preserve_unit_loops=True)
        schedule.set_scope(block, 0, "local")
    row = schedule.fuse(*outer) if len(outer) > 1 else outer[0]
    *_, lane, step = schedule.get_loops(sums[0])
    work = [loops.extent(schedule, loop) for loop in (row, column, lane, step)]
    if math.prod(work) >= loops.PARALLEL:
        schedule.parallel(row)
    schedule.reorder(step, lane)
    schedule.vectorize(lane)
    schedule.unroll(step)
    schedule.vectorize(schedule.get_loops(schedule.decompose_reduction(sums[0], step))[-1])
    for block in sums[1:]:
        schedule.vectorize(schedule.get_loops(block)[-1])


def _operand(schedule: Schedule, kernel: Kernel, block: Any, machine: Machine) -> None:
    """Widening or copying the left operand, or packing the right one: a pass of its own, its outer loops in parallel."""
    nest = schedule.get_loops(block)
    if loops.name(schedule, block) == "pack":
        schedule.fuse(*nest[:2]) if len(nest) == 5 else None
        rows.parallel(schedule, block)
        return
    alternates = loops.name(schedule, block) == "alternate"
    steps = 0
    if len(nest) == (4 if alternates else 3):
        steps = loops.extent(schedule, nest[1])
        schedule.fuse(*nest[:2])
    if kernel.live:
        live.mark(schedule, schedule.get_loops(block)[0], loops.extent(schedule, nest[-1]) if alternates else 1, steps)
    rows.parallel(schedule, block)
    if alternates:
        schedule.unroll(schedule.get_loops(block)[-1])
        return
    loops.vectorize(schedule, schedule.get_loops(block)[-1], machine.lanes)


def _tile(schedule: Schedule, kernel: Kernel, total: Any, store: Any, machine: Machine) -> None:
    dot = machine.dots[kernel.seed.operands[0].dtype]
    left, right = (str(region.source.dtype) for region in schedule.get(total).reads)
    *groups, i, j, k = schedule.get_loops(total)
    count = loops.extent(schedule, i)
    row_tile, row = schedule.split(i, [None, machine.rows(count)])
    panel, column = schedule.split(j, [None, 2 * machine.lanes])
    vector, lane = schedule.split(column, [None, machine.lanes])
    steps, inner = schedule.split(k, [None, dot.depth])
    unroll = next(n for n in (machine.tiling.unroll, 2, 1) if loops.extent(schedule, steps) % n == 0)
    step, again = schedule.split(steps, [None, unroll])
    panel, near = schedule.split(panel, [None, machine.tiling.panels])
    schedule.reorder(*groups, panel, row_tile, near, step, again, row, vector, lane, inner)
    schedule.set_scope(total, 0, "local")
    schedule.reverse_compute_at(store, near, preserve_unit_loops=True)
    loops.vectorize(schedule, schedule.get_loops(store)[-1], machine.lanes)
    panels = loops.extent(schedule, panel)
    # Where cores take groups in turn, a core keeps all panels of one, unless there are too few groups.
    apart = bool(groups and kernel.live) and loops.extent(schedule, groups[0]) >= rows.TURNS * machine.cores
    outer = groups[0] if apart else schedule.fuse(*groups, panel) if groups else panel
    if kernel.live:
        live.mark(schedule, row_tile, machine.rows(count))
        if groups:
            live.mark_groups(schedule, outer, 1 if apart else panels, kernel.live.length)
    work = loops.extent(schedule, outer) * (panels if apart else 1) * loops.extent(schedule, near) * loops.extent(schedule, step) * 4
    if max(count, READING) * work >= loops.PARALLEL:
        schedule.parallel(outer)  # before decompose_reduction, which it would refuse
    for loop in (again, row, vector):
        schedule.unroll(loop)
    if not dot.intrinsic:
        schedule.vectorize(lane)
    *_, row, vector, first_lane = schedule.get_loops(schedule.decompose_reduction(total, step))
    schedule.vectorize(first_lane)
    schedule.unroll(vector)
    schedule.unroll(row)
    if dot.intrinsic:
        schedule.tensorize(lane, intrinsics.register(dot, machine.lanes, left, right))
    if code := intrinsics.imported(dot):
        schedule.annotate(outer, "pragma_import_llvm", code)
