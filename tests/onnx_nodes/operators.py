"""ONNX operators in terms of xformer's functions and the Array API, as far as they are offered.

An operator takes the node's inputs (None for one that is left out) and its attributes, and returns the outputs that it has.
Integer dtypes follow the specification of opset 24: https://onnx.ai/onnx/operators/.
"""

import math

from xformer import blocks, ops
from xformer.precision import FP32


# --------------------------------------------------------------------------------------------------- softmax, norms, gelu
def softmax(x, axis=-1):
    xp = ops.namespace(x)
    return (xp.moveaxis(ops.softmax(xp.moveaxis(x, axis, -1)), -1, axis),)


def over_trailing(function, x, weights, axis):
    """A norm over all axes from `axis` on: over the last of an array in which they are one."""
    xp = ops.namespace(x)
    axis %= x.ndim
    flat = function(xp.reshape(x, (*x.shape[:axis], -1)), *(xp.reshape(weight, (-1,)) for weight in weights))
    return (xp.reshape(flat, x.shape),)


def layer_normalization(x, scale, bias, axis=-1, epsilon=1e-5):
    return over_trailing(lambda *arrays: ops.layer_norm(*arrays, epsilon), x, (scale, bias), axis)


def rms_normalization(x, scale, axis=-1, epsilon=1e-5):
    return over_trailing(lambda *arrays: ops.rms_norm(*arrays, epsilon), x, (scale,), axis)


def gelu(x, approximate="none"):
    return (ops.gelu_tanh(x) if approximate == "tanh" else ops.gelu(x),)


# ------------------------------------------------------------------------------------------------------------- attention
def heads_first(x, heads):
    return x if x.ndim == 4 else blocks.split(x, heads)


def attention(
    query,
    key,
    value,
    mask=None,
    past_key=None,
    past_value=None,
    lengths=None,
    is_causal=0,
    scale=None,
    softcap=0.0,
    left_window_size=-1,
    right_window_size=-1,
    q_num_heads=None,
    kv_num_heads=None,
    softmax_precision=None,
    qk_matmul_output_mode=None,
):
    """The queries stand at the end of what is past, or, with `lengths`, of each row's own keys.

    The scores are no output, whatever their mode, and softmax runs in fp32, whatever its precision is.
    """
    xp, given, flat = ops.namespace(query), query.dtype, query.ndim == 3
    query, key, value = (heads_first(x, n) for x, n in ((query, q_num_heads), (key, kv_num_heads), (value, kv_num_heads)))
    past = 0
    if past_key is not None:
        past = past_key.shape[2]
        key, value = xp.concat([past_key, key], axis=2), xp.concat([past_value, value], axis=2)
    keys = ops.count(key.shape[2], key)[None, :]
    lengths = None if lengths is None else xp.astype(lengths, xp.int32)[:, None, None, None]
    place = ops.count(query.shape[2], query)[:, None] + (past if lengths is None else lengths - query.shape[2])
    allowed, bias = keys >= 0, None
    if lengths is not None:
        allowed = allowed & (keys < lengths)
    if is_causal or right_window_size >= 0:
        allowed = allowed & (keys <= place + (0 if is_causal else right_window_size))
    if left_window_size >= 0:
        allowed = allowed & (keys >= place - left_window_size)
    if mask is not None:
        mask = wide_enough(mask, key.shape[2])
        allowed, bias = (allowed & mask, None) if mask.dtype == xp.bool else (allowed, ops.widen(mask))
    out = blocks.attention(query, key, value, allowed, FP32, scale, softcap or None, bias)
    out = xp.astype(blocks.merge(out) if flat else out, given)
    return (out,) if past_key is None else (out, key, value)


def wide_enough(mask, columns):
    """A mask for fewer keys than there are: the others are not attended to."""
    xp, missing = ops.namespace(mask), columns - mask.shape[-1]
    if not missing:
        return mask
    absent = xp.zeros((*mask.shape[:-1], missing), dtype=mask.dtype)
    return xp.concat([mask, absent if mask.dtype == xp.bool else absent - math.inf], axis=-1)


def rotary_embedding(x, cos, sin, positions=None, interleaved=0, rotary_embedding_dim=0, num_heads=0):
    """`rotary_embedding_dim` is twice the width of the tables, which says it already."""
    xp, flat = ops.namespace(x), x.ndim == 3
    if positions is not None:
        cos, sin = (blocks.embed(table, positions) for table in (cos, sin))
    out = blocks.rotary(heads_first(x, num_heads), cos[:, None, :, :], sin[:, None, :, :], bool(interleaved))
    return (xp.astype(blocks.merge(out) if flat else out, x.dtype),)


# -------------------------------------------------------------------------------------------------------------- integers
RANGES = {"int8": (-128, 127), "uint8": (0, 255), "int16": (-(2**15), 2**15 - 1), "uint16": (0, 2**16 - 1)}


def along(x, parameter, axis, block_size):
    """A scale or zero point so that it broadcasts against `x`: one for all, one for each index of `axis`, or one a block."""
    xp = ops.namespace(x)
    if block_size:
        return xp.repeat(parameter, block_size, axis=axis)
    shape = [1] * x.ndim
    if math.prod(parameter.shape) > 1:
        shape[axis] = -1
    return xp.reshape(parameter, tuple(shape))


def shifted(x, zero):
    xp = ops.namespace(x)
    return xp.astype(x, xp.int32) - xp.astype(zero, xp.int32)


def narrow(x, scale, zero, dtype):
    xp = ops.namespace(x)
    low, high = RANGES[dtype]
    whole = xp.round(ops.widen(x) / ops.widen(scale)) + xp.astype(zero, xp.float32)
    return xp.astype(xp.clip(whole, low, high), getattr(xp, dtype))


def name_of(array):
    return str(array.dtype).rpartition(".")[2]


def quantize_linear(x, scale, zero=None, axis=1, block_size=0, output_dtype=0):
    """Without a zero point the integer type is `output_dtype`, numbered as in ONNX's TensorProto."""
    xp = ops.namespace(x)
    dtype = {0: "uint8", 2: "uint8", 3: "int8", 4: "uint16", 5: "int16"}[output_dtype] if zero is None else name_of(zero)
    zero = xp.zeros(scale.shape, dtype=xp.int32) if zero is None else zero
    return (narrow(x, along(x, scale, axis, block_size), along(x, zero, axis, block_size), dtype),)


def dequantize_linear(x, scale, zero=None, axis=1, block_size=0):
    xp = ops.namespace(x)
    zero = xp.zeros(scale.shape, dtype=xp.int32) if zero is None else zero
    whole = xp.astype(shifted(x, along(x, zero, axis, block_size)), xp.float32)
    return (xp.astype(whole * ops.widen(along(x, scale, axis, block_size)), scale.dtype),)


def dynamic_quantize_linear(x):
    xp = ops.namespace(x)
    low, high = (xp.clip(extreme(x), *limits) for extreme, limits in ((xp.min, (None, 0.0)), (xp.max, (0.0, None))))
    scale = (high - low) / 255.0
    zero = xp.astype(xp.clip(xp.round(-low / scale), 0, 255), xp.uint8)
    return narrow(x, scale, zero, "uint8"), scale, zero


def matmul_integer(a, b, a_zero=0, b_zero=0):
    xp = ops.namespace(a)
    return (ops.contract(shifted(a, a_zero), xp.matrix_transpose(shifted(b, b_zero)), xp.int32),)


def qlinear_matmul(a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero):
    xp = ops.namespace(a)
    (whole,) = matmul_integer(a, b, a_zero, b_zero)
    real = xp.astype(whole, xp.float32) * (ops.widen(a_scale) * ops.widen(b_scale))
    return (narrow(real, y_scale, y_zero, name_of(y_zero)),)


OPERATORS = {
    "Attention": attention,
    "DequantizeLinear": dequantize_linear,
    "DynamicQuantizeLinear": dynamic_quantize_linear,
    "Gelu": gelu,
    "LayerNormalization": layer_normalization,
    "MatMulInteger": matmul_integer,
    "QLinearMatMul": qlinear_matmul,
    "QuantizeLinear": quantize_linear,
    "RMSNormalization": rms_normalization,
    "RotaryEmbedding": rotary_embedding,
    "Softmax": softmax,
}
