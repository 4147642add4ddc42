"""The rotation of `xformer.precision` as nodes of their own: additions in vectors where a contraction would multiply by 1/8 64 times.

The Hadamard matrix of order 64 is the Kronecker product of one of order 4, over channels 16 apart, and one of order 16, over
neighbours; that one is the product of two of order 4. Each is 1/2 - I: half the sum of four channels, less the one. All sums
are exact, so in this order they have the bits that the whole matrix gives.
"""

import math
import operator
from functools import reduce
from itertools import pairwise
from typing import Any

from tvm import te, tirx

from xformer.frontends.tvm import exchange
from xformer.frontends.tvm.array import Array, rows_and_columns
from xformer.frontends.tvm.elementary import const
from xformer.frontends.tvm.nodes import Node

NEIGHBOURS = exchange.LANES  # channels that one step mixes
STRIDED, IN_LANES = "mix_strided", "mix_lanes"  # names of the computes, by which rules know them


class Mix(Node):
    """`x` with each `order` channels of a row that are `stride` apart times the Hadamard matrix of that order."""

    def __init__(self, x: Array, order: int, stride: int):
        super().__init__("mix", (x,), rows_and_columns(x.shape), x.dtype, order, stride)
        self.order, self.stride = order, stride

    def stage(self, buffers, machine):
        (x,) = self.operands
        # What is mixed stands in one vector: a processor exchanges its lanes. Threads of a GPU have none.
        in_lanes = self.stride == 1 and self.order in exchange.HADAMARD and self.shape[1] % NEIGHBOURS == 0 and not machine.gpu

        def body(row, column):
            if in_lanes:
                return exchange.hadamard(x.element(buffers[0], row, column), self.order)
            first = column // (self.order * self.stride) * (self.order * self.stride) + column % self.stride
            terms = [x.element(buffers[0], row, first + place * self.stride) for place in range(self.order)]
            if self.order == 4:
                return reduce(operator.add, terms) * const(0.5) - x.element(buffers[0], row, column)
            place = column // self.stride % self.order
            return reduce(operator.add, (term * _entry(n, place, self.order) for n, term in enumerate(terms)))

        return te.compute(self.shape, body, name=IN_LANES if in_lanes else STRIDED)

    def aligned(self, operand):
        return operand.aligned(self.shape[0])


def _entry(row: int, column: Any, order: int) -> Any:
    """An element of the Hadamard matrix: its sign is that of 1/2 - I for each pair of digits to the base 4."""
    scales = [4**place for place in range(round(math.log(order, 4)) + 1)]
    signs = [tirx.Select(column % b // a == row % b // a, const(-0.5), const(0.5)) for a, b in pairwise(scales)]
    return reduce(operator.mul, signs)


def hadamard(x: Array, size: int) -> Array:
    """`x` (..., k) with each block of `size` channels times the Hadamard matrix of that order: 4, 16 or 64."""
    if size > NEIGHBOURS:
        x = Array(Mix(x, size // NEIGHBOURS, NEIGHBOURS), x.shape)
    return Array(Mix(x, min(size, NEIGHBOURS), 1), x.shape)
