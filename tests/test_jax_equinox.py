"""Equinox's transforms on the parameter trees as they are, and on the wrapper."""

import functools
import io

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import xformer
from xformer import models, params
from xformer.blocks import Block
from xformer.frontends.jax.equinox import Module, module
from xformer.precision import PRECISIONS

TOKENS = jnp.asarray(np.random.default_rng(0).integers(0, 500, (3, 6)), jnp.int32)
MASK = jnp.ones((3, 6), bool)
MODEL = xformer.init("gpt2-tiny", 1, "jax")
FORWARD = functools.partial(models.find("gpt2").forward, config=MODEL.config, precision=MODEL.precision)


def loss(p, tokens, mask):
    scores = jax.nn.log_softmax(FORWARD(p, tokens, mask)[:, :-1])
    return -jnp.take_along_axis(scores, tokens[:, 1:, None], axis=-1).mean()


@pytest.mark.parametrize("precision", PRECISIONS)
def test_filter_jit_takes_a_tree_with_its_static_arguments(precision):
    model = xformer.init("gpt2-tiny", 1, "jax", precision)
    forward = eqx.filter_jit(models.find("gpt2").forward)
    got = forward(model.params, TOKENS, MASK, config=model.config, precision=model.precision)
    atol = {"int8": 1e-2, "int32": 1e-3}.get(precision, 2e-6)  # a rounding before quantisation may move an integer by one
    np.testing.assert_allclose(got, model(TOKENS, MASK), rtol=0, atol=atol)


def test_filter_grad_agrees_with_a_finite_difference():
    gradient = eqx.filter_grad(loss)(MODEL.params, TOKENS, MASK)
    assert type(gradient) is type(MODEL.params)
    assert list(params.leaves(gradient)) == list(params.leaves(MODEL.params))
    generator = np.random.default_rng(1)
    direction = jax.tree.map(lambda leaf: jnp.asarray(generator.standard_normal(leaf.shape), jnp.float32), MODEL.params)
    slope = sum(jax.tree.leaves(jax.tree.map(lambda g, d: float(jnp.vdot(g, d)), gradient, direction)))
    step = 2e-4

    def beyond(step):
        return float(loss(jax.tree.map(lambda p, d: p + step * d, MODEL.params, direction), TOKENS, MASK))

    np.testing.assert_allclose(slope, (beyond(step) - beyond(-step)) / (2 * step), rtol=2e-3)


def test_filter_grad_leaves_integers_out():
    model = xformer.init("gpt2-tiny", 1, "jax", "int8")

    def total(p):
        return models.find("gpt2").forward(p, TOKENS, MASK, config=model.config, precision=model.precision).sum()

    gradient = eqx.filter_grad(total)(model.params)
    weight = gradient.layers[0].up.weight
    assert weight.values is None
    assert weight.scale.dtype == jnp.float32


def test_filter_vmap_over_models_and_over_rows():
    models_ = [xformer.init("gpt2-tiny", seed, "jax") for seed in (1, 2)]
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *(model.params for model in models_))
    both = eqx.filter_vmap(FORWARD, in_axes=(0, None, None))(stacked, TOKENS, MASK)
    for got, model in zip(both, models_, strict=True):
        np.testing.assert_allclose(got, model(TOKENS, MASK), rtol=0, atol=2e-6)
    rows = eqx.filter_vmap(FORWARD, in_axes=(None, 0, 0))(MODEL.params, TOKENS[:, None], MASK[:, None])
    np.testing.assert_allclose(rows[:, 0], MODEL(TOKENS, MASK), rtol=0, atol=2e-6)


def test_tree_at_replaces_a_leaf_and_a_node():
    zeroed = eqx.tree_at(lambda p: p.layers[1].down.bias, MODEL.params, jnp.zeros(64))
    assert not zeroed.layers[1].down.bias.any()
    assert zeroed.layers[0] is not MODEL.params.layers[1]
    swapped = eqx.tree_at(lambda p: p.layers[0], MODEL.params, MODEL.params.layers[1], is_leaf=lambda node: isinstance(node, Block))
    np.testing.assert_array_equal(swapped.layers[0].up.weight, MODEL.params.layers[1].up.weight)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_leaves_are_serialised_and_read_back(precision):
    model = xformer.init("gpt2-tiny", 1, "jax", precision)
    file = io.BytesIO()
    eqx.tree_serialise_leaves(file, model.params)
    file.seek(0)
    like = jax.tree.map(jnp.zeros_like, model.params)
    again = eqx.tree_deserialise_leaves(file, like)
    for got, wanted in zip(jax.tree.leaves(again), jax.tree.leaves(model.params), strict=True):
        assert got.dtype == wanted.dtype
        np.testing.assert_array_equal(got, wanted)


def test_the_wrapper_is_a_module_like_any_other():
    wrapped = module(xformer.init("bert-tiny", 4, "numpy"))
    assert isinstance(wrapped, Module)
    assert isinstance(wrapped, eqx.Module)
    eager = xformer.init("bert-tiny", 4)
    np.testing.assert_allclose(eqx.filter_jit(wrapped)(TOKENS, MASK), eager(TOKENS, MASK), rtol=0, atol=2e-6)
    gradient = eqx.filter_grad(lambda m: m(TOKENS, MASK, function="embed").sum())(wrapped)
    assert jnp.isfinite(gradient.params.embedding.token).all()
    assert "f32[64,64]" in str(wrapped)
