"""The hand-written JAX version computes what our models do: otherwise there is nothing to compare."""

import jax.numpy as jnp
import numpy as np
import pytest

import xformer
from benchmarks.rivals import plain

TOKENS = np.random.default_rng(0).integers(0, 500, (2, 9)).astype(np.int32)
MASK = np.arange(9) < np.array([[9], [4]])


@pytest.mark.parametrize(("precision", "dtype", "atol"), [("fp32", jnp.float32, 5e-6), ("bf16", jnp.bfloat16, 2e-2)])
def test_the_encoder_by_hand(precision, dtype, atol):
    model = xformer.init("bert-tiny", 1, "jax")
    got = plain.bert(plain.weights(model.params, dtype), TOKENS, MASK, model.config, dtype)
    expected = xformer.init("bert-tiny", 1, "numpy", precision)(TOKENS, MASK)
    np.testing.assert_allclose(got[MASK], expected[MASK], rtol=0, atol=atol)


def test_the_decoder_by_hand():
    model = xformer.init("gpt2-tiny", 1, "jax")
    weights = plain.weights(model.params, jnp.float32)
    for count in (1, 7):
        got = plain.gpt2(weights, TOKENS, count, model.config, jnp.float32, 16)
        assert np.asarray(got)[:, :count].tolist() == xformer.init("gpt2-tiny", 1).generate(TOKENS, count, stop=())
