"""Products of matrices and vectors, and the verbs that this library has beyond the standard."""

import math
from collections.abc import Sequence

from tvm import te, tirx

from xformer.frontends.tvm import elementary
from xformer.frontends.tvm.array import Array, unravel
from xformer.frontends.tvm.contraction import Contract
from xformer.frontends.tvm.dtypes import KINDS
from xformer.frontends.tvm.elements import astype, broadcast_shapes, checked, result_type
from xformer.frontends.tvm.namespace.arithmetic import multiply
from xformer.frontends.tvm.namespace.creation import full
from xformer.frontends.tvm.namespace.manipulation import (
    axis_of,
    broadcast_to,
    contiguous,
    expand_dims,
    matrix_transpose,
    moveaxis,
    permute_dims,
    reshape,
    squeeze,
)
from xformer.frontends.tvm.namespace.reductions import sum
from xformer.frontends.tvm.nodes import Indexed, Input, Node, Write


class Product(Node):
    """a (.., m, k) @ transpose(b (.., n, k)) of equal leading axes, in their dtype."""

    def __init__(self, a: Array, b: Array):
        self.logical = (*a.shape[:-1], b.shape[-2])
        super().__init__("matmul", (a, b), (math.prod(self.logical[:-1]), self.logical[-1]), a.dtype)

    def stage(self, buffers, machine):
        a, b = self.operands
        k = te.reduce_axis((0, a.shape[-1]), "k")

        def body(row, column):
            *lead, i = unravel(row, self.logical[:-1])
            return te.sum(a.at(buffers[0], [*lead, i, k]) * b.at(buffers[1], [*lead, column, k]), axis=k)

        return te.compute(self.shape, body, name=self.name)


def matmul(x1: Array, x2: Array, /) -> Array:
    """The product of matrices, or of stacks of them; one axis: a vector, whose axis is gone in the result."""
    own = checked("matmul", result_type(x1, x2), KINDS["numeric"])
    if not x1.ndim or not x2.ndim:
        raise ValueError(f"matmul needs matrices or vectors, got shapes {x1.shape} and {x2.shape}")
    a = expand_dims(x1, 0) if x1.ndim == 1 else x1
    b = expand_dims(x2, 1) if x2.ndim == 1 else x2
    if a.shape[-1] != b.shape[-2]:
        raise ValueError(f"matmul of shapes {x1.shape} and {x2.shape}: {a.shape[-1]} columns, {b.shape[-2]} rows")
    lead = broadcast_shapes(a.shape[:-2], b.shape[:-2]) if a.ndim > 2 or b.ndim > 2 else ()
    a = astype(broadcast_to(a, (*lead, *a.shape[-2:])), own)
    b = matrix_transpose(astype(broadcast_to(b, (*lead, *b.shape[-2:])), own))
    if own == "float32" or not a.shape[-1]:
        result = contract(a, b, own)
    else:
        node = Product(a, b)
        result = Array(node, node.logical)
    result = squeeze(result, -1) if x2.ndim == 1 else result
    return squeeze(result, -2 if x2.ndim > 1 else -1) if x1.ndim == 1 else result


def vecdot(x1: Array, x2: Array, /, *, axis: int = -1) -> Array:
    """The sum of products along an axis of both."""
    own = checked("vecdot", result_type(x1, x2), KINDS["numeric"])
    if not -min(x1.ndim, x2.ndim) <= axis < 0:
        raise ValueError(f"axis {axis} is not among the last of shapes {x1.shape} and {x2.shape}")
    a, b = moveaxis(x1, axis, -1), moveaxis(x2, axis, -1)
    if a.shape[-1] != b.shape[-1]:
        raise ValueError(f"vecdot of shapes {x1.shape} and {x2.shape} along axis {axis}")
    return sum(multiply(astype(a, own), astype(b, own)), axis=-1, dtype=own)


def tensordot(x1: Array, x2: Array, /, *, axes: int | Sequence[Sequence[int]] = 2) -> Array:
    """The sum of products over pairs of axes: the last `axes` of x1 with the first of x2, or those that are named."""
    if isinstance(axes, int) and not 0 <= axes <= min(x1.ndim, x2.ndim):
        raise ValueError(f"tensordot over {axes} axes of shapes {x1.shape} and {x2.shape}")
    first = range(x1.ndim - axes, x1.ndim) if isinstance(axes, int) else [axis_of(axis, x1.ndim) for axis in axes[0]]
    second = range(axes) if isinstance(axes, int) else [axis_of(axis, x2.ndim) for axis in axes[1]]
    if [x1.shape[axis] for axis in first] != [x2.shape[axis] for axis in second]:
        raise ValueError(f"tensordot of shapes {x1.shape} and {x2.shape} over axes {axes}: their extents differ")
    own = [axis for axis in range(x1.ndim) if axis not in first], [axis for axis in range(x2.ndim) if axis not in second]
    width = math.prod(x1.shape[axis] for axis in first)
    a = reshape(permute_dims(x1, (*own[0], *first)), (math.prod(x1.shape[axis] for axis in own[0]), width))
    b = reshape(permute_dims(x2, (*second, *own[1])), (width, math.prod(x2.shape[axis] for axis in own[1])))
    return reshape(matmul(a, b), (*(x1.shape[axis] for axis in own[0]), *(x2.shape[axis] for axis in own[1])))


# -------------------------------------------------------------------------------------------------------- verbs beyond the standard
def contract(a: Array, b: Array, accumulate: str) -> Array:
    """a @ transpose(b) accumulated in `accumulate`: a is (..., m, k); b (..., n, k), or (n, k) against any a."""
    if b.shape[-1] != a.shape[-1]:
        raise ValueError(f"cannot contract {a.shape} with {b.shape} over the last axis")
    shared = b.ndim == 2  # one GEMM over all rows of a
    if not shared and a.shape[:-2] != b.shape[:-2]:
        lead = broadcast_shapes(a.shape[:-2], b.shape[:-2])
        a, b = broadcast_to(a, (*lead, *a.shape[-2:])), broadcast_to(b, (*lead, *b.shape[-2:]))
    if not a.shape[-1]:
        return full((*a.shape[:-1], b.shape[-2]), 0, dtype=accumulate)
    lead, (m, k), n = (1,) if shared else a.shape[:-2], a.shape[-2:], b.shape[-2]
    rows = a.size // k if shared else m
    left = reshape(contiguous(a), (math.prod(lead), rows, k))
    sums = [sum(left, axis=-1, dtype=accumulate, keepdims=True)] if a.dtype == "int8" else []
    node = Contract(left, b, accumulate, *sums)
    return Array(node, (*a.shape[:-1], n))


def write(cache: Array, new: Array, position: Array | int) -> Array:
    """`cache` (..., s, e) with `new` (..., t, e) at rows position .. position + t: in place where the cache is an argument."""
    if isinstance(cache.node, Input) and cache.shape == cache.node.shape and cache.contiguous and isinstance(position, Array):
        return Array(Write(cache, contiguous(new), position), cache.shape)
    start = position if isinstance(position, Array) else full((), position, dtype="int32")
    tokens = new.shape[-2]

    def body(index, read):
        row = index[-2] - read(start, [0] * start.ndim)
        inside = tirx.all(row >= 0, row < tokens)
        source = [*index[:-2], elementary.clamp(row, 0, tokens - 1), index[-1]]
        return tirx.Select(inside, read(new, source), read(cache, index))

    return Array(Indexed("write", body, (cache, new, start), cache.shape, cache.dtype), cache.shape)
