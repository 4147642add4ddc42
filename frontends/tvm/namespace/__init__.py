"""The Array API standard (2024.12) over TVM: the same functions trace a model, and compute where arrays hold values.

A traced array is handed to an ordinary function; its `__array_namespace__` leads here, and what the function does is
written down. `asarray` and its like give arrays that hold values: what is done to them is compiled by TVM and run when
somebody asks for a number. Dtypes are their names. Comparisons with NaN and reductions behave as the standard has them,
which the built-in maximum and hyperbolic tangent of TE do not. There are no complex numbers, which TVM does not have.
"""

# ruff: noqa: F401  a namespace is its attributes

import math

from xformer.frontends.tvm.dtypes import can_cast, finfo, iinfo, isdtype
from xformer.frontends.tvm.elements import astype, result_type
from xformer.frontends.tvm.mixing import hadamard
from xformer.frontends.tvm.namespace import operators  # arrays get their operators
from xformer.frontends.tvm.namespace.arithmetic import (
    abs,
    acos,
    acosh,
    add,
    asin,
    asinh,
    atan,
    atan2,
    atanh,
    ceil,
    conj,
    copysign,
    cos,
    cosh,
    divide,
    erf,
    exp,
    expm1,
    floor,
    floor_divide,
    hypot,
    imag,
    log,
    log1p,
    log2,
    log10,
    logaddexp,
    maximum,
    minimum,
    multiply,
    negative,
    nextafter,
    positive,
    pow,
    real,
    reciprocal,
    remainder,
    round,
    sign,
    sin,
    sinh,
    sqrt,
    square,
    subtract,
    tan,
    tanh,
    trunc,
)
from xformer.frontends.tvm.namespace.creation import (
    arange,
    asarray,
    empty,
    empty_like,
    eye,
    from_dlpack,
    full,
    full_like,
    linspace,
    ones,
    ones_like,
    tril,
    triu,
    zeros,
    zeros_like,
)
from xformer.frontends.tvm.namespace.info import __array_namespace_info__
from xformer.frontends.tvm.namespace.linear import contract, matmul, tensordot, vecdot, write
from xformer.frontends.tvm.namespace.logic import (
    bitwise_and,
    bitwise_invert,
    bitwise_left_shift,
    bitwise_or,
    bitwise_right_shift,
    bitwise_xor,
    clip,
    equal,
    greater,
    greater_equal,
    isfinite,
    isinf,
    isnan,
    less,
    less_equal,
    logical_and,
    logical_not,
    logical_or,
    logical_xor,
    not_equal,
    signbit,
    where,
)
from xformer.frontends.tvm.namespace.manipulation import (
    broadcast_arrays,
    broadcast_to,
    concat,
    expand_dims,
    flip,
    matrix_transpose,
    meshgrid,
    moveaxis,
    permute_dims,
    reshape,
    roll,
    squeeze,
    stack,
    tile,
    unstack,
)
from xformer.frontends.tvm.namespace.padding import pad_tokens, places, unpad_tokens
from xformer.frontends.tvm.namespace.picking import repeat, take, take_along_axis
from xformer.frontends.tvm.namespace.reductions import (
    all,
    any,
    count_nonzero,
    cumulative_prod,
    cumulative_sum,
    diff,
    max,
    mean,
    min,
    prod,
    std,
    sum,
    var,
)
from xformer.frontends.tvm.namespace.searching import (
    argmax,
    argmin,
    argsort,
    nonzero,
    searchsorted,
    sort,
)
from xformer.frontends.tvm.namespace.sets import (
    isin,
    unique_all,
    unique_counts,
    unique_inverse,
    unique_values,
)

__array_api_version__ = "2024.12"
bool = "bool"
int8, int16, int32, int64 = "int8", "int16", "int32", "int64"
uint8, uint16, uint32, uint64 = "uint8", "uint16", "uint32", "uint64"
float16, bfloat16, float32, float64 = "float16", "bfloat16", "float32", "float64"
pi, e, inf, nan, newaxis = math.pi, math.e, math.inf, math.nan, None
__all__ = [name for name in dir() if not name.startswith("_") and name not in ("math", "operators")]
