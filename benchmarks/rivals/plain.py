"""BERT and GPT-2 as one writes them in JAX for nothing else: dictionaries of arrays, einsum, `jax.nn`, a loop over the steps.

Weights are those of `xformer`'s trees. `dtype` is that of the operands of each product; sums and norms are fp32.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp

from xformer.config import Config


def weights(tree: Any, dtype: Any) -> dict[str, Any]:
    """A tree's arrays by short names, matrices in `dtype` and transposed as they are used."""

    def linear(node):
        return {"w": node.weight.T.astype(dtype), "b": node.bias}

    def norm(node):
        return {"scale": node.scale, "bias": node.bias}

    layers = [
        {
            **{name: linear(getattr(block.attention, name)) for name in ("query", "key", "value", "output")},
            **{name: linear(getattr(block, name)) for name in ("up", "down")},
            **{name: norm(getattr(block, name)) for name in ("attention_norm", "ffn_norm")},
        }
        for block in tree.layers
    ]
    embedding = tree.embedding
    found = {"token": embedding.token, "position": embedding.position, "layers": layers}
    if hasattr(embedding, "norm"):
        return found | {"type": embedding.token_type[0], "norm": norm(embedding.norm)}
    return found | {"norm": norm(tree.norm), "head": embedding.token.T.astype(dtype)}


def product(pattern: str, a: jax.Array, b: jax.Array, dtype: Any) -> jax.Array:
    return jnp.einsum(pattern, a.astype(dtype), b.astype(dtype), preferred_element_type=jnp.float32)


def project(x, p, dtype):
    return product("...i,io->...o", x, p["w"], dtype) + p["b"]


def normalise(x, p, eps):
    x = x - x.mean(-1, keepdims=True)
    return x * jax.lax.rsqrt(jnp.square(x).mean(-1, keepdims=True) + eps) * p["scale"] + p["bias"]


def heads(x, count):
    return x.reshape(*x.shape[:2], count, -1)


def attend(query, key, value, mask, dtype):
    scores = product("bthe,bshe->bhts", query, key, dtype) * query.shape[-1] ** -0.5
    probabilities = jax.nn.softmax(jnp.where(mask, scores, jnp.finfo(jnp.float32).min))
    return product("bhts,bshe->bthe", probabilities, value, dtype).reshape(*query.shape[:2], -1)


@functools.partial(jax.jit, static_argnames=("config", "dtype"))
def bert(p, tokens, mask, config: Config, dtype):
    """The hidden states (b, t, d)."""
    x = normalise(p["token"][tokens] + p["position"][: tokens.shape[1]] + p["type"], p["norm"], config.eps)
    for layer in p["layers"]:
        query, key, value = (heads(project(x, layer[name], dtype), config.heads) for name in ("query", "key", "value"))
        y = attend(query, key, value, mask[:, None, None, :], dtype)
        x = normalise(x + project(y, layer["output"], dtype), layer["attention_norm"], config.eps)
        y = project(jax.nn.gelu(project(x, layer["up"], dtype), approximate=False), layer["down"], dtype)
        x = normalise(x + y, layer["ffn_norm"], config.eps)
    return x


def step(p, tokens, start, cache, config, dtype):
    """The ids (b) that follow `tokens`, whose first stands at place `start`, and the cache with them."""
    places = start + jnp.arange(tokens.shape[1])
    x, kept = p["token"][tokens] + p["position"][places], []
    mask = jnp.arange(cache[0][0].shape[1]) <= places[:, None]
    for layer, (keys, values) in zip(p["layers"], cache, strict=True):
        y = normalise(x, layer["attention_norm"], config.eps)
        query, key, value = (heads(project(y, layer[name], dtype), config.heads) for name in ("query", "key", "value"))
        keys, values = (jax.lax.dynamic_update_slice_in_dim(old, new, start, 1) for old, new in ((keys, key), (values, value)))
        kept.append((keys, values))
        x = x + project(attend(query, keys, values, mask, dtype), layer["output"], dtype)
        y = project(jax.nn.gelu(project(normalise(x, layer["ffn_norm"], config.eps), layer["up"], dtype)), layer["down"], dtype)
        x = x + y
    logits = product("bd,dv->bv", normalise(x[:, -1], p["norm"], config.eps), p["head"], dtype)
    return jnp.argmax(logits, -1).astype(jnp.int32), kept


@functools.partial(jax.jit, static_argnames=("config", "dtype", "capacity"))
def gpt2(p, tokens, count, config: Config, dtype, capacity: int):
    """The `count` most likely ids after `tokens`, in the first columns of (b, capacity): one program for any count."""
    batch, length = tokens.shape
    empty = jnp.zeros((batch, capacity, config.heads, config.width // config.heads))
    ids, cache = step(p, tokens, 0, [(empty, empty)] * config.layers, config, dtype)
    chosen = jnp.zeros((batch, capacity), jnp.int32).at[:, 0].set(ids)

    def advance(index, carry):
        ids, cache, chosen = carry
        ids, cache = step(p, ids[:, None], length + index - 1, cache, config, dtype)
        return ids, cache, chosen.at[:, index].set(ids)

    return jax.lax.fori_loop(1, count, advance, (ids, cache, chosen))[2]
