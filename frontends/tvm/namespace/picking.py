"""Picking elements by their indices."""

import builtins
from typing import Any

from tvm import tirx

from xformer.frontends.tvm import eager
from xformer.frontends.tvm.array import Array
from xformer.frontends.tvm.dtypes import KINDS
from xformer.frontends.tvm.elements import checked
from xformer.frontends.tvm.namespace.creation import asarray
from xformer.frontends.tvm.namespace.manipulation import axis_of, broadcast_to, expand_dims, reshape
from xformer.frontends.tvm.namespace.reductions import max, min
from xformer.frontends.tvm.nodes import Indexed


def take(x: Array, indices: Array, /, *, axis: int | None = None) -> Array:
    """The slices of x along an axis that the indices name, from the end where negative.

    Raises IndexError for one that is outside; while a function is traced they have no values, and must be checked before.
    """
    if axis is None and x.ndim != 1:
        raise ValueError(f"take from shape {x.shape} needs an axis")
    axis = axis_of(0 if axis is None else axis, x.ndim)
    return taken(x, within(indices, x.shape[axis]), axis)


def within(indices: Array, extent: int) -> Array:
    """The indices. Raises IndexError where they have values and one of them is outside an axis."""
    checked("an index", indices.dtype, KINDS["integral"])
    if indices.size and not indices.node.symbolic:
        least, most = int(min(indices)), int(max(indices))
        if least < -extent or most >= extent:
            raise IndexError(f"index {most if most >= extent else least} is outside an axis of {extent}")
    return indices


def taken(x: Array, indices: Array, axis: int = 0) -> Array:
    """As `take`, with indices that are known to be inside."""
    shape = (*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :])

    def body(index, read):
        inner = read(indices, index[axis : axis + indices.ndim])
        return read(x, [*index[:axis], from_front(inner, indices, x.shape[axis]), *index[axis + indices.ndim :]])

    return Array(Indexed("take", body, (x, indices), shape, x.dtype, axis), shape)


def take_along_axis(x: Array, indices: Array, /, *, axis: int = -1) -> Array:
    """The elements of x along an axis that the indices name, which have the other axes of x."""
    axis = axis_of(axis, x.ndim)
    if x.ndim != indices.ndim:
        raise ValueError(f"take_along_axis needs as many axes of both, got shapes {x.shape} and {indices.shape}")
    shape = tuple(b if place == axis or a == 1 else a for place, (a, b) in enumerate(zip(x.shape, indices.shape, strict=True)))
    x = broadcast_to(x, (*shape[:axis], x.shape[axis], *shape[axis + 1 :]))
    return taken_along(x, broadcast_to(within(indices, x.shape[axis]), shape), axis)


def taken_along(x: Array, indices: Array, axis: int) -> Array:
    """As `take_along_axis`, with indices that are known to be inside and have the result's shape."""
    shape = indices.shape

    def body(index, read):
        inner = from_front(read(indices, index), indices, x.shape[axis])
        return read(x, [*index[:axis], inner, *index[axis + 1 :]])

    return Array(Indexed("take_along_axis", body, (x, indices), shape, x.dtype, axis), shape)


def from_front(index: Any, indices: Array, extent: int) -> Any:
    """An element of the indices as an expression, counted from the front."""
    if indices.node.symbolic and indices.dtype == "int32":
        return index  # tokens and positions of a model, which never count from the end
    index = index.astype("int32")
    return tirx.Select(index < 0, index + extent, index)


def repeat(x: Array, repeats: int | Array, /, *, axis: int | None = None) -> Array:
    """Each element along an axis so many times; axis None: of the flattened array. Counts in an array must have values."""
    if axis is None:
        return repeat(reshape(x, (-1,)), repeats, axis=0)
    axis = axis_of(axis, x.ndim)
    if isinstance(repeats, Array):
        return taken(x, _repeated(x.shape[axis], repeats), axis)
    if repeats < 0:
        raise ValueError(f"an element is repeated 0 times or more, got {repeats}")
    wide = expand_dims(x, axis + 1).broadcast_to((*x.shape[: axis + 1], repeats, *x.shape[axis + 1 :]))
    return reshape(wide, (*x.shape[:axis], x.shape[axis] * repeats, *x.shape[axis + 1 :]))


def _repeated(extent: int, repeats: Array) -> Array:
    """The places of an axis, each as often as its count says; one count is that of all."""
    counts = eager.values(repeats).reshape(-1).tolist()
    counts = counts * extent if len(counts) == 1 else counts
    if len(counts) != extent or builtins.min(counts, default=0) < 0:
        raise ValueError(f"an axis of {extent} is repeated by as many counts, 0 or more each; got {counts}")
    return asarray([place for place, count in enumerate(counts) for _ in range(count)], dtype="int64")
