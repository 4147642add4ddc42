"""Rows that nobody reads are not computed.

What `padding.Pad` and `padding.Unpad` read of their operands is known while a program runs: the real tokens. `lives` follows
that back from them, through all that works row by row, to which rows of each node anybody reads at all; `cut` makes a
scheduled kernel skip the others. What a skipped row holds in memory is anything, and reaches no row that is read.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.s_tir import SBlock, SBlockRealize, Schedule

from xformer.frontends.tvm.array import Array, row_major
from xformer.frontends.tvm.contraction import Contract
from xformer.frontends.tvm.mixing import Mix
from xformer.frontends.tvm.nodes import Elementwise, Node, Reduce
from xformer.frontends.tvm.padding import Pad, Scan, Unpad

MARK, GROUPS = "xformer.live_rows", "xformer.live_groups"  # annotations of loops


@dataclass(frozen=True)
class Live:
    """Which rows are read: row r if (r // inner) % length < counts[first + r // outer], the number of tokens of its sequence."""

    counts: Node
    first: int
    inner: int
    length: int
    outer: int

    def test(self, counts: tirx.Buffer, row: Any) -> Any:
        """Whether a row is read, as an expression."""
        return row // self.inner % self.length < tirx.BufferLoad(counts, [0, self.first + row // self.outer])


# ---------------------------------------------------------------------------------------------------- which rows are read
def lives(nodes: Sequence[Node], outputs: Iterable[Node]) -> dict[Node, Live]:
    """Of the nodes, in program order, those of which only some rows are read."""
    found: dict[Node, Live | None] = dict.fromkeys(outputs)
    for node in reversed(nodes):
        for x in node.operands:
            read = _read(node, x, found.get(node))
            found[x.node] = read if found.get(x.node, read) == read else None
    return {node: live for node, live in found.items() if live is not None and not node.given}


def _read(node: Node, x: Array, live: Live | None) -> Live | None:
    """Which rows of its operand x a node reads, of which `live` rows are read; None: all, for all that is known."""
    if isinstance(node, Pad | Unpad):
        if x is not node.operands[0] or not isinstance(node.operands[1].node, Scan):
            return None
        packed, length = isinstance(node, Pad), x.shape[1]
        return _through(x, Live(node.operands[1].node, 0 if packed else 1, 1, length, length))
    if live is None:
        return None
    if isinstance(node, Contract):
        return live if x is not node.operands[1] and _row_by_row(x, math.prod(node.shape[:-1])) else None
    if isinstance(node, Reduce | Mix):
        return live if node.aligned(x) else None
    if isinstance(node, Elementwise):
        return live if _row_by_row(x, node.shape[0]) else _through(x, live)
    return None


def _row_by_row(x: Array, rows: int) -> bool:
    """Whether row r of the view is row r of its buffer."""
    same = x.contiguous and math.prod(x.shape[:-1]) == math.prod(x.node.shape[:-1]) == rows
    return same or x.aligned(rows)


def _through(x: Array, live: Live) -> Live | None:
    """The rows of its buffer that live rows of a view lie in, where the view is all of it with its axes in any order."""
    width, lead = x.node.shape[-1], x.shape[:-1]
    axes = sorted(((stride, extent) for extent, stride in zip(x.shape, x.strides, strict=True) if extent > 1), reverse=True)
    whole = x.offset == 0 and x.size == math.prod(x.node.shape)
    if not whole or [stride for stride, _ in axes] != list(row_major([extent for _, extent in axes])):
        return None
    steps = dict(zip(row_major(lead), zip(lead, x.strides, strict=False), strict=True))
    sequences = math.prod(lead) // live.outer
    token, sequence = (steps.get(step, (0, 0)) for step in (live.inner, live.outer))
    if token[0] != live.length or token[1] % width or (sequences > 1 and (sequence[0] != sequences or sequence[1] % width)):
        return None
    inner, outer = token[1] // width, sequence[1] // width if sequences > 1 else math.prod(x.node.shape[:-1])
    return Live(live.counts, live.first, inner, live.length, outer) if inner else None


# -------------------------------------------------------------------------------------------------------- skipping the others
def mark(schedule: Schedule, loop: Any, rows: int = 1, steps: int = 0) -> None:
    """Let `cut` skip steps of a loop, of `rows` rows each: those whose first row is not read. So many `steps` make a group; 0: all."""
    schedule.annotate(loop, MARK, [rows, steps])


def mark_groups(schedule: Schedule, loop: Any, steps: int, rows: int) -> None:
    """Tell `cut` that so many steps of a loop make a group of so many rows, which the marked loops inside count."""
    schedule.annotate(loop, GROUPS, [steps, rows])


def cut(function: tirx.PrimFunc, live: Live, place: int, given: bool) -> tirx.PrimFunc:
    """A scheduled function whose marked loops skip rows, as the argument at `place` says, which it gets unless it is `given`."""
    counts = function.params[place] if given else tirx.decl_buffer(live.counts.shape, live.counts.dtype, name="live")
    parameters = function.params if given else [*function.params[:place], counts, *function.params[place:]]
    body = _Cut(live, counts).statement(function.body, 0)
    return tirx.PrimFunc(parameters, body, function.ret_type, function.attrs)


@dataclass(frozen=True)
class _Cut:
    """Makes the statements of a function again, with a condition in each marked loop."""

    live: Live
    counts: tirx.Buffer

    def statement(self, x: Any, first: Any) -> Any:
        """A statement above the blocks that compute; rows count from the `first` of a group."""
        if isinstance(x, tirx.SeqStmt):
            return tirx.SeqStmt([self.statement(part, first) for part in x.seq])
        if isinstance(x, SBlockRealize) and not x.iter_values:
            return SBlockRealize(x.iter_values, x.predicate, self.block(x.block, first))
        return self.loop(x, first) if isinstance(x, tirx.For) else x

    def block(self, x: SBlock, first: Any) -> SBlock:
        """The block that all others are in."""
        body = self.statement(x.body, first)
        return SBlock(x.iter_vars, x.reads, x.writes, x.name_hint, body, x.init, x.alloc_buffers, x.match_buffers, x.annotations)

    def loop(self, x: tirx.For, first: Any) -> Any:
        """A loop, with a condition if it is marked. Where cores share it they take its steps in turn: neighbours cost alike."""
        annotations = {key: value for key, value in x.annotations.items() if key not in (MARK, GROUPS)}
        if GROUPS in x.annotations:
            steps, rows = map(int, x.annotations[GROUPS])
            first = x.loop_var // steps * rows
        if MARK in x.annotations:
            rows, steps = map(int, x.annotations[MARK])
            row = x.loop_var % steps * rows + x.loop_var // steps * self.live.length if steps else first + x.loop_var * rows
            body = tirx.IfThenElse(self.live.test(self.counts, row), x.body, None)
        else:
            body = self.statement(x.body, first)
        result = tirx.For(x.loop_var, x.min, x.extent, x.kind, body, x.thread_binding, annotations, x.step)
        return _in_turn(result) if x.kind == tirx.ForKind.PARALLEL and len(annotations) < len(x.annotations) else result


def _in_turn(loop: tirx.For) -> Any:
    """A parallel loop whose steps go to the cores in turn instead of in halves."""
    for pragma in ("parallel_stride_pattern", "parallel_launch_point"):
        loop = tirx.AttrStmt(tirx.const(0, "int32"), f"pragma_{pragma}", tirx.const(1, "int32"), loop)
    return loop
