"""Arrays from nothing, and from the host's memory."""

import math
import operator
from collections.abc import Sequence
from typing import Any

from tvm import tirx

from xformer.frontends.tvm import dtypes, eager
from xformer.frontends.tvm.array import Array, require_cpu
from xformer.frontends.tvm.elementary import const
from xformer.frontends.tvm.elements import Scalar, astype
from xformer.frontends.tvm.namespace.logic import where
from xformer.frontends.tvm.namespace.manipulation import broadcast_to, copied, matrix, reshape
from xformer.frontends.tvm.nodes import Indexed


def _shape(shape: int | Sequence[int]) -> tuple[int, ...]:
    found = tuple(map(operator.index, (shape,) if isinstance(shape, int) else shape))
    if any(extent < 0 for extent in found):
        raise ValueError(f"an extent is 0 or more, got shape {found}")
    return found


def asarray(obj: Any, /, *, dtype: str | None = None, device: Any = None, copy: bool | None = None) -> Array:
    """An array of Python numbers, or of another library's memory."""
    require_cpu(device)
    if isinstance(obj, Array):
        return astype(copied(obj) if copy else obj, dtype or obj.dtype)
    return eager.from_host(obj, dtype, copy)


def from_dlpack(x: Any, /, *, device: Any = None, copy: bool | None = None) -> Array:
    """An array of another library's memory."""
    require_cpu(device)
    return asarray(x, copy=copy) if isinstance(x, Array) else eager.from_dlpack(x, copy)


def full(shape: int | Sequence[int], fill_value: Scalar, *, dtype: str | None = None, device: Any = None) -> Array:
    """`fill_value` in every place."""
    require_cpu(device)
    chosen = dtypes.name_of(dtype) if dtype else dtypes.of_python(fill_value)
    value = bool(fill_value) if chosen == "bool" else float(fill_value) if chosen in dtypes.FLOATING else int(fill_value)
    if chosen not in dtypes.FLOATING and value != fill_value:
        raise ValueError(f"{fill_value!r} is no {chosen}")
    dtypes.of_scalar(value, chosen)
    one = Array(Indexed("full", lambda index, read: const(value, chosen), (), (), chosen, repr(value)), ())
    return broadcast_to(one, _shape(shape))


def zeros(shape: int | Sequence[int], *, dtype: str | None = None, device: Any = None) -> Array:
    """Zeros (or False)."""
    return full(shape, 0, dtype=dtype or "float32", device=device)


def ones(shape: int | Sequence[int], *, dtype: str | None = None, device: Any = None) -> Array:
    """Ones (or True)."""
    return full(shape, 1, dtype=dtype or "float32", device=device)


def empty(shape: int | Sequence[int], *, dtype: str | None = None, device: Any = None) -> Array:
    """Zeros: nothing is gained by leaving memory as it is."""
    return zeros(shape, dtype=dtype, device=device)


def full_like(x: Array, /, fill_value: Scalar, *, dtype: str | None = None, device: Any = None) -> Array:
    """`fill_value` in the shape of x."""
    return full(x.shape, fill_value, dtype=dtype or x.dtype, device=device)


def zeros_like(x: Array, /, *, dtype: str | None = None, device: Any = None) -> Array:
    """Zeros (or False) in the shape of x."""
    return full_like(x, 0, dtype=dtype, device=device)


def ones_like(x: Array, /, *, dtype: str | None = None, device: Any = None) -> Array:
    """Ones (or True) in the shape of x."""
    return full_like(x, 1, dtype=dtype, device=device)


def empty_like(x: Array, /, *, dtype: str | None = None, device: Any = None) -> Array:
    """Zeros in the shape of x."""
    return zeros_like(x, dtype=dtype, device=device)


def arange(start: Scalar, /, stop: Scalar | None = None, step: Scalar = 1, *, dtype: str | None = None, device: Any = None) -> Array:
    """start, start + step, .. before stop; from 0 where only one limit is given."""
    require_cpu(device)
    first, last = (0, start) if stop is None else (start, stop)
    chosen = dtypes.name_of(dtype) if dtype else dtypes.of_python(first, last, step)
    if step == 0:
        raise ValueError("the step of arange is 0")
    count = max(math.ceil((last - first) / step), 0)

    def body(index, read):
        place = index[0].astype(chosen)
        if (first, step) == (0, 1):
            return place
        return const(first, chosen) + place * const(step, chosen)

    return Array(Indexed("arange", body, (), (count,), chosen, repr(first), repr(step)), (count,))


def linspace(start: Scalar, stop: Scalar, /, num: int, *, dtype: str | None = None, device: Any = None, endpoint: bool = True) -> Array:
    """`num` numbers at equal distances from start to stop, which is the last of them if `endpoint`."""
    require_cpu(device)
    if num < 0:
        raise ValueError(f"linspace of {num} numbers")
    steps = max(num - 1 if endpoint else num, 1)
    chosen = dtypes.name_of(dtype) if dtype else "float32"

    def body(index, read):
        place = index[0].astype("float64")
        value = const(float(start), "float64") + place * const((float(stop) - float(start)) / steps, "float64")
        last = tirx.Select(index[0] == steps, const(float(stop), "float64"), value) if endpoint and num > 1 else value
        return last.astype(chosen)

    return Array(Indexed("linspace", body, (), (num,), chosen, repr(start), repr(stop), num, endpoint), (num,))


def eye(rows: int, columns: int | None = None, /, *, k: int = 0, dtype: str | None = None, device: Any = None) -> Array:
    """Ones on the k-th diagonal of zeros."""
    require_cpu(device)
    shape = (rows, rows if columns is None else columns)
    return astype(_below(shape, k, k), dtype or "float32")


def _below(shape, least, most):
    """Whether column - row is within limits."""
    rows, columns = reshape(arange(shape[0], dtype="int64"), (-1, 1)), reshape(arange(shape[1], dtype="int64"), (1, -1))
    apart = columns - rows
    inside = apart <= most
    return inside if least is None else inside & (apart >= least)


def tril(x: Array, /, *, k: int = 0) -> Array:
    """x with zeros above the k-th diagonal."""
    return where(_below(matrix(x).shape[-2:], None, k), x, zeros_like(x))


def triu(x: Array, /, *, k: int = 0) -> Array:
    """x with zeros below the k-th diagonal."""
    return where(~_below(matrix(x).shape[-2:], None, k - 1), x, zeros_like(x))
