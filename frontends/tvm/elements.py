"""Functions of TE expressions as functions of arrays and scalars, element by element."""

from collections.abc import Callable
from typing import Any

from tvm import tirx

from xformer.frontends.tvm.array import Array
from xformer.frontends.tvm.nodes import Elementwise

Scalar = float | int


def common_dtype(*values: Array | Scalar) -> str:
    """The dtype of all arrays among the values. Raises TypeError when they have two."""
    dtypes = sorted({x.dtype for x in values if isinstance(x, Array)})
    if len(dtypes) != 1:
        raise TypeError(f"operands of one dtype are needed, got {', '.join(dtypes) or 'no array'}")
    return dtypes[0]


def mapped(name: str, function: Callable, *values: Array | Scalar, dtype: str | None = None) -> Array:
    """function over the elements of arrays and scalars. A scalar has the dtype of the last array, the result `dtype` or that."""
    arrays = [x for x in values if isinstance(x, Array)]
    own = arrays[-1].dtype
    scalars = tuple((place, repr(x)) for place, x in enumerate(values) if not isinstance(x, Array))
    shape = broadcast_shapes(*(x.shape for x in arrays))

    def body(*elements):
        rest = iter(elements)
        return function(*(next(rest) if isinstance(x, Array) else tirx.const(x, own) for x in values))

    return Array(Elementwise(name, body, arrays, shape, dtype or own, scalars), shape)


def broadcast_shapes(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    """The shape that all broadcast to. Raises ValueError when there is none."""
    rank = max(len(shape) for shape in shapes)
    result = []
    for extents in zip(*((1,) * (rank - len(shape)) + shape for shape in shapes), strict=True):
        wide = {extent for extent in extents if extent != 1}
        if len(wide) > 1:
            raise ValueError(f"shapes {', '.join(map(str, shapes))} do not broadcast")
        result.append(wide.pop() if wide else 1)
    return tuple(result)


def binary(name: str, function: Callable, dtype: str | None = None) -> Callable[[Any, Any], Array]:
    """A function of two arrays, or of an array and a scalar."""

    def apply(x1: Array | Scalar, x2: Array | Scalar) -> Array:
        common_dtype(x1, x2)
        return mapped(name, function, x1, x2, dtype=dtype)

    apply.__name__, apply.__doc__ = name, f"{name} of two arrays, or of an array and a scalar, element by element."
    return apply


def unary(name: str, function: Callable, dtype: str | None = None) -> Callable[[Array], Array]:
    """A function of one array."""

    def apply(x: Array) -> Array:
        return mapped(name, function, x, dtype=dtype)

    apply.__name__, apply.__doc__ = name, f"{name} of each element."
    return apply
