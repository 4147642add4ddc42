"""Dtypes, which are their names: kinds, promotion and limits, as the Array API standard has them (2024.12); with 16-bit floats."""

from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

BOOL = ("bool",)
SIGNED = ("int8", "int16", "int32", "int64")
UNSIGNED = ("uint8", "uint16", "uint32", "uint64")
HALF = ("float16", "bfloat16")  # beyond the standard
FLOATING = (*HALF, "float32", "float64")
KINDS = {
    "bool": BOOL,
    "signed integer": SIGNED,
    "unsigned integer": UNSIGNED,
    "integral": SIGNED + UNSIGNED,
    "real floating": FLOATING,
    "complex floating": (),
    "numeric": SIGNED + UNSIGNED + FLOATING,
}
ALL = BOOL + KINDS["numeric"]
DEFAULTS = {"real floating": "float32", "integral": "int64", "indexing": "int64"}


@dataclass(frozen=True)
class FloatInfo:
    """What `finfo` gives."""

    bits: int
    eps: float
    max: float
    min: float
    smallest_normal: float
    dtype: str


@dataclass(frozen=True)
class IntegerInfo:
    """What `iinfo` gives."""

    bits: int
    max: int
    min: int
    dtype: str


def finfo(dtype: Any) -> FloatInfo:
    """The limits of a floating dtype, or of an array's. Raises ValueError for another one."""
    name = name_of(dtype)
    if name not in FLOATING:
        raise ValueError(f"finfo needs one of {', '.join(FLOATING)}; got {name}")
    found: Any = ml_dtypes.finfo(name)
    return FloatInfo(int(found.bits), float(found.eps), float(found.max), float(found.min), float(found.smallest_normal), name)


def iinfo(dtype: Any) -> IntegerInfo:
    """The limits of an integer dtype, or of an array's. Raises ValueError for another one."""
    name = name_of(dtype)
    if name not in KINDS["integral"]:
        raise ValueError(f"iinfo needs one of {', '.join(KINDS['integral'])}; got {name}")
    found = np.iinfo(name)
    return IntegerInfo(found.bits, int(found.max), int(found.min), name)


def isdtype(dtype: str, kind: str | tuple) -> bool:
    """Whether a dtype is of a kind, is another dtype, or one of several of those."""
    if isinstance(kind, tuple):
        return any(isdtype(dtype, one) for one in kind)
    if kind not in KINDS and kind not in ALL:
        raise ValueError(f"unknown kind {kind!r}; known: {', '.join(KINDS)}")
    return dtype in KINDS.get(kind, (kind,))


def promoted(first: str, second: str) -> str:
    """The dtype of an operation on two. Raises TypeError where the standard leaves it open."""
    if {first, second} == set(HALF):
        return "float32"
    for kind in (BOOL, SIGNED, UNSIGNED, FLOATING):
        if first in kind and second in kind:
            return max(first, second, key=kind.index)
    unsigned, signed = sorted((first, second), key=lambda name: name not in UNSIGNED)
    if unsigned in UNSIGNED[:-1] and signed in SIGNED:
        return max(SIGNED[UNSIGNED.index(unsigned) + 1], signed, key=SIGNED.index)
    raise TypeError(f"operands of one dtype or kind are needed, got {first}, {second}")


def of_scalar(value: bool | int | float, dtype: str) -> str:
    """The dtype of an operation on an array of `dtype` and a Python scalar: the array's.

    Raises TypeError for a scalar of another kind, and OverflowError for an integer that the dtype does not have.
    """
    fits = dtype == "bool" if isinstance(value, bool) else dtype in FLOATING or (isinstance(value, int) and dtype != "bool")
    if not fits:
        raise TypeError(f"{value!r} does not go with an array of {dtype}")
    if dtype in KINDS["integral"] and not iinfo(dtype).min <= value <= iinfo(dtype).max:
        raise OverflowError(f"{value} is no {dtype}: those are {iinfo(dtype).min} to {iinfo(dtype).max}")
    return dtype


def can_cast(start: str, to: str) -> bool:
    """Whether promotion may turn one dtype into the other."""
    try:
        return promoted(name_of(start), to) == to
    except TypeError:
        return False


def name_of(x: Any) -> str:
    """The dtype of an array, or the dtype itself. Raises TypeError for what is no dtype."""
    name = x if isinstance(x, str) else getattr(x, "dtype", x)
    if name not in ALL:
        raise TypeError(f"{x!r} is no dtype of this namespace; they are: {', '.join(ALL)}")
    return str(name)


def of_python(*values: bool | int | float) -> str:
    """The default dtype of Python numbers."""
    if all(isinstance(x, bool) for x in values):
        return "bool"
    return DEFAULTS["integral"] if all(isinstance(x, int) for x in values) else DEFAULTS["real floating"]
