"""Precisions as values: what happens to the operands of a contraction, and nothing else.

Everything between contractions (residual stream, softmax, norms, scales, biases) is fp32. A contraction narrows its two
operands, accumulates wide and returns fp32:

    FP32   fp32 x fp32 -> fp32
    BF16   bf16 x bf16 -> fp32
    INT8   int8 x int8 -> int32 -> fp32    symmetric, range 127, a scale per row of either operand
    INT32  int32 x int32 -> int32 -> fp32  symmetric, the widest range whose sums over K terms fit: isqrt((2^31 - 1) / K)

The rows of an operand are its vectors along the contracted (last) axis: an activation has a scale per token, a weight
one per output channel. Weights may be narrowed once by `prepare`; a weight that was not is narrowed at each use.

A few channels of a transformer's activations are tens of times as large as the rest, which a scale per token then rounds
to nothing. So both integer operands of a projection are first turned by one orthogonal matrix (`rotate`): the product
stays, the outliers are spread over their neighbours (Ashkboos et al. 2024, arXiv:2404.00456). It needs no data.
"""

import dataclasses
import math
from typing import Any

from xformer import ops
from xformer.annotations import Array, Float
from xformer.params import Spec, node

SMALLEST_NORMAL = 2.0**-126  # of fp32. Libraries disagree on smaller numbers (some flush them to 0), so no scale is one.


@node
class Quantized:
    """An integer operand: `values` (..., n, k) times `scale` (..., n, 1) is what it stands for."""

    values: Array
    scale: Array

    @property
    def shape(self) -> tuple[int, ...]:
        """That of the values."""
        return self.values.shape


@dataclasses.dataclass(frozen=True)
class Precision:
    """How the operands of contractions are represented. Instances are the constants FP32, BF16, INT8 and INT32."""

    name: str
    operand: str  # dtype of both operands
    accumulator: str

    def prepare(self, x: Float[Array, "... k"]) -> Any:
        """`x` as an operand of `project`: a weight, so that it is narrowed once and not at each call. Twice is as once."""
        return self.narrow(x)

    def stored(self, x: Spec) -> Any:
        """The shapes and dtypes of what `prepare` returns, and `keep` of either."""
        return Spec(x.shape, self.operand)

    def project(self, x: Float[Array, "... k"], linear) -> Float[Array, "... n"]:
        """x @ transpose(linear.weight) + linear.bias; the weight is (n, k), prepared by this precision or in fp32."""
        y = self.contract(self.prepare(x), self.prepare(linear.weight))
        return y if linear.bias is None else y + linear.bias

    def combine(self, weights: Float[Array, "b h t s"], value: Float[Array, "b h s e"] | Quantized) -> Float[Array, "b h t e"]:
        """weights @ value: what a token gets from the tokens that it attends to."""
        return self.contract(weights, ops.namespace(value).matrix_transpose(value))

    def keep(self, key: Float[Array, "b h t e"], value: Float[Array, "b h t u"], capacity: int) -> tuple[Any, Any]:
        """Both as operands of contractions with up to `capacity` tokens: narrowed once, when they go into a cache."""
        return self.narrow(key), self.narrow(value)

    def contract(self, a: Any, b: Any) -> Float[Array, "... m n"]:
        """a @ transpose(b), both narrowed, accumulated wide, returned in fp32; `a` is (..., m, k), `b` is (..., n, k)."""
        raise NotImplementedError

    def narrow(self, x: Any) -> Any:
        """`x` (..., k) as an operand of `contract`."""
        raise NotImplementedError


class Floating(Precision):
    """Operands rounded to a floating dtype."""

    def narrow(self, x):
        xp = ops.namespace(x)
        return xp.astype(x, ops.dtype(xp, self.operand), copy=False)

    def contract(self, a, b):
        return ops.contract(self.narrow(a), self.narrow(b), ops.namespace(a).float32)


class Integer(Precision):
    """Operands quantised symmetrically, row by row, at run time."""

    def limit(self, terms: int) -> int:
        """The largest operand for which a sum of `terms` products fits the accumulator and the operand its dtype."""
        return 127 if self.operand == "int8" else math.isqrt((2**31 - 1) // max(terms, 1))

    def stored(self, x):
        return Quantized(Spec(x.shape, self.operand), Spec((*x.shape[:-1], 1)))

    def prepare(self, x):
        return x if isinstance(x, Quantized) else self.narrow(rotate(x))

    def combine(self, weights, value):
        # A scale for each token's value, moved into the token's weight: a masked token then has no influence on any scale.
        # And tokens that attract large weights tend to have small values (Xiao et al. 2023, arXiv:2309.17453): without the
        # values' size such a weight would round all others to 0.
        transpose = ops.namespace(weights).matrix_transpose
        value = self.narrow(value, terms=value.shape[-2])
        weights = self.narrow(weights * transpose(value.scale))
        return self._total(weights.values, transpose(value.values)) * weights.scale

    def keep(self, key, value, capacity):
        return self.narrow(key), self.narrow(value, terms=capacity)

    def narrow(self, x, terms=None):
        if isinstance(x, Quantized):
            return x
        xp = ops.namespace(x)
        x, limit = xp.astype(x, xp.float32, copy=False), self.limit(terms or x.shape[-1])
        # Times a constant and times a reciprocal, never divided: compilers turn x / (top / c), and a division by a value
        # that is broadcast, into products, which round in another way than the divisions of other libraries.
        scale = xp.max(xp.abs(x), axis=-1, keepdims=True) * (1.0 / limit)
        whole = xp.round(x * (1.0 / xp.where(scale >= SMALLEST_NORMAL, scale, 1.0)))
        whole = xp.where(whole == whole, whole, 0.0)  # NaN has no integer; it lives on in its row's scale
        return Quantized(xp.astype(xp.clip(whole, -limit, limit), ops.dtype(xp, self.operand)), scale)

    def contract(self, a, b):
        a, b = self.narrow(a), self.narrow(b)
        return self._total(a.values, b.values) * a.scale * ops.namespace(b.scale).matrix_transpose(b.scale)

    def _total(self, a, b):
        xp = ops.namespace(a)
        return xp.astype(ops.contract(a, b, ops.dtype(xp, self.accumulator)), xp.float32)


def rotate(x: Float[Array, "... k"]) -> Float[Array, "... k"]:
    """`x` times an orthogonal, symmetric matrix along the last axis: rotate(a) @ rotate(b).T is a @ b.T.

    It mixes the channels of each block of 64, 16 or 4, whichever first divides k (otherwise none): the Kronecker product of
    matrices 1/2 - I of order 4, a Hadamard matrix that keeps a vector of equal numbers as it is. Sylvester's would turn
    the mean of a block into a new outlier.
    """
    width = x.shape[-1]
    size = next(size for size in (64, 16, 4, 1) if width % size == 0)
    if size == 1:
        return x
    xp = ops.namespace(x)
    x = xp.astype(x, xp.float32, copy=False)
    # On a grid so coarse that the sums are exact: their order, which each library chooses, cannot show in the integers.
    coarse = xp.max(xp.abs(x), axis=-1, keepdims=True) * (2.0 * size)
    return ops.hadamard((x + coarse) - coarse, size)


FP32 = Floating("fp32", "float32", "float32")
BF16 = Floating("bf16", "bfloat16", "float32")
INT8 = Integer("int8", "int8", "int32")
INT32 = Integer("int32", "int32", "int32")
PRECISIONS = {precision.name: precision for precision in (FP32, BF16, INT8, INT32)}


def find(precision: str | Precision) -> Precision:
    """The precision called `precision`, in either case. Raises ValueError naming the known ones."""
    if isinstance(precision, Precision):
        return precision
    found = PRECISIONS.get(str(precision).lower())
    if found is None:
        raise ValueError(f"unknown precision {precision!r}; known: {', '.join(PRECISIONS)}")
    return found
