"""The operations that blocks are made of, in Array API calls, and the verbs that the standard lacks.

Softmax, norms and activations are ordinary compositions. The verbs `erf`, `contract`, `hadamard`, `write` and `dtype` are
looked up for each library: the namespace's own attribute, then `backends/<library>.py`, then the portable definition here.
"""

import functools
import itertools
import math
import operator
from collections.abc import Callable
from types import ModuleType

from array_api_compat import array_namespace, device

from xformer import backends
from xformer.annotations import Array, Bool, Float, Int

namespace = array_namespace


def count(stop: int, like: Array) -> Int[Array, " stop"]:
    """0, 1, .. stop - 1 as int32, where `like` lives."""
    xp = namespace(like)
    return xp.arange(stop, dtype=xp.int32, device=device(like))


# ---------------------------------------------------------------------------------------------- the contract on dtypes
def widen(x: Float[Array, "..."]) -> Float[Array, "..."]:
    """`x` in fp32, or as it is when it is fp64. Raises TypeError for anything but a real floating dtype."""
    xp = namespace(x)
    if x.dtype == xp.float32 or x.dtype == xp.float64:
        return x
    if "float" not in str(x.dtype):
        raise TypeError(f"expected floating-point numbers, got {x.dtype}")
    return xp.astype(x, xp.float32)


def in_float32(function: Callable) -> Callable:
    """Compute in fp32 (fp64 if the first argument is fp64) and return the first argument's dtype.

    Sums over thousands of bf16 or fp16 values stop growing or overflow, so norms, softmax and activations never run in them.
    """

    @functools.wraps(function)
    def wide(x, *rest, **options):
        return namespace(x).astype(function(widen(x), *rest, **options), x.dtype, copy=False)

    return wide


# ------------------------------------------------------------------------------------------------------------ reductions
@in_float32
def softmax(x: Float[Array, "... s"], mask: Bool[Array, "..."] | None = None) -> Float[Array, "... s"]:
    """exp(x) / sum(exp(x)) over the last axis; a key masked out (False) weighs exactly 0, a fully masked row is zeros."""
    xp = namespace(x)
    if mask is not None:
        x = xp.where(mask, x, -math.inf)
    top = xp.max(x, axis=-1, keepdims=True)
    weights = xp.exp(x - xp.where(top == -math.inf, 0.0, top))
    total = xp.sum(weights, axis=-1, keepdims=True)
    return weights / xp.where(total == 0.0, 1.0, total)


@in_float32
def layer_norm(x: Float[Array, "... d"], scale: Float[Array, " d"], bias: Float[Array, " d"], eps: float) -> Float[Array, "... d"]:
    """(x - mean) / sqrt(variance + eps) * scale + bias over the last axis (Ba et al. 2016, arXiv:1607.06450)."""
    xp = namespace(x)
    # Two passes: E[x^2] - E[x]^2 cancels to 0 for rows such as 1e4 + {0, 1, 2, 3}.
    centred = x - xp.mean(x, axis=-1, keepdims=True)
    variance = xp.mean(centred * centred, axis=-1, keepdims=True)
    return centred / xp.sqrt(variance + eps) * scale + bias


@in_float32
def rms_norm(x: Float[Array, "... d"], scale: Float[Array, " d"], eps: float) -> Float[Array, "... d"]:
    """x / sqrt(mean(x^2) + eps) * scale over the last axis (Zhang and Sennrich 2019, arXiv:1910.07467)."""
    xp = namespace(x)
    return x / xp.sqrt(xp.mean(x * x, axis=-1, keepdims=True) + eps) * scale


@in_float32
def mean(x: Float[Array, "b t d"], mask: Bool[Array, "b t"]) -> Float[Array, "b d"]:
    """The mean over the tokens that are not masked out; zeros where all are."""
    xp = namespace(x)
    total = xp.sum(xp.where(mask[:, :, None], x, 0.0), axis=1)
    return total / xp.astype(xp.clip(xp.sum(xp.astype(mask, xp.int32), axis=1, dtype=xp.int32), 1, None), x.dtype)[:, None]


@in_float32
def normalize(x: Float[Array, "... d"]) -> Float[Array, "... d"]:
    """x divided by its Euclidean length over the last axis; zeros stay zeros."""
    xp = namespace(x)
    length = xp.sqrt(xp.sum(x * x, axis=-1, keepdims=True))
    return x / xp.where(length == 0.0, 1.0, length)


# ----------------------------------------------------------------------------------------------------------- activations
@in_float32
def gelu(x: Float[Array, "..."]) -> Float[Array, "..."]:
    """x * Phi(x) with the exact normal distribution function (Hendrycks and Gimpel 2016, arXiv:1606.08415): BERT's."""
    return 0.5 * x * (1.0 + erf(x * math.sqrt(0.5)))


@in_float32
def gelu_tanh(x: Float[Array, "..."]) -> Float[Array, "..."]:
    """The tanh approximation of GELU (same paper, section 2): GPT-2's, up to 4.8e-4 from the exact one."""
    inner = math.sqrt(2.0 / math.pi) * (x + 0.044715 * (x * x * x))
    return 0.5 * x * (1.0 + namespace(x).tanh(inner))


@in_float32
def quick_gelu(x: Float[Array, "..."]) -> Float[Array, "..."]:
    """x * sigmoid(1.702 x): the sigmoid approximation of GELU (same paper, section 2)."""
    return x * _sigmoid(1.702 * x)


@in_float32
def silu(x: Float[Array, "..."]) -> Float[Array, "..."]:
    """x * sigmoid(x) (Elfwing et al. 2017, arXiv:1702.03118), also called swish."""
    return x * _sigmoid(x)


def _sigmoid(x):
    xp = namespace(x)
    return 1.0 / (1.0 + xp.exp(xp.clip(-x, None, 87.0)))  # exp(89) overflows; through tanh the left tail would cancel to 0


@in_float32
def relu(x: Float[Array, "..."]) -> Float[Array, "..."]:
    """max(x, 0), NaN for NaN."""
    return namespace(x).where(x < 0.0, 0.0, x)


@in_float32
def tanh(x: Float[Array, "..."]) -> Float[Array, "..."]:
    """tanh(x)."""
    return namespace(x).tanh(x)


ACTIVATIONS = {  # by their names in Hugging Face configs
    "gelu": gelu,
    "gelu_new": gelu_tanh,
    "gelu_fast": gelu_tanh,
    "gelu_pytorch_tanh": gelu_tanh,
    "quick_gelu": quick_gelu,
    "relu": relu,
    "silu": silu,
    "swish": silu,
    "tanh": tanh,
}


# ------------------------------------------------------------------------------------------------------- picking by index
def pick(x: Float[Array, "b t d"], index: Int[Array, " b"]) -> Float[Array, "b d"]:
    """x[i, index[i]] for each row i."""
    xp = namespace(x, index)
    batch, tokens, width = x.shape
    return xp.take(xp.reshape(x, (batch * tokens, width)), count(batch, x) * tokens + index, axis=0)


def first(mask: Bool[Array, "b t"]) -> Int[Array, " b"]:
    """The index of each row's first True, or 0."""
    xp = namespace(mask)
    return xp.astype(xp.argmax(xp.astype(mask, xp.int32), axis=1), xp.int32)


def last(mask: Bool[Array, "b t"]) -> Int[Array, " b"]:
    """The index of each row's last True, or 0."""
    xp = namespace(mask)
    return xp.max(count(mask.shape[1], mask)[None, :] * xp.astype(mask, xp.int32), axis=1)


# ----------------------------------------------------------------------------------------------------------------- verbs
def dtype(xp: ModuleType, name: str):
    """The dtype called `name` in `xp`, the optional bfloat16 included. Raises TypeError where there is none."""
    found = backends.verb(xp, name)
    if found is None:
        raise TypeError(f"{backends.library_of(xp)} has no dtype {name}")
    return found


# x * P(x^2) / Q(x^2): a rational minimax fit to erf on [-ERF_LIMIT, ERF_LIMIT], where erf rounds to 1 in fp32.
# In fp32 it is within 7 ULP and 4e-7; near 0 it keeps full relative precision.
ERF_LIMIT = 3.9192059
ERF_P = (1.1283791462897392, 0.19037268025016926, 0.05274479788547231, 0.003764305683863607, 2.8487792734283165e-4, 2.0506819353341176e-6)
ERF_Q = (1.0, 0.502046139685467, 0.11409563736840392, 0.014966584728940977, 0.0011622625677198822, 3.809759576950403e-5)


def erf(x: Float[Array, "..."]) -> Float[Array, "..."]:
    """The error function, to fp32 accuracy."""
    xp = namespace(x)
    native = backends.verb(xp, "erf")
    return native(x) if native else _portable_erf(xp, x)


def _portable_erf(xp, x):
    x = xp.clip(x, -ERF_LIMIT, ERF_LIMIT)
    square = x * x
    p, q = (functools.reduce(lambda total, c: total * square + c, reversed(fit)) for fit in (ERF_P, ERF_Q))
    return xp.clip(x * p / q, -1.0, 1.0)


def contract(a: Array, b: Array, accumulate) -> Array:
    """a @ transpose(b), over the last axis of both, accumulated and returned in the dtype `accumulate`.

    `a` is (..., m, k), `b` (..., n, k), or (n, k) against any `a`. Pairs: fp32 and bf16 into fp32; int8 and int32 into
    int32, exactly, provided that no sum leaves int32 (`xformer.precision` sees to that).
    """
    xp = namespace(a)
    native = backends.verb(xp, "contract")
    return native(a, b, accumulate) if native else _portable_contract(xp, a, b, accumulate)


def _portable_contract(xp, a, b, accumulate):
    """Through the float GEMM that every library has; integer GEMMs are missing or a hundred times slower."""
    if b.ndim == 2 and a.ndim != 2:  # one large GEMM instead of a batch of small ones
        flat = _portable_contract(xp, xp.reshape(a, (-1, a.shape[-1])), b, accumulate)
        return xp.reshape(flat, (*a.shape[:-1], b.shape[0]))
    if accumulate == xp.float32:
        return xp.matmul(xp.astype(a, xp.float32, copy=False), xp.matrix_transpose(xp.astype(b, xp.float32, copy=False)))
    if a.dtype != xp.int8:  # every partial sum is an integer below 2^53
        return _exact_matmul(xp, a, b, xp.float64)
    # 1024 products of at most 127 * 127 stay below 2^24, so that each fp32 partial sum is exact.
    cuts = [*range(0, a.shape[-1], 1024), a.shape[-1]]
    parts = (_exact_matmul(xp, a[..., start:stop], b[..., start:stop], xp.float32) for start, stop in itertools.pairwise(cuts))
    return functools.reduce(operator.add, parts)


def _exact_matmul(xp, a, b, inside):
    return xp.astype(xp.matmul(xp.astype(a, inside), xp.matrix_transpose(xp.astype(b, inside))), xp.int32)


def hadamard(x: Float[Array, "... k"], size: int) -> Float[Array, "... k"]:
    """`x` with each block of `size` = 4, 16, 64 .. channels times the matrix of that order that `xformer.precision.rotate` tells of."""
    xp = namespace(x)
    native = backends.verb(xp, "hadamard")
    if native:
        return native(x, size)
    blocks = xp.reshape(x, (*x.shape[:-1], x.shape[-1] // size, size))
    return xp.reshape(contract(blocks, _hadamard(x, size), xp.float32), x.shape)


def _hadamard(like, size):
    xp, index = namespace(like), count(4, like)
    matrix = half = 0.5 - xp.astype(index[:, None] == index[None, :], xp.float32)
    while matrix.shape[0] < size:
        matrix = xp.reshape(matrix[:, None, :, None] * half[None, :, None, :], (4 * matrix.shape[0],) * 2)
    return matrix


def write(cache: Array, new: Array, position: Int[Array, ""] | int) -> Array:
    """`cache` (..., s, e) with `new` (..., t, e) at rows position .. position + t. The old `cache` may be overwritten."""
    xp = namespace(cache, new)
    native = backends.verb(xp, "write")
    if native:
        return native(cache, new, position)
    start = int(position)
    return xp.concat((cache[..., :start, :], new, cache[..., start + new.shape[-2] :, :]), axis=-2)


def loop(step: Callable, x: Array, layers, states: tuple) -> tuple[Array, tuple]:
    """x through all layers: x, result = step(x, layer, state) for each, and the results in order.

    `layers` is a tuple, or something with a `loop(step, x, states)` of its own: layers that a compiler runs as one.
    """
    if not isinstance(layers, tuple):
        return layers.loop(step, x, states)
    results = []
    for layer, state in zip(layers, states, strict=True):
        x, result = step(x, layer, state)
        results.append(result)
    return x, tuple(results)
