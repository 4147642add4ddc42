"""Contractions in TE, over operands laid out as the machine's dot product reads them.

The left operand keeps its rows, widened once where the dot product asks for it. The right one is read in panels of a few
columns: a weight was packed beforehand (`Packed`), an activation is packed in the kernel. Sums run over whole tiles; what
lies beyond the last row or column is computed from valid memory or zeros and not stored. Where the right operand is
shifted, the sums of the left one's rows, times the shift, come off: exact in int32, whose sums may wrap on the way.
"""

from collections.abc import Callable, Sequence
from typing import Any

from tvm import DataType, te, tirx

from xformer.frontends.tvm.array import Array, unravel
from xformer.frontends.tvm.elementary import dtype_of
from xformer.frontends.tvm.nodes import Node
from xformer.frontends.tvm.target import Machine
from xformer.frontends.tvm.weights import Layout

FEW = 4  # rows: for so many it is better to read the right operand along its own rows than to pack it


class Packed(Array):
    """A weight (n, k) whose buffer is packed: it can be contracted with and its rows can be taken, nothing else."""

    def __init__(self, node: Node, shape: tuple[int, ...], layout: Layout):
        super().__init__(node, shape)
        self.layout = layout

    @property
    def key(self) -> tuple:
        return "packed", self.shape, self.layout

    def at(self, buffer, index, extra=()):
        (n, k), columns, depth = index, self.layout.columns, self.layout.depth
        return buffer[n // columns, k // depth, n % columns, k % depth]

    def same(self):
        return Packed(self.node, self.shape, self.layout)

    def view(self, shape, strides, offset=0):
        raise TypeError(f"a packed weight of shape {self.shape} has no views")


class Pack(Node):
    """A weight (n, k) in a layout."""

    def __init__(self, weight: Array, layout: Layout):
        super().__init__("pack", (weight,), layout.shape(*weight.shape), layout.stored(weight.dtype), layout)
        self.layout = layout

    def stage(self, buffers, machine):
        (weight,) = self.operands
        return panels((), weight.shape, self.layout, lambda n, k: weight.at(buffers[0], [n, k]))


def bits(x: Any) -> Any:
    """What a kernel keeps of an element for itself: TVM would keep a bfloat16 as a float32."""
    return tirx.reinterpret("uint16", x) if dtype_of(x) == "bfloat16" else x


def number(x: Any, dtype: str) -> Any:
    """The element that `bits` has kept."""
    return tirx.reinterpret(dtype, x) if dtype == "bfloat16" and dtype_of(x) == "uint16" else x


def panels(lead: tuple[int, ...], shape: tuple[int, ...], layout: Layout, read: Callable) -> te.Tensor:
    """The compute that packs read(*lead, n, k)."""
    n, k = shape

    def body(*index):
        *group, panel, step, column, place = index
        row, inner = panel * layout.columns + column, step * layout.depth + place
        limits = [row < n] * (n % layout.columns > 0) + [inner < k] * (k % layout.depth > 0)
        element = read(*group, row, inner)
        if layout.shift:  # as bytes, by the sign bit, a whole vector at once
            element = tirx.reinterpret("uint8", element) ^ tirx.const(layout.shift, "uint8")
        return tirx.if_then_else(tirx.all(*limits), element, tirx.const(0, dtype_of(element))) if limits else element

    return te.compute((*lead, *layout.shape(n, k)), body, name="pack")


def _collide(rows: int, width: int, dtype: str) -> bool:
    """Whether so many rows of one column have no place beside each other in a first-level cache of 64 sets of 8 lines."""
    return rows > 8 and width * DataType(dtype).itemsize % 4096 == 0


def _side_by_side(lead: tuple[int, ...], m: int, tile: int, width: int, read: Callable) -> Callable:
    """read(*group, row, k) from a copy in which the rows of a tile alternate: one stream through memory instead of many."""

    def body(*index):
        *group, place, k, row = index
        return read(*group, place * tile + row, k)

    copy = te.compute((*lead, -(-m // tile), width, tile), body, name="alternate")

    def alternating(*index):
        *group, row, k = index
        return copy[(*group, row // tile, k, row % tile)]

    return alternating


def _halves(x: te.Tensor, half: int) -> Callable:
    """The sums of the first `half` elements along the last axis and those that follow them."""
    return lambda *index: x[index] + x[(*index[:-1], index[-1] + half)]


def _layout(b: Array, machine: Machine) -> Layout:
    return b.layout if isinstance(b, Packed) else machine.layout(b.dtype)


class Contract(Node):
    """a (g, m, k) with b (n, k), or with b (..., n, k) of g matrices: (m, n) or (g, m, n) of the accumulator's dtype.

    `sums` (g, m, 1) of a's rows are for a right operand that is shifted.
    """

    def __init__(self, a: Array, b: Array, accumulate: str, *sums: Array):
        groups, m, _ = a.shape
        shared = b.ndim == 2
        super().__init__("contract", (a, b, *sums), (m, b.shape[0]) if shared else (groups, m, b.shape[-2]), accumulate)
        self.lead = () if shared else (groups,)

    def stage(self, buffers: Sequence[te.Tensor], machine: Machine) -> te.Tensor:
        a, b, *sums = self.operands
        in_place = self.in_place(machine)
        if in_place == "rows":
            return self._along_rows(buffers, machine)
        (*_, m, k), n = a.shape, b.shape[-2]
        layout = _layout(b, machine)
        count, steps, columns, depth = layout.shape(n, k)
        left = self._left(buffers[0], machine, steps * depth)
        right = buffers[1] if isinstance(b, Packed) or in_place else self._right(buffers[1], layout)
        inner = te.reduce_axis((0, steps * depth), "k")

        def body(*index):
            *group, i, j = index
            x = left(*group, i, inner)
            if in_place:
                y = self._read(right, *group, j, inner)
            else:
                y = number(right[(*group, j // columns, inner // depth, j % columns, inner % depth)], b.dtype)
            return te.sum(x.astype(self.dtype) * y.astype(self.dtype), axis=inner)

        rows = -(-m // machine.rows(m)) * machine.rows(m)
        total = te.compute((*self.lead, rows, count * columns), body, name="total")
        if not layout.shift:
            return te.compute(self.shape, lambda *index: total[index], name="contract")

        def unshifted(*index):
            *group, i, _ = index
            return total[index] - tirx.const(layout.shift, self.dtype) * sums[0].at(buffers[2], [group[0] if group else 0, i, 0])

        return te.compute(self.shape, unshifted, name="contract")

    def in_place(self, machine: Machine) -> str:
        """How the right operand is read where it lies, since few rows would not repay packing it; "" where it is packed.

        "rows": each sum runs along a row of it, in vectors. "columns": a vector of sums runs down columns that lie beside
        each other, as over a packed panel.
        """
        a, b, *_ = self.operands
        (*_, m, k), dot = a.shape, machine.dots[a.dtype]
        if isinstance(b, Packed) or machine.gpu or dot.intrinsic or not a.dtype == b.dtype == dot.operand:
            return ""
        if b.strides[-1] == 1 and m <= FEW and k % machine.lanes == 0:
            return "rows"
        return "columns" if b.strides[-2] == 1 and m <= machine.rows(m) and b.shape[-2] % machine.layout(b.dtype).columns == 0 else ""

    def _along_rows(self, buffers: Sequence[te.Tensor], machine: Machine) -> te.Tensor:
        """As many partial sums as a vector has lanes, then halves of them added to each other."""
        a, k, wide = self.operands[0], self.operands[0].shape[-1], machine.lanes
        step = te.reduce_axis((0, k // wide), "k")

        def partial(*index):
            *group, i, j, lane = index
            inner = step * wide + lane
            return te.sum(a.at(buffers[0], [group[0] if group else 0, i, inner]) * self._read(buffers[1], *group, j, inner), axis=step)

        sums = te.compute((*self.shape, wide), partial, name="partial")
        while wide > 1:
            wide //= 2
            sums = te.compute((*self.shape, wide), _halves(sums, wide), name="halved")
        return te.compute(self.shape, lambda *index: sums[(*index, 0)], name="contract")

    def _read(self, buffer: te.Tensor, *index: Any) -> Any:
        """An element of the right operand, from (*group, n, k)."""
        b = self.operands[1]
        *group, n, k = index
        return b.at(buffer, [*(unravel(group[0], b.shape[:-2]) if group else []), n, k])

    def settle_for(self, machine: Machine) -> None:
        """Leave out the sums where the machine's layout has no shift."""
        a, b, *sums = self.operands
        if sums and not _layout(b, machine).shift:
            self.operands = (a, b)

    def _left(self, buffer: te.Tensor, machine: Machine, inner: int) -> Callable:
        """read(*group, row, k) of the left operand; a row beyond the last reads the last.

        It is written down as dot products read it, and on a GPU for all threads of a block; elsewhere read where it is.
        """
        a = self.operands[0]
        (_, m, k), dot = a.shape, machine.dots[a.dtype]
        tile = machine.rows(m)

        def read(*index):
            *group, i, step = index
            return a.at(buffer, [group[0] if group else 0, tirx.min(i, m - 1) if m % tile else i, step])

        whole = inner == k and (not dot.intrinsic or a.node.shape[-1] == k)  # an intrinsic reads a group where it starts
        if dot.operand == a.dtype and whole and not machine.gpu:
            alternate = not dot.intrinsic and _collide(tile, k, a.dtype)  # an intrinsic wants its group of one row side by side
            return _side_by_side(self.lead, m, tile, k, read) if alternate else read

        def body(*index):
            element = bits(read(*index).astype(dot.operand))
            return element if inner == k else tirx.if_then_else(index[-1] < k, element, tirx.const(0, dtype_of(element)))

        widened = te.compute((*self.lead, -(-m // tile) * tile, inner), body, name="widen")
        return lambda *index: number(widened[index], dot.operand)

    def _right(self, buffer: te.Tensor, layout: Layout) -> te.Tensor:
        return panels(self.lead, self.operands[1].shape[-2:], layout, lambda *index: bits(self._read(buffer, *index)))
