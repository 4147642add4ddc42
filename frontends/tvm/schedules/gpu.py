"""The rules for a GPU: what a block of threads computes together, and what it shares.

A contraction is a tile of BLOCK_ROWS x two warps for a block, a square of it for each thread, and operands that the block
reads once for all of its threads. Anything else is a row a warp, with what the computes hand on in shared memory.
"""

from typing import Any

from tvm.s_tir import Schedule

from xformer.frontends.tvm.contraction import Packed
from xformer.frontends.tvm.fusion import Kernel
from xformer.frontends.tvm.schedules import loops, rows
from xformer.frontends.tvm.target import Machine

SQUARE = 4  # rows and columns of a thread
DEPTH = 16  # steps of the inner axis that a block's operands are read for at once


def contraction(schedule: Schedule, kernel: Kernel, machine: Machine) -> None:
    """Tile `total` over blocks and threads, stage its operands in shared memory, and fuse what follows it."""
    *others, store = loops.blocks(schedule)
    total = schedule.get_sblock("total")
    for block in others:
        if loops.name(schedule, block) not in ("widen", "pack", "total"):
            schedule.compute_inline(block)
    *groups, i, j, k = schedule.get_loops(total)
    block_row, row, own_row = schedule.split(i, [None, -(-machine.rows(loops.extent(schedule, i)) // SQUARE), SQUARE])
    block_column, column, own_column = schedule.split(j, [None, 2 * machine.lanes // SQUARE, SQUARE])
    step, inner = schedule.split(k, [None, DEPTH])
    schedule.reorder(*groups, block_row, block_column, row, column, step, inner, own_row, own_column)
    place = schedule.fuse(*groups, block_row, block_column)
    schedule.bind(place, "blockIdx.x")
    schedule.bind(row, "threadIdx.y")
    schedule.bind(column, "threadIdx.x")
    schedule.set_scope(total, 0, "local")
    schedule.reverse_compute_at(store, column, preserve_unit_loops=True)
    threads = loops.extent(schedule, row), loops.extent(schedule, column)
    packed = isinstance(kernel.seed.operands[1], Packed)
    right = schedule.cache_read(total, 1, "shared") if packed else schedule.get_sblock("pack")
    for block in (schedule.get_sblock("widen"), right):
        schedule.set_scope(block, 0, "shared")
        schedule.compute_at(block, step, preserve_unit_loops=True)
        _cooperate(schedule, block, threads)
    schedule.decompose_reduction(total, step)


def _cooperate(schedule: Schedule, block: Any, threads: tuple[int, int]) -> None:
    """Divide what a block of threads stages among them."""
    _, _, _, _, *own_loops = schedule.get_loops(block)  # inside those over blocks, threads (2) and steps
    own = schedule.fuse(*own_loops)
    _, row, column = schedule.split(own, [None, *threads])
    schedule.bind(row, "threadIdx.y")
    schedule.bind(column, "threadIdx.x")


def row_by_row(schedule: Schedule, kernel: Kernel, machine: Machine) -> None:
    """A block of one warp for each row of the first compute; the columns of all computes over its threads."""
    rows.inline(schedule)
    for block in schedule.get_output_blocks(schedule.get_sblock("root")):
        if consumers := schedule.get_consumers(block):  # threads do not wait for each other at global memory
            schedule.cache_write(block, 0, "shared", consumers)
    first, *rest = loops.blocks(schedule)
    outputs = {loops.name(schedule, block) for block in schedule.get_output_blocks(schedule.get_sblock("root"))}
    row = schedule.get_loops(first)[0]
    for block in rest:
        if schedule.get_producers(block):
            schedule.reverse_compute_at(block, row, preserve_unit_loops=True)
        else:
            schedule.bind(schedule.get_loops(block)[0], "blockIdx.x")
    schedule.bind(row, "blockIdx.x")
    for block in [first, *rest]:
        _warp(schedule, block, loops.name(schedule, block) in outputs, machine.lanes)


def _warp(schedule: Schedule, block: Any, leaves: bool, lanes: int) -> None:
    """One compute over the threads of a warp: what stays in the kernel is shared, but for a number that each thread has itself."""
    reduces = loops.is_reduction(schedule, block)
    column = schedule.get_loops(block)[-2 if reduces else -1]
    if not leaves and loops.extent(schedule, column) == 1:
        schedule.set_scope(block, 0, "local")
        return
    if not leaves:
        schedule.set_scope(block, 0, "shared")
    _, thread = schedule.split(column, [None, lanes])
    schedule.bind(thread, "threadIdx.x")
    if reduces:  # sums are a thread's own until they are whole
        own = schedule.cache_write(block, 0, "local")
        schedule.reverse_compute_at(own, thread, preserve_unit_loops=True)


def flat(schedule: Schedule, kernel: Kernel, machine: Machine) -> None:
    """One compute without any structure: an element a thread."""
    (block,) = loops.blocks(schedule)
    place, thread = schedule.split(schedule.fuse(*schedule.get_loops(block)), [None, 8 * machine.lanes])
    schedule.bind(place, "blockIdx.x")
    schedule.bind(thread, "threadIdx.x")
