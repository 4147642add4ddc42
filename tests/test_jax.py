"""The JAX frontend against the same models run eagerly and by NumPy. A warning is an error here as everywhere."""

import re
import subprocess
import sys

import array_api_compat
import jax
import numpy as np
import pytest

import xformer
from xformer import backends, cache, ops, params
from xformer.config import PRESETS
from xformer.frontends import jax as frontend
from xformer.precision import PRECISIONS

TOKENS = np.random.default_rng(5).integers(0, 500, (2, 7)).astype(np.int32)
MASK = np.array([[True] * 7, [True] * 4 + [False] * 3])
# A value that lies on the edge of two integers may round to either: one step of the coarsest grid is 1/127 of a row's range.
TOLERANCE = {"fp32": 2e-6, "bf16": 5e-3, "int8": 1e-2, "int32": 1e-3}


def close(got, wanted, precision):
    np.testing.assert_allclose(backends.to_numpy(got), backends.to_numpy(wanted), rtol=0, atol=TOLERANCE[precision])


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("preset", ["bert-tiny", "gpt2-tiny"])
def test_jit_equals_eager_equals_numpy(preset, precision):
    eager = xformer.init(preset, 1, "jax", precision)
    compiled = frontend.compile(eager)
    on_host = xformer.init(preset, 1, "numpy", precision)
    got = compiled(TOKENS, MASK)
    assert isinstance(got, jax.Array)
    close(got, eager(TOKENS, MASK), precision)
    close(got, on_host(TOKENS, MASK), precision)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_greedy_tokens_equal(precision):
    prompts = [[5, 6, 7], [8, 9], [1]]
    compiled = frontend.compile(xformer.init("gpt2-tiny", 2, "jax", precision))
    assert compiled.generate(prompts, 12, stop=()) == xformer.init("gpt2-tiny", 2, "numpy", precision).generate(prompts, 12, stop=())


def test_a_model_of_another_namespace_is_moved():
    model = xformer.init("bert-tiny", 3, "numpy")
    compiled = frontend.compile(model)
    assert all(isinstance(leaf, jax.Array) for leaf in params.leaves(compiled.params).values())
    close(compiled.pool(TOKENS, MASK), model.pool(TOKENS, MASK), "fp32")


def test_models_of_equal_sizes_share_what_was_compiled():
    traced = frontend.ahead.jitted(xformer.models.find("bert").forward)
    frontend.compile(xformer.init("bert-tiny", 4))(TOKENS)
    before = traced._cache_size()
    frontend.compile(xformer.init("bert-tiny", 5))(TOKENS)
    assert traced._cache_size() == before


def test_C63_the_cache_is_donated():
    model = frontend.compile(xformer.init("gpt2-tiny", 0))
    memory = cache.empty(model.xp, model.config, 2, 16, precision=model.precision)
    _, after = model._run("prefill", jax.numpy.asarray(TOKENS), jax.numpy.asarray(MASK), memory)
    assert all(leaf.is_deleted() for leaf in jax.tree.leaves(memory))
    assert not any(leaf.is_deleted() for leaf in jax.tree.leaves(after))


def test_C27_narrow_operands_reach_the_contraction_as_they_are():
    shapes = [jax.ShapeDtypeStruct((16, 16), "int8")] * 2
    text = jax.jit(lambda a, b: ops.contract(a, b, jax.numpy.int32)).lower(*shapes).as_text()
    assert "(tensor<16x16xi8>, tensor<16x16xi8>) -> tensor<16x16xi32>" in text


@pytest.mark.skipif(jax.default_backend() != "cpu", reason="what XLA makes of a product on a CPU")
@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("name", ["decode", "greedy"])
@pytest.mark.parametrize("precision", ["bf16", "int8"])
def test_C27_decoding_reads_narrow_weights_as_they_are(name, batch, precision):
    """No step widens a weight to memory, and none is widened before the loop."""
    compiled = frontend.lower(name, PRESETS["gpt2-tiny"], PRECISIONS[precision], batch, 16, 32).compile().as_text()
    assert re.search(r"(bf16|s8)\[256,64\]", compiled)
    assert not re.findall(r"(?:f32|s32)\[(?:256,64|64,256)\]", compiled)


def test_C50_the_namespace_of_a_traced_array_is_found():
    x = np.linspace(-2, 2, 7, dtype=np.float32)
    for find in (ops.namespace, array_api_compat.array_namespace):
        np.testing.assert_allclose(jax.jit(lambda x, find=find: find(x).exp(x))(x), np.exp(x), rtol=1e-6)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_every_node_is_a_pytree(precision):
    model = xformer.init("gpt2-tiny", 0, "jax", precision)
    leaves, structure = jax.tree.flatten(model.params)
    assert len(leaves) == len(list(params.items(model.params)))
    again = jax.tree.unflatten(structure, leaves)
    assert list(params.leaves(again)) == list(params.leaves(model.params))
    memory = cache.empty(jax.numpy, model.config, 1, 4, precision=model.precision)
    assert jax.tree.structure(jax.tree.map(lambda leaf: leaf, memory)) == jax.tree.structure(memory)


def test_nodes_defined_later_are_registered_once():
    @params.node
    class Later:
        weight: object

    try:
        assert jax.tree.leaves(Later(3)) == [3]
        params.on_node(frontend.trees.register)
    finally:
        params.NODES.remove(Later)
        params._listeners.pop()


def test_xformer_alone_does_not_import_jax():
    code = "import sys, xformer; assert 'jax' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
