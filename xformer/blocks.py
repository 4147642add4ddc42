"""Encoder and decoder blocks, written once. No line here knows which library, device or precision it runs with.

Weights are (out, in): every contraction runs over the last axis of both operands. A mask is boolean, True where a token
may be attended to, and broadcasts against the scores (b, h, t, s): (t, s), (b, 1, 1, s), (1, 1, t, s), (b, 1, t, s).
"""

import dataclasses
from collections.abc import Callable
from typing import Any

from xformer import ops, padding, params
from xformer.annotations import Array, Bool, Float, Int
from xformer.cache import Memory
from xformer.config import Config
from xformer.padding import Places
from xformer.params import Spec, node
from xformer.precision import Precision, Quantized


@node
class Linear:
    """y = x @ transpose(weight) + bias. `weight` is (out, in), or what `Precision.prepare` made of it; None: `tied`."""

    weight: Array | None
    bias: Float[Array, " out"] | None = None


@node
class Norm:
    """The scale and bias of a layer norm."""

    scale: Float[Array, " d"]
    bias: Float[Array, " d"]


@node
class Attention:
    """The four projections of multi-head attention, heads side by side in the rows of query, key and value."""

    query: Linear
    key: Linear
    value: Linear
    output: Linear


@node
class Block:
    """One layer: attention and a feed-forward network, each with its norm (before or after, as the block function has it)."""

    attention: Attention
    attention_norm: Norm
    up: Linear
    down: Linear
    ffn_norm: Norm


Layers = Any  # tuple[Block, ...], or what else `ops.loop` takes


def encoder(
    x: Float[Array, "b t d"], mask: Bool[Array, "..."], p: Block, config: Config, precision: Precision, places: Places | None = None
) -> Float[Array, "b t d"]:
    """Post-norm block, as in BERT (Vaswani et al. 2017, arXiv:1706.03762): each sublayer is added, then normalised.

    With `places`, `x` is what `padding.unpad` made of a batch, and so is the result.
    """
    given = x.dtype
    x = ops.widen(x)
    y, _ = attend(x, mask, p.attention, config.heads, precision, places=places)
    x = norm(x + y, p.attention_norm, config)
    x = norm(x + feed_forward(x, p, config, precision), p.ffn_norm, config)
    return ops.namespace(x).astype(x, given, copy=False)


def decoder(
    x: Float[Array, "b t d"], mask: Bool[Array, "..."], p: Block, config: Config, precision: Precision, memory: Memory | None = None
) -> tuple[Float[Array, "b t d"], Memory | None]:
    """Pre-norm block, as in GPT-2 (Radford et al. 2019): each sublayer reads normalised input and is added.

    With a `memory` the t tokens are written into it and attend to all of its columns that `mask` allows.
    Returns the output and the memory that holds these tokens too.
    """
    given = x.dtype
    x = ops.widen(x)
    y, memory = attend(norm(x, p.attention_norm, config), mask, p.attention, config.heads, precision, memory)
    x = x + y
    x = x + feed_forward(norm(x, p.ffn_norm, config), p, config, precision)
    return ops.namespace(x).astype(x, given, copy=False), memory


def attend(
    x: Float[Array, "b t d"],
    mask: Bool[Array, "..."],
    p: Attention,
    heads: int,
    precision: Precision,
    memory: Memory | None = None,
    places: Places | None = None,
) -> tuple[Float[Array, "b t d"], Memory | None]:
    """Multi-head self-attention, over `memory` when there is one. Returns its output and the memory with these tokens.

    With `places`, `x` is what `padding.unpad` made of a batch, and so is the output; the mask is that of the batch.
    """
    query, key, value = (split(padding.pad(precision.project(x, linear), places), heads) for linear in (p.query, p.key, p.value))
    if memory is not None:
        memory = memory.write(key, value, precision)
        key, value = memory.key, memory.value
    y = padding.unpad(merge(attention(query, key, value, mask, precision)), places)
    return precision.project(y, p.output), memory


def attention(
    query: Float[Array, "b h t e"],
    key: Float[Array, "b g s e"] | Quantized,
    value: Float[Array, "b g s u"] | Quantized,
    mask: Bool[Array, "..."] | None,
    precision: Precision,
    scale: float | None = None,
    softcap: float | None = None,
    bias: Float[Array, "..."] | None = None,
) -> Float[Array, "b h t u"]:
    """softmax(query @ transpose(key) * scale + bias) @ value; a masked key weighs exactly 0, a row without keys gives zeros.

    `key` and `value` may be narrowed already, by `Precision.keep`. `scale` is 1 / sqrt(e) unless given. With fewer heads in
    `key` and `value`, each of them serves h / g neighbouring
    queries (Ainslie et al. 2023, arXiv:2305.13245). `softcap` c makes scores c tanh(scores / c) before the bias is added
    (Gemma Team 2024, arXiv:2408.00118). Raises ValueError where g does not divide h.
    """
    xp, heads, served = ops.namespace(query), query.shape[1], key.shape[1]
    if heads % served:
        raise ValueError(f"{heads} heads of queries cannot share {served} heads of keys evenly")
    query = query * (query.shape[-1] ** -0.5 if scale is None else scale)
    scores = _ungrouped(precision.contract(_grouped(query, served), key), heads)
    scores = scores if softcap is None else softcap * xp.tanh(scores * (1.0 / softcap))
    scores = scores if bias is None else scores + bias
    return _ungrouped(precision.combine(_grouped(ops.softmax(scores, mask), served), value), heads)


def _grouped(x, served):
    """Queries of one group below each other: they meet the same keys."""
    batch, heads, tokens, width = x.shape
    return x if heads == served else ops.namespace(x).reshape(x, (batch, served, heads // served * tokens, width))


def _ungrouped(x, heads):
    batch, served, rows, width = x.shape
    return x if heads == served else ops.namespace(x).reshape(x, (batch, heads, rows * served // heads, width))


def rotary(
    x: Float[Array, "b h t e"], cos: Float[Array, "... t r"], sin: Float[Array, "... t r"], interleaved: bool = False
) -> Float[Array, "b h t e"]:
    """Rotary position embedding (Su et al. 2021, arXiv:2104.09864): pair i of the first 2 r channels turned by its angle.

    The pair is channels i and i + r (as in Llama), or, `interleaved`, 2 i and 2 i + 1 (as in GPT-J); the rest stays.
    """
    xp, turned = ops.namespace(x), 2 * cos.shape[-1]
    halves = (slice(0, turned, 2), slice(1, turned, 2)) if interleaved else (slice(turned // 2), slice(turned // 2, turned))
    a, b = (x[..., half] for half in halves)
    pair = [a * cos - b * sin, a * sin + b * cos]
    both = xp.reshape(xp.stack(pair, axis=-1), (*x.shape[:-1], turned)) if interleaved else xp.concat(pair, axis=-1)
    return both if turned == x.shape[-1] else xp.concat([both, x[..., turned:]], axis=-1)


def feed_forward(x: Float[Array, "b t d"], p: Block, config: Config, precision: Precision) -> Float[Array, "b t d"]:
    """Up to the feed-forward width, through the activation and down again."""
    return precision.project(ops.ACTIVATIONS[config.activation](precision.project(x, p.up)), p.down)


def norm(x: Float[Array, "... d"], p: Norm, config: Config) -> Float[Array, "... d"]:
    """Layer norm with the model's eps."""
    return ops.layer_norm(x, p.scale, p.bias, config.eps)


def split(x: Float[Array, "b t d"], heads: int) -> Float[Array, "b h t e"]:
    """Each head's share of the width, heads first."""
    xp = ops.namespace(x)
    return xp.permute_dims(xp.reshape(x, (*x.shape[:-1], heads, x.shape[-1] // heads)), (0, 2, 1, 3))


def merge(x: Float[Array, "b h t e"]) -> Float[Array, "b t d"]:
    """The inverse of `split`."""
    xp = ops.namespace(x)
    batch, heads, tokens, width = x.shape
    return xp.reshape(xp.permute_dims(x, (0, 2, 1, 3)), (batch, tokens, heads * width))


def embed(table: Float[Array, "v d"], ids: Int[Array, "..."]) -> Float[Array, "... d"]:
    """The rows of `table` that `ids` name, in fp32; ids are checked before any kernel runs, not here."""
    xp = ops.namespace(table, ids)
    rows = xp.take(table, xp.reshape(ids, (-1,)), axis=0)
    return xp.reshape(ops.widen(rows), (*ids.shape, table.shape[-1]))


# ------------------------------------------------------------------------------------------------- the trees, not the maths
def linear_spec(out: int, width: int) -> Linear:
    """The shapes of a projection from `width` to `out`."""
    return Linear(Spec((out, width)), Spec((out,)))


def norm_spec(width: int) -> Norm:
    """The shapes of a norm."""
    return Norm(Spec((width,)), Spec((width,)))


def block_spec(config: Config) -> Block:
    """The shapes of one layer."""
    width, ffn = config.width, config.ffn
    attention = Attention(*(linear_spec(width, width) for _ in range(4)))
    return Block(attention, norm_spec(width), linear_spec(ffn, width), linear_spec(width, ffn), norm_spec(width))


def tied(head: Linear, table: Array) -> Linear:
    """The output layer over the vocabulary: `head`, with the token table for a weight when it has none of its own."""
    return head if head.weight is not None else dataclasses.replace(head, weight=table)


def prepare(tree: Any, narrow: Callable[[Any], Any]) -> Any:
    """The tree with narrow(weight) for the weight of each Linear: `Precision.prepare` on arrays, `Precision.stored` on specs."""
    return params.map(
        lambda path, leaf: dataclasses.replace(leaf, weight=narrow(leaf.weight)) if isinstance(leaf, Linear) else leaf, tree, at=(Linear,)
    )
