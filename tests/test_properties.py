"""What holds for every batch, whatever its shape, its padding and the size of its numbers."""

import functools

import numpy as np
import pytest
from compare import worst
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import xformer
from xformer import blocks, ops
from xformer.precision import FP32, PRECISIONS

# The same rows in another batch: sums in another order, and a number on the edge of two that a narrow type has may become either.
EXACT = {"fp32": 2e-6, "bf16": 2e-2, "int8": 2e-2, "int32": 2e-3}
SLOW = settings(max_examples=25, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])


@functools.cache
def model(preset, precision="fp32"):
    return xformer.init(preset, 1, precision=precision)


@st.composite
def batches(draw, most=4, longest=23):
    """Ids and a mask with at least one real token a row, padded on both sides at will."""
    count, length = draw(st.integers(1, most)), draw(st.integers(1, longest))
    ids = np.random.default_rng(draw(st.integers(0, 99))).integers(1, 500, (count, length))
    mask = np.zeros((count, length), bool)
    for row in mask:
        start = draw(st.integers(0, length - 1))
        row[start : draw(st.integers(start + 1, length))] = True
    return ids, mask


@pytest.mark.parametrize("preset", ["bert-tiny", "gpt2-tiny"])
@pytest.mark.parametrize("precision", PRECISIONS)
@SLOW
@given(batch=batches())
def test_a_row_is_what_it_is_alone_and_without_padding(preset, precision, batch):
    ids, mask = batch
    together = model(preset, precision)(ids, mask)
    for row, real, states in zip(ids, mask, together, strict=True):
        assert worst(states[real], model(preset, precision)(row[real][None])[0]) <= EXACT[precision]


@pytest.mark.parametrize("preset", ["bert-tiny", "gpt2-tiny"])
@SLOW
@given(batch=batches(), seed=st.integers(0, 99))
def test_a_permuted_batch_is_permuted(preset, batch, seed):
    ids, mask = batch
    order = np.random.default_rng(seed).permutation(len(ids))
    assert worst(model(preset)(ids[order], mask[order]), model(preset)(ids, mask)[order]) <= EXACT["fp32"]


@SLOW
@given(batch=batches(longest=12), count=st.integers(1, 6))
def test_generating_is_taking_the_best_of_each_forward_pass(batch, count):
    ids, mask = batch
    gpt2 = model("gpt2-tiny")
    rows = gpt2.generate(ids, count, mask=mask, stop=())
    for row, real, tokens in zip(ids, mask, rows, strict=True):
        assert len(tokens) == count
        logits = gpt2(np.concatenate([row[real], tokens])[None])[0]
        for place, token in enumerate(tokens, real.sum() - 1):
            assert logits[place].max() - logits[place, token] <= 1e-5  # best, or level with the best


@SLOW
@given(
    sizes=st.tuples(st.integers(1, 3), st.integers(1, 3), st.integers(1, 7), st.integers(1, 9), st.integers(1, 5)),
    magnitude=st.sampled_from([1e-30, 1e-3, 1.0, 1e3, 1e15]),
    seed=st.integers(0, 99),
)
def test_attention_stays_between_its_values(sizes, magnitude, seed):
    batch, heads, tokens, keys, width = sizes
    draw = np.random.default_rng(seed)
    query = draw.standard_normal((batch, heads, tokens, width)).astype(np.float32) * np.float32(magnitude)
    key, value = draw.standard_normal((2, batch, heads, keys, width)).astype(np.float32)
    mask = draw.random((batch, 1, tokens, keys)) < 0.7
    out = blocks.attention(query, key, value, mask, FP32)
    assert out.shape == query.shape
    assert np.isfinite(out).all()
    some = np.broadcast_to(mask.any(axis=-1), out.shape[:-1])
    low, high = value.min(axis=2, keepdims=True) - 1e-5, value.max(axis=2, keepdims=True) + 1e-5
    assert ((out >= low) & (out <= high))[some].all()
    assert (out[~some] == 0).all()


@SLOW
@given(shape=st.lists(st.integers(0, 5), min_size=1, max_size=4).map(tuple), seed=st.integers(0, 99))
def test_softmax_sums_to_one_and_norms_to_nothing_in_any_shape(shape, seed):
    x = np.random.default_rng(seed).standard_normal(shape).astype(np.float32) * 50
    if 0 in shape:
        if shape[-1]:
            assert ops.softmax(x).shape == shape
        return
    np.testing.assert_allclose(ops.softmax(x).sum(axis=-1), 1.0, rtol=1e-5)
    ones = np.ones(shape[-1], np.float32)
    np.testing.assert_allclose(ops.layer_norm(x, ones, 0 * ones, 1e-5).sum(axis=-1), 0.0, atol=1e-4)


@pytest.mark.parametrize("precision", ["int8", "int32"])
@SLOW
@given(rows=st.integers(1, 4), width=st.integers(1, 130), seed=st.integers(0, 99), exponent=st.integers(-35, 35))
def test_a_quantised_operand_is_within_half_a_step(precision, rows, width, seed, exponent):
    x = np.random.default_rng(seed).standard_normal((rows, width)).astype(np.float32) * np.float32(10.0**exponent)
    narrow = PRECISIONS[precision].narrow(x)
    step = narrow.scale.astype(np.float64)
    kept = np.where(step >= 2.0**-126, step, np.inf)  # smaller rows are zero
    assert (np.abs(narrow.values * step - x)[np.isfinite(kept[:, 0])] <= (0.5 + 1e-4) * step[np.isfinite(kept[:, 0])]).all()
    assert np.abs(narrow.values.astype(np.int64)).max() <= PRECISIONS[precision].limit(width)
