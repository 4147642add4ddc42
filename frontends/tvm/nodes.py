"""What a traced array is computed by: one TE compute a node, over a buffer of rows x columns.

`stage(buffers, machine)` builds the compute from the TE tensors of its operands' buffers. A node is built while the
model's function runs; `fusion` decides which of them share a kernel.
"""

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

from tvm import te, tirx

from xformer.frontends.tvm import elementary
from xformer.frontends.tvm.array import Array, rows_and_columns, unravel
from xformer.frontends.tvm.target import Machine

_serial = itertools.count()
LONGEST = 64  # computes that follow each other before what holds values is computed unasked: a loop does not grow without end


class Node:
    """A compute and its operands. `elementwise`: each element of the result needs one element of each operand.

    `symbolic`: it depends on an argument of a function that is being traced. `again`: whatever reads it computes it again.
    """

    elementwise = again = False
    tensor: Any = None  # the result, once there is one
    settle: Callable[[Array], Any] = staticmethod(lambda x: x)  # computes an array, where there is somebody who can

    def __init__(self, name: str, operands: Sequence[Array], shape: Sequence[int], dtype: str, *options: Any):
        self.name, self.shape, self.dtype = name, tuple(shape), dtype
        self.operands = tuple(x.same() for x in operands)  # whose own handle may become another array
        self.symbolic = any(x.node.symbolic for x in self.operands)
        self.depth = 1 + max((x.node.depth for x in self.operands if x.node.tensor is None), default=0)
        if self.depth > LONGEST and not self.symbolic:
            self.depth = 1
            for x in self.operands:
                Node.settle(x)
        self.options = options  # with the name and the operands, all that the result depends on
        self.serial = next(_serial)

    @property
    def key(self) -> tuple:
        """Equal for nodes that compute the same from the same operands."""
        return type(self), self.name, self.shape, self.dtype, self.options, *(x.key for x in self.operands)

    @property
    def given(self) -> bool:
        """Whether there is nothing to compute: an argument, or what has its result."""
        return self.tensor is not None

    def stage(self, buffers: Sequence[te.Tensor], machine: Machine) -> te.Tensor:
        """The TE compute of this node."""
        raise NotImplementedError

    def aligned(self, operand: Array) -> bool:
        """Whether row r of the result reads nothing of `operand` but its row r."""
        return False


class Input(Node):
    """An argument of the traced function, in its own shape; a scalar has one element."""

    def __init__(self, name: str, shape: Sequence[int], dtype: str):
        super().__init__(name, (), shape or (1,), dtype, name)
        self.symbolic = True

    given = property(lambda self: True)  # type: ignore[assignment]


class Data(Node):
    """Values, in their own shape; a scalar has one element."""

    def __init__(self, tensor: Any, shape: Sequence[int]):
        super().__init__("data", (), tuple(shape) or (1,), str(tensor.dtype))
        self.tensor = tensor


class Elementwise(Node):
    """function(*elements), over operands broadcast to one shape."""

    elementwise = True

    def __init__(self, name: str, function: Callable, operands: Sequence[Array], shape: Sequence[int], dtype: str, *options: Any):
        operands = [x.broadcast_to(shape) for x in operands]
        super().__init__(name, operands, rows_and_columns(shape), dtype, *options)
        self.function = function

    def stage(self, buffers, machine):
        def body(row, column):
            return self.function(*(x.element(buffer, row, column) for x, buffer in zip(self.operands, buffers, strict=True)))

        return te.compute(self.shape, body, name=self.name)

    def aligned(self, operand):
        return operand.aligned(self.shape[0])


class Indexed(Node):
    """function(index, read): an element from its logical index, where read(operand, index) gives one of an operand."""

    elementwise = True

    def __init__(self, name: str, function: Callable, operands: Sequence[Array], shape: Sequence[int], dtype: str, *options: Any):
        super().__init__(name, operands, rows_and_columns(shape), dtype, *options)
        self.function, self.logical, self.named = function, tuple(shape), tuple(operands)

    def stage(self, buffers, machine):
        places = {id(x): place for place, x in enumerate(self.named)}

        def body(row, column):
            index = [*unravel(row, self.logical[:-1]), column] if self.logical else []
            return self.function(index, lambda x, at: self.operands[places[id(x)]].at(buffers[places[id(x)]], at))

        return te.compute(self.shape, body, name=self.name)


class Reduce(Node):
    """A reduction over one axis of its operand."""

    def __init__(self, name: str, operand: Array, axis: int, keepdims: bool, dtype: str):
        self.extent, self.stride = operand.shape[axis], operand.strides[axis]
        kept = (1,) if keepdims else ()
        shape = (*operand.shape[:axis], *kept, *operand.shape[axis + 1 :])
        strides = (*operand.strides[:axis], *(0 for _ in kept), *operand.strides[axis + 1 :])
        self.logical = shape
        super().__init__(name, (operand,), rows_and_columns(shape), dtype, axis, keepdims)
        self.outer = operand.view(shape, strides)

    def stage(self, buffers, machine):
        """In steps where rows are contiguous: partial results in vectors that do not wait for each other, then one of them."""
        combine, lanes = REDUCERS[self.name], machine.lanes
        most = 1 if machine.gpu else VECTORS  # whose threads hide what one of them waits for
        wide = next((w for w in (most * lanes, most * lanes // 2, lanes) if w >= lanes and self.extent % w == 0 and self.extent > w), None)
        if self.shape[1] != 1 or self.stride != 1 or wide is None:
            return te.compute(self.shape, self._over(buffers[0], self.extent, combine), name=self.name)
        step = te.reduce_axis((0, self.extent // wide), "k")

        def partial(row, lane):
            extra = (step * wide + lane, self.extent, 1)
            return combine(self.outer.element(buffers[0], row, 0, [extra]), axis=step)

        partials = te.compute((self.shape[0], wide), partial, name=f"{self.name}_lanes")
        if machine.gpu:
            lane = te.reduce_axis((0, lanes), "k")
            return te.compute(self.shape, lambda row, column: combine(partials[row, lane], axis=lane), name=self.name)
        while wide > 1:
            wide //= 2
            partials = self._halved(partials, wide)
        return partials

    def _halved(self, partials, half):
        """Each of the first half of a row's partial results with the one of the other half."""

        def body(row, lane):
            return COMBINED[self.name](partials[row, lane], partials[row, lane + half])

        return te.compute((self.shape[0], half), body, name=self.name if half == 1 else f"{self.name}_halved", attrs=STORED)

    def _over(self, buffer, extent, combine):
        k = te.reduce_axis((0, extent), "k")
        return lambda row, column: combine(self.outer.element(buffer, row, column, [(k, extent, self.stride)]), axis=k)

    def aligned(self, operand):
        rows, columns = self.shape
        return columns == 1 and self.outer.aligned(rows) and abs(self.stride) * (self.extent - 1) < operand.node.shape[1]


class Write(Node):
    """`cache` (an input, ..., s, e) with `new` in its rows from `position` on, in the cache's own memory."""

    def __init__(self, cache: Array, new: Array, position: Array):
        super().__init__("write", (cache, new, position), cache.node.shape, cache.dtype)


def lowest(dtype: str) -> Any:
    """Where a maximum starts: -inf, so that a row of -inf has that maximum."""
    return tirx.const(-math.inf, dtype) if "float" in dtype else te.min_value(dtype)


def highest(dtype: str) -> Any:
    """Where a minimum starts."""
    return tirx.const(math.inf, dtype) if "float" in dtype else te.max_value(dtype)


VECTORS = 4  # of partial results of a reduction: as many as an addition takes cycles
STORED = {"xformer.stored": 1}  # annotates a compute that no rule may compute again for each element that reads it
COMBINED: dict[str, Callable] = {
    "sum": lambda a, b: a + b,
    "prod": lambda a, b: a * b,
    # A NaN stays: the built-in maximum drops it, and TVM takes a != a for false. Little waits for `a`, the result so far.
    "max": lambda a, b: tirx.Select(elementary.isnan(b), b, tirx.Select(b > a, b, a)),
    "min": lambda a, b: tirx.Select(elementary.isnan(b), b, tirx.Select(b < a, b, a)),
}
STARTS = {"sum": lambda dtype: tirx.const(0, dtype), "prod": lambda dtype: tirx.const(1, dtype), "max": lowest, "min": highest}
REDUCERS = {name: te.comm_reducer(COMBINED[name], STARTS[name], name=name) for name in COMBINED}
