"""What holds for every batch, shape, mask, dtype and size of numbers holds for compiled programs too, and they agree with NumPy.

Examples are few and drawn the same each time: a shape that was not there before is compiled.
"""

import functools

import numpy as np
import pytest
from compare import bits, worst
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_properties import batches

import xformer
from xformer import blocks, config, ops
from xformer.frontends import tvm
from xformer.frontends.tvm import namespace as xp
from xformer.precision import FP32, PRECISIONS

SIZES = {"vocab_size": 503, "positions": 140, "width": 16, "heads": 2, "ffn": 24, "layers": 1}
SMALL = {
    "bert": config.replace(config.PRESETS["bert-tiny"], **SIZES),
    "gpt2": config.replace(config.PRESETS["gpt2-tiny"], **SIZES, eos_token=502),
}
EXACT = {"fp32": 5e-6, "bf16": 3e-2, "int8": 6e-2, "int32": 5e-3}  # as in test_properties.py, for rows of 16 numbers
MODELS = [("bert", name) for name in PRECISIONS] + [("gpt2", "fp32"), ("gpt2", "int8")]
few = settings(max_examples=10, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
quick = batches(most=4, longest=16)  # one length of the ladder, three sizes of a batch


@functools.cache
def model(name, precision="fp32"):
    """The eager model and the compiled one."""
    eager = xformer.init(SMALL[name], 1)
    return xformer.init(SMALL[name], 1, precision=precision), tvm.compile(eager, precision=precision)


# ---------------------------------------------------------------------------------------------------------------- whole models
@pytest.mark.parametrize(("name", "precision"), MODELS)
@few
@given(batch=quick, seed=st.integers(0, 99))
def test_rows_are_what_they_are_alone_and_in_any_order(name, precision, batch, seed):
    """In another order bit for bit: the same program computes each row by itself."""
    eager, compiled = model(name, precision)
    ids, mask = batch
    together = compiled(ids, mask)
    assert worst(together, eager(ids, mask), mask) <= EXACT[precision]
    order = np.random.default_rng(seed).permutation(len(ids))
    assert (bits(compiled(ids[order], mask[order])) == bits(together[order])).all()
    for row, real, states in zip(ids, mask, together, strict=True):
        assert worst(states[real], compiled(row[real][None])[0]) <= EXACT[precision]


@pytest.mark.parametrize("precision", ["fp32", "int8"])
@few
@given(batch=batches(most=2, longest=12), count=st.integers(1, 6))
def test_cached_decoding_takes_the_best_of_each_forward_pass(precision, batch, count):
    _, compiled = model("gpt2", precision)
    ids, mask = batch
    rows = compiled.generate(ids, count, mask=mask, stop=())
    for row, real, tokens in zip(ids, mask, rows, strict=True):
        assert len(tokens) == count
        whole = np.concatenate([row[real], tokens])[None]
        logits = compiled(whole)[0]
        for place, token in enumerate(tokens, real.sum() - 1):
            assert logits[place].max() - logits[place, token] <= EXACT[precision]  # best, or level with the best


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("length", [1, 2, 13, 31, 127, 140])
def test_prime_and_long_lengths_and_those_of_one(name, length):
    eager, compiled = model(name)
    ids = np.random.default_rng(length).integers(1, 500, (1, length))
    assert worst(compiled(ids), eager(ids)) <= EXACT["fp32"]


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("dtype", ["bool", "int8", "uint8", "int16", "int32", "int64", "uint64"])
def test_ids_and_masks_of_every_integer_dtype_mean_the_same(name, dtype):
    _, compiled = model(name)
    mask = np.array([[1, 1, 1, 1], [1, 1, 0, 0]])
    ids = np.array([[5, 99, 7, 100], [8, 9, 0, 0]])
    got = compiled(ids if dtype == "bool" else ids.astype(dtype), mask.astype(dtype))
    np.testing.assert_array_equal(got, compiled(ids.tolist(), mask.tolist()))


@pytest.mark.parametrize("shape", [(0, 3), (2, 0)])
def test_empty_batches_are_refused_as_they_are_by_the_eager_model(shape):
    for each in model("bert"):
        with pytest.raises(ValueError, match=rf"tokens must not be empty, got shape \({shape[0]}, {shape[1]}\)"):
            each(np.zeros(shape, int))


# ------------------------------------------------------------------------------------------------- functions of any shape, jit
def everywhere(function, *arrays, limit=2e-6):
    """The function on NumPy arrays, by TVM on values and compiled by TVM: the same up to rounding; what NumPy gives."""
    with np.errstate(all="ignore"):
        expected = np.asarray(function(*arrays))
    scale = limit * max(1.0, float(np.max(np.abs(expected[np.isfinite(expected)]), initial=0.0)))
    for got in (function(*map(xp.asarray, arrays)), tvm.jit(function)(*arrays)):
        got = np.asarray(got)
        assert (got.shape, got.dtype) == (expected.shape, expected.dtype)
        np.testing.assert_array_equal(np.isfinite(got), np.isfinite(expected))
        np.testing.assert_array_equal(np.isnan(got), np.isnan(expected))
        assert worst(got, expected, np.isfinite(expected)) <= scale
    return expected


SHAPES = st.lists(st.sampled_from([0, 1, 2, 3, 7, 13]), min_size=1, max_size=3).map(tuple) | st.sampled_from(
    [(1, 1031), (2, 4096), (521, 3)]
)
NUMBERS = st.sampled_from([1e-38, 1e-20, 1.0, 50.0, 1e18])


def drawn(shape, seed, magnitude=1.0, dtype="float32"):
    return (np.random.default_rng(seed).standard_normal(shape) * magnitude).astype(dtype)


@few
@given(shape=SHAPES.filter(lambda shape: shape[-1]), seed=st.integers(0, 99), magnitude=NUMBERS)
def test_softmax_of_any_shape(shape, seed, magnitude):
    found = everywhere(ops.softmax, drawn(shape, seed, magnitude))
    np.testing.assert_allclose(found.sum(axis=-1), 1.0, rtol=1e-5)


@few
@given(shape=SHAPES.filter(lambda shape: shape[-1]), seed=st.integers(0, 99), magnitude=st.sampled_from([1e-20, 1.0, 1e8]))
def test_norms_of_any_shape(shape, seed, magnitude):
    weight, bias = drawn(shape[-1:], seed + 1), drawn(shape[-1:], seed + 2)
    everywhere(lambda x, w, b: ops.layer_norm(x, w, b, 1e-5), drawn(shape, seed, magnitude), weight, bias, limit=1e-5)


@few
@given(
    rows=st.sampled_from([0, 1, 5, 67]), terms=st.sampled_from([0, 1, 31, 257]), columns=st.sampled_from([0, 1, 17]), seed=st.integers(0, 9)
)
def test_contractions_of_any_shape(rows, terms, columns, seed):
    everywhere(lambda x, w: ops.contract(x, w, ops.namespace(x).float32), drawn((rows, terms), seed), drawn((columns, terms), seed + 1))


@few
@given(
    sizes=st.tuples(*map(st.sampled_from, ([1, 2], [1, 3], [1, 5], [1, 7, 67], [1, 4]))),
    magnitude=st.sampled_from([1e-30, 1.0, 1e15]),
    form=st.sampled_from(["b1ts", "b11s", "11ts", "ts"]),
    seed=st.integers(0, 99),
)
def test_attention_under_masks_of_any_form(sizes, magnitude, form, seed):
    batch, heads, tokens, keys, width = sizes
    query = drawn((batch, heads, tokens, width), seed, magnitude)
    key, value = drawn((batch, heads, keys, width), seed + 1), drawn((batch, heads, keys, width), seed + 2)
    shape = {"b1ts": (batch, 1, tokens, keys), "b11s": (batch, 1, 1, keys), "11ts": (1, 1, tokens, keys), "ts": (tokens, keys)}[form]
    mask = np.random.default_rng(seed + 3).random(shape) < 0.6
    out = everywhere(lambda q, k, v, m: blocks.attention(q, k, v, m, FP32), query, key, value, mask, limit=1e-5)
    some = np.broadcast_to(mask.any(axis=-1), out.shape[:-1])
    assert (out[~some] == 0).all()


@pytest.mark.parametrize("function", [ops.softmax, ops.gelu, ops.gelu_tanh, ops.silu], ids=lambda function: function.__name__)
def test_numbers_at_the_edge_of_what_there_is(function):
    tiny, huge = np.finfo(np.float32).smallest_normal, np.finfo(np.float32).max
    rows = [[0.0, -0.0, tiny, -tiny], [huge, 0, 1, 2], [-huge, 0, 1, 2], [huge, huge, -huge, 0], [88.0, -88.0, 1e-30, -1e-30]]
    rows += [[np.inf, 0, 1, 2], [-np.inf, 0, 1, 2], [np.nan, 0, 1, 2]]
    everywhere(function, np.array(rows, np.float32))


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int8", "uint8", "int32", "int64", "bool"])
def test_dtypes_stay_what_they_are(dtype):
    x = np.array([[0, 1, 1], [1, 0, 1]]).astype(dtype)
    everywhere(lambda x: ops.namespace(x).sort(ops.namespace(x).concat([x, x[:, :1]], axis=1), axis=1), x)
    if dtype != "bool":
        everywhere(lambda x: (x + x) * x - x, x)
