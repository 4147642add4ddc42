"""JAX's transforms on the models' functions as they are."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import xformer
from xformer import cache, config, models
from xformer.frontends.jax import layers, trees
from xformer.precision import FP32, PRECISIONS

TOKENS = jnp.asarray(np.random.default_rng(0).integers(0, 500, (3, 6)), jnp.int32)
MASK = jnp.asarray(np.arange(6) < np.array([[6], [4], [1]]))


def bound(preset, name="forward", precision="fp32"):
    """A model's parameters, and one of its functions of parameters and inputs."""
    model = xformer.init(preset, 2, "jax", precision)
    return model.params, functools.partial(getattr(model.functions, name), config=model.config, precision=model.precision)


def close(got, wanted, atol=2e-6):
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(wanted), strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=atol)


@pytest.mark.parametrize("preset", ["bert-tiny", "gpt2-tiny"])
def test_vmap_over_rows_is_the_batch(preset):
    p, forward = bound(preset)
    rows = jax.vmap(forward, in_axes=(None, 0, 0))(p, TOKENS[:, None], MASK[:, None])
    close(rows[:, 0], forward(p, TOKENS, MASK))


def test_vmap_over_rows_whose_caches_stand_at_different_positions():
    p, decode = bound("gpt2-tiny", "decode")
    _, prefill = bound("gpt2-tiny", "prefill")
    sizes = config.PRESETS["gpt2-tiny"]

    def filled(length):
        return prefill(p, TOKENS[:1, :length], jnp.ones((1, length), bool), cache.empty(jnp, sizes, 1, 9))[1]

    memories = [filled(length) for length in (2, 5, 6)]
    together = jax.tree.map(lambda *leaves: jnp.stack(leaves), *memories)
    logits, after = jax.jit(jax.vmap(decode, in_axes=(None, 0, 0)))(p, TOKENS[:, :1], together)
    assert after.position.tolist() == [3, 6, 7]
    for row, memory in enumerate(memories):
        close(logits[row], decode(p, TOKENS[row, :1], memory)[0])


@pytest.mark.parametrize("preset", ["bert-tiny", "gpt2-tiny"])
def test_jvp_and_grad_are_each_others_transpose(preset):
    p, forward = bound(preset)
    generator = np.random.default_rng(3)
    direction = jax.tree.map(lambda leaf: jnp.asarray(0.02 * generator.standard_normal(leaf.shape), jnp.float32), p)
    out, tangent = jax.jvp(lambda p: forward(p, TOKENS, MASK), (p,), (direction,))
    cotangent = jnp.asarray(generator.standard_normal(out.shape), jnp.float32)
    (gradient,) = jax.vjp(lambda p: forward(p, TOKENS, MASK), p)[1](cotangent)
    there = jnp.vdot(tangent, cotangent)
    back = sum(jnp.vdot(g, d) for g, d in zip(jax.tree.leaves(gradient), jax.tree.leaves(direction), strict=True))
    np.testing.assert_allclose(there, back, rtol=1e-4)
    assert abs(there) > 1e-2


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("preset", ["bert-tiny", "gpt2-tiny"])
def test_stacked_layers_give_the_same(preset, precision):
    p, forward = bound(preset, precision=precision)
    atol = {"fp32": 2e-6, "bf16": 5e-3, "int8": 1e-2, "int32": 1e-3}[precision]
    close(jax.jit(forward)(layers.stack(p), TOKENS, MASK), forward(p, TOKENS, MASK), atol)


def test_stacked_layers_fill_and_read_the_cache():
    p, prefill = bound("gpt2-tiny", "prefill")
    _, decode = bound("gpt2-tiny", "decode")
    results = []
    for tree in (p, layers.stack(p)):
        logits, memory = prefill(tree, TOKENS, MASK, cache.empty(jnp, config.PRESETS["gpt2-tiny"], 3, 8))
        results.append((logits, decode(tree, TOKENS[:, 0], memory)))
    close(*results)


def test_unstack_is_the_inverse_of_stack():
    p, _ = bound("gpt2-tiny", precision="int8")
    again = layers.unstack(layers.stack(p))
    assert jax.tree.structure(again) == jax.tree.structure(p)
    close(again, p, 0)


def test_the_program_of_stacked_layers_does_not_grow_with_depth():
    def size(depth):
        sizes = dataclasses.replace(config.PRESETS["bert-tiny"], layers=depth)
        forward = functools.partial(models.find("bert").forward, config=sizes, precision=FP32)
        deep = jax.eval_shape(layers.stack, trees.prepared(sizes, FP32))
        return len(jax.jit(forward).lower(deep, TOKENS, MASK).as_text().splitlines())

    assert size(48) == size(12)


@pytest.mark.parametrize("arrange", [layers.recompute, lambda p: layers.recompute(layers.stack(p)), layers.stack])
def test_recomputing_changes_no_gradient(arrange):
    p, forward = bound("gpt2-tiny")
    wanted = jax.grad(lambda p: jnp.mean(forward(p, TOKENS, MASK) ** 2))(p)
    got = jax.jit(jax.grad(lambda p: jnp.mean(forward(arrange(p), TOKENS, MASK) ** 2)))(p)
    close(got, wanted, 1e-6)


def test_recomputing_keeps_less_for_the_gradient():
    p, forward = bound("bert-tiny")

    def kept(arrange):
        _, back = jax.vjp(lambda p: forward(arrange(p), TOKENS, MASK), p)
        return sum(leaf.size for leaf in jax.tree.leaves(back))

    assert kept(layers.recompute) < kept(lambda p: p)
