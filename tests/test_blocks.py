"""Encoder and decoder blocks against a plain fp64 NumPy transcription of the papers."""

import math

import numpy as np
import pytest
from compare import numbers

from xformer import backends, blocks, cache, ops, params
from xformer.config import PRESETS
from xformer.precision import FP32, INT8, INT32

RNG = np.random.default_rng(2)
CONFIG = PRESETS["bert-tiny"]
X = RNG.standard_normal((2, 6, CONFIG.width)).astype(np.float32)
HOST = params.map(lambda path, leaf: RNG.standard_normal(leaf.shape).astype(np.float32) * 0.3, blocks.block_spec(CONFIG))


def on(xp, array):
    return backends.from_numpy(xp, np.ascontiguousarray(array))


def placed(xp):
    return params.map(lambda path, leaf: on(xp, leaf), HOST)


def reference(x, mask, post_norm):
    """Both block kinds, in fp64."""
    heads, p = CONFIG.heads, params.map(lambda path, leaf: leaf.astype(np.float64), HOST)

    def linear(x, p):
        return x @ p.weight.T + p.bias

    def norm(x, p):
        return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + CONFIG.eps) * p.scale + p.bias

    def split(x):
        return x.reshape(*x.shape[:2], heads, -1).transpose(0, 2, 1, 3)

    def attend(x):
        q, k, v = (split(linear(x, part)) for part in (p.attention.query, p.attention.key, p.attention.value))
        scores = np.where(mask, q @ k.transpose(0, 1, 3, 2) / math.sqrt(q.shape[-1]), -np.inf)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        weights /= weights.sum(-1, keepdims=True)
        return linear((weights @ v).transpose(0, 2, 1, 3).reshape(x.shape), p.attention.output)

    def feed_forward(x):
        return linear(np.vectorize(lambda v: v * 0.5 * (1 + math.erf(v / math.sqrt(2))))(linear(x, p.up)), p.down)

    x = x.astype(np.float64)
    if post_norm:
        x = norm(x + attend(x), p.attention_norm)
        return norm(x + feed_forward(x), p.ffn_norm)
    x = x + attend(norm(x, p.attention_norm))
    return x + feed_forward(norm(x, p.ffn_norm))


KEYS = np.array([[1, 1, 1, 1, 0, 0], [1, 1, 1, 1, 1, 1]], bool)
CAUSAL = np.tril(np.ones((6, 6), bool))


def test_encoder(xp):
    mask = KEYS[:, None, None, :]
    got = blocks.encoder(on(xp, X), on(xp, mask), placed(xp), CONFIG, FP32)
    np.testing.assert_allclose(backends.to_numpy(got), reference(X, mask, post_norm=True), atol=1e-5)


def test_decoder(xp):
    got, memory = blocks.decoder(on(xp, X), on(xp, CAUSAL), placed(xp), CONFIG, FP32)
    assert memory is None
    np.testing.assert_allclose(backends.to_numpy(got), reference(X, CAUSAL, post_norm=False), atol=2e-5)


def test_C11_every_shape_of_a_mask_means_the_same(xp):
    p, x = placed(xp), on(xp, X)
    shapes = [CAUSAL, CAUSAL[None, None], np.broadcast_to(CAUSAL, (2, 1, 6, 6)), np.broadcast_to(CAUSAL, (2, CONFIG.heads, 6, 6))]
    first, *rest = (backends.to_numpy(blocks.encoder(x, on(xp, mask), p, CONFIG, FP32)) for mask in shapes)
    for other in rest:
        np.testing.assert_array_equal(other, first)
    keys = np.ones((2, 6), bool)
    keys[:, 4:] = False
    by_key = backends.to_numpy(blocks.encoder(x, on(xp, keys[:, None, None, :]), p, CONFIG, FP32))
    by_pair = backends.to_numpy(blocks.encoder(x, on(xp, np.broadcast_to(keys[:, None, None, :], (2, 1, 6, 6))), p, CONFIG, FP32))
    np.testing.assert_array_equal(by_key, by_pair)


def test_C06_a_query_without_keys_gets_zeros_from_attention(xp, precision):
    q, k, v = (on(xp, RNG.standard_normal((1, 2, 3, 8)).astype(np.float32)) for _ in "qkv")
    mask = np.array([[1, 1, 0], [1, 1, 0], [0, 0, 0]], bool)
    got = backends.to_numpy(blocks.attention(q, k, v, on(xp, mask), precision))
    assert (got[:, :, 2] == 0).all()
    assert np.isfinite(got).all()
    assert (got[:, :, :2] != 0).any()


@pytest.mark.parametrize("name", ["float32", "float64", "float16", "bfloat16"])
def test_C22_a_block_returns_the_dtype_it_was_given(xp, name, request):
    if name == "bfloat16":
        request.getfixturevalue("bfloat16")
    if name == "float16" and not hasattr(xp, "float16"):
        assert backends.library_of(xp) == "array_api_strict"  # the standard has no fp16
        return
    if name == "float64" and backends.library_of(xp) == "jax":
        name = "float32"  # JAX has no fp64 unless asked for
    dtype = ops.dtype(xp, name)
    x = xp.astype(on(xp, X), dtype)
    mask, p = on(xp, KEYS[:, None, None, :]), placed(xp)
    assert blocks.encoder(x, mask, p, CONFIG, FP32).dtype == dtype
    assert blocks.decoder(x, mask, p, CONFIG, FP32)[0].dtype == dtype


def test_nan_in_gives_nan_out_in_its_own_row_only(xp, precision):
    x = X.copy()
    x[0, 1, 3] = np.nan
    got = backends.to_numpy(blocks.encoder(on(xp, x), on(xp, np.ones((6, 6), bool)), placed(xp), CONFIG, precision))
    assert np.isnan(got[0]).all()
    assert np.isfinite(got[1]).all()


def test_split_and_merge_are_inverse(xp):
    x = on(xp, X)
    np.testing.assert_array_equal(backends.to_numpy(blocks.merge(blocks.split(x, 4))), X)


def test_embed_takes_ids_of_any_rank(xp):
    table = RNG.standard_normal((7, 4)).astype(np.float32)
    ids = np.array([[1, 0], [6, 1]], np.int32)
    np.testing.assert_array_equal(backends.to_numpy(blocks.embed(on(xp, table), on(xp, ids))), table[ids])


def test_memory_keeps_what_was_written(xp):
    config = PRESETS["gpt2-tiny"]
    memory = cache.empty(xp, config, 2, 5, precision=FP32).layers[0]
    key, value = (RNG.standard_normal((2, config.heads, 2, config.width // config.heads)).astype(np.float32) for _ in "kv")
    memory = memory.write(on(xp, key), on(xp, value), FP32)
    np.testing.assert_array_equal(backends.to_numpy(memory.key)[:, :, :2], key)
    np.testing.assert_array_equal(backends.to_numpy(memory.value)[:, :, :2], value)
    assert (backends.to_numpy(memory.key)[:, :, 2:] == 0).all()


@pytest.mark.parametrize("kept", [INT8, INT32], ids=["int8", "int32"])
def test_narrow_memory_attends_as_states_that_are_narrowed_at_each_step(xp, kept):
    """Bit for bit: a token's key and value have a scale of their own, whenever they are narrowed."""
    sizes, (queries, keys, values) = PRESETS["gpt2-tiny"], RNG.standard_normal((3, 2, 4, 3, 16)).astype(np.float32)
    assert (sizes.heads, sizes.width // sizes.heads) == (4, 16)
    memory = cache.empty(xp, sizes, 2, 5, precision=kept).layers[0].write(on(xp, keys), on(xp, values), kept)
    assert {str(x.dtype).rsplit(".")[-1] for x in (memory.key.values, memory.value.values)} == {kept.operand}
    room = np.zeros((2, 4, 2, 16), np.float32)
    wide = (on(xp, np.concatenate([x, room], axis=2)) for x in (keys, values))
    mask = on(xp, np.arange(5) < 3)
    got = blocks.attention(on(xp, queries), memory.key, memory.value, mask, kept)
    np.testing.assert_array_equal(backends.to_numpy(got), backends.to_numpy(blocks.attention(on(xp, queries), *wide, mask, kept)))


def test_visible_is_causal_and_leaves_out_padding(xp):
    real = np.array([[0, 1, 1, 0, 0], [1, 1, 1, 0, 0]], bool)
    got = backends.to_numpy(cache.visible(on(xp, real), xp.asarray(1, dtype=xp.int32), 2))
    assert got.shape == (2, 1, 2, 5)
    assert got[:, 0].astype(int).tolist() == [[[0, 1, 0, 0, 0], [0, 1, 1, 0, 0]], [[1, 1, 0, 0, 0], [1, 1, 1, 0, 0]]]


def test_C19_places_of_a_long_row_do_not_wrap(xp):
    real = np.ones((1, 200), bool)
    real[0, :3] = False
    got = backends.to_numpy(cache.places(on(xp, real), 0, 200))
    assert got[0].tolist() == [0, 0, 0, *range(197)]


def test_a_cache_larger_than_the_model_is_refused(xp):
    with pytest.raises(ValueError, match="a cache of 129 columns: the model has 128 positions"):
        cache.empty(xp, PRESETS["gpt2-tiny"], 1, 129)


# ------------------------------------------------------------------------------------------- what other models need of attention
def attention_inputs(xp, heads, served, seed=0):
    draw = np.random.default_rng(seed)
    shapes = ((2, heads, 5, 8), (2, served, 7, 8), (2, served, 7, 6))
    return [on(xp, draw.standard_normal(shape, np.float32)) for shape in shapes]


def test_grouped_queries_equal_repeated_keys(xp, precision):
    query, key, value = attention_inputs(xp, 6, 2)
    mask = on(xp, np.tri(5, 7, 2, dtype=bool))
    repeated = (xp.repeat(x, 3, axis=1) for x in (key, value))
    expected = blocks.attention(query, *repeated, mask, precision)
    np.testing.assert_allclose(numbers(blocks.attention(query, key, value, mask, precision)), numbers(expected), atol=1e-6)


def test_heads_that_cannot_share_are_refused(xp):
    with pytest.raises(ValueError, match="6 heads of queries cannot share 4 heads of keys"):
        blocks.attention(*attention_inputs(xp, 6, 4), None, FP32)


def test_softcap_and_bias_change_the_scores_in_that_order(xp):
    query, key, value = attention_inputs(xp, 2, 2)
    bias = np.random.default_rng(1).standard_normal((5, 7)).astype(np.float32)
    q, k, v = (numbers(x) for x in (query, key, value))
    scores = 3 * np.tanh(0.5 * q @ np.swapaxes(k, -1, -2) / 3) + bias
    weights = np.exp(scores) / np.exp(scores).sum(axis=-1, keepdims=True)
    got = blocks.attention(query, key, value, None, FP32, scale=0.5, softcap=3.0, bias=on(xp, bias))
    np.testing.assert_allclose(numbers(got), weights @ v, atol=2e-6)


@pytest.mark.parametrize("interleaved", [False, True])
def test_C58_rotary_scores_depend_on_distances_alone(xp, interleaved):
    query, key = np.random.default_rng(3).standard_normal((2, 8)).astype(np.float32)
    angles = np.arange(40)[:, None] * 10000.0 ** (-np.arange(3) / 3)
    tables = [on(xp, function(angles).astype(np.float32)) for function in (np.cos, np.sin)]

    def turned(x):
        rows = on(xp, np.broadcast_to(x, (1, 1, 40, 8)))
        return numbers(blocks.rotary(rows, *tables, interleaved))[0, 0]

    scores = turned(query) @ turned(key).T
    for distance in (0, 7, 20):
        np.testing.assert_allclose(np.diagonal(scores, distance), scores[0, distance], atol=5e-6)
    pairs = [(0, 1), (2, 3), (4, 5)] if interleaved else [(0, 3), (1, 4), (2, 5)]
    expected = query.astype(np.float64)
    for (a, b), angle in zip(pairs, angles[25], strict=True):
        turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
        expected[[a, b]] = turn @ expected[[a, b]]
    np.testing.assert_allclose(turned(query)[25], expected, atol=1e-6)
