"""Functions of TE expressions as functions of arrays and scalars, element by element."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

from xformer.frontends.tvm import dtypes
from xformer.frontends.tvm.array import Array, require_cpu
from xformer.frontends.tvm.contraction import Packed
from xformer.frontends.tvm.elementary import const, to_bfloat16
from xformer.frontends.tvm.nodes import Elementwise

Scalar = bool | float | int


def result_type(*values: Array | Scalar | str) -> str:
    """The dtype of an operation on arrays, dtypes and Python scalars. Raises TypeError where there is none."""
    named = [dtypes.name_of(x) for x in values if not isinstance(x, bool | int | float)]
    if not named:
        raise TypeError(f"an array or a dtype is needed, got {', '.join(map(repr, values)) or 'nothing'}")
    result = functools.reduce(dtypes.promoted, named)
    for value in values:
        if isinstance(value, bool | int | float):
            dtypes.of_scalar(value, result)
    return result


def astype(x: Array, dtype: str, *, copy: bool = True, device: Any = None) -> Array:
    """x in another dtype; a float that is to become an integer must fit it. Nothing is ever copied without need."""
    require_cpu(device)
    if x.dtype == dtypes.name_of(dtype):
        return x
    if isinstance(x, Packed):
        raise TypeError(f"a packed weight of {x.dtype} cannot become {dtype}")
    if dtype == "bfloat16":
        narrow = x if x.dtype == "float32" else astype(x, "float32")
        return mapped("astype", to_bfloat16, narrow, dtype=dtype)
    return mapped("astype", lambda element: element != const(0, x.dtype) if dtype == "bool" else element.astype(dtype), x, dtype=dtype)


def mapped(name: str, function: Callable, *values: Array | Scalar, dtype: str | None = None) -> Array:
    """function over the elements of arrays and scalars. A scalar has the dtype of the last array, the result `dtype` or that."""
    arrays = [x for x in values if isinstance(x, Array)]
    own = arrays[-1].dtype
    scalars = tuple((place, repr(x)) for place, x in enumerate(values) if not isinstance(x, Array))
    shape = broadcast_shapes(*(x.shape for x in arrays))

    def body(*elements):
        rest = iter(elements)
        return function(*(next(rest) if isinstance(x, Array) else const(x, own) for x in values))

    return Array(Elementwise(name, body, arrays, shape, dtype or own, *scalars), shape)


def broadcast_shapes(*shapes: Sequence[int]) -> tuple[int, ...]:
    """The shape that all broadcast to. Raises ValueError when there is none."""
    rank = max(len(shape) for shape in shapes)
    result = []
    for extents in zip(*((1,) * (rank - len(shape)) + tuple(shape) for shape in shapes), strict=True):
        wide = {extent for extent in extents if extent != 1}
        if len(wide) > 1:
            raise ValueError(f"shapes {', '.join(map(str, shapes))} do not broadcast")
        result.append(wide.pop() if wide else 1)
    return tuple(result)


def binary(name: str, function: Callable, dtype: str | None = None, kinds: tuple[str, ...] = dtypes.ALL) -> Callable[[Any, Any], Array]:
    """A function of two arrays, or of an array and a scalar, whose dtypes are promoted to one of `kinds`."""

    def apply(x1: Array | Scalar, x2: Array | Scalar, /) -> Array:
        own = checked(name, result_type(x1, x2), kinds)
        return mapped(name, function, *(astype(x, own) if isinstance(x, Array) else x for x in (x1, x2)), dtype=dtype)

    apply.__name__, apply.__doc__ = name, f"{name} of two arrays, or of an array and a scalar, element by element."
    return apply


def unary(name: str, function: Callable, dtype: str | None = None, kinds: tuple[str, ...] = dtypes.ALL) -> Callable[[Array], Array]:
    """A function of one array, whose dtype is one of `kinds`."""

    def apply(x: Array, /) -> Array:
        checked(name, x.dtype, kinds)
        return mapped(name, function, x, dtype=dtype)

    apply.__name__, apply.__doc__ = name, f"{name} of each element."
    return apply


def checked(name: str, dtype: str, kinds: tuple[str, ...]) -> str:
    """`dtype`. Raises TypeError, naming the function, when it is not among `kinds`."""
    if dtype not in kinds:
        raise TypeError(f"{name} needs one of {', '.join(kinds)}; got {dtype}")
    return dtype
