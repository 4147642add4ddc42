"""Softmax, norms, activations, picking and the verbs, against plain NumPy in fp64."""

import math

import ml_dtypes
import numpy as np
import pytest

from xformer import backends, ops

RNG = np.random.default_rng(0)
X = RNG.standard_normal((3, 5, 64)).astype(np.float32)


def on(xp, array):
    return backends.from_numpy(xp, np.ascontiguousarray(array))


def test_softmax(xp):
    got = backends.to_numpy(ops.softmax(on(xp, X * 30)))
    wide = np.exp(X.astype(np.float64) * 30 - (X * 30).max(-1, keepdims=True))
    np.testing.assert_allclose(got, wide / wide.sum(-1, keepdims=True), atol=5e-7)


def test_C04_C08_softmax_gives_a_masked_key_no_weight_whatever_its_score(xp):
    mask = RNG.random(X.shape) > 0.5
    mask[..., 0] = True
    scores = np.where(mask, X, np.float32(1e30))
    got = backends.to_numpy(ops.softmax(on(xp, scores), on(xp, mask)))
    assert (got[~mask] == 0).all()
    np.testing.assert_allclose(got.sum(-1), 1, atol=1e-6)


def test_C05_softmax_of_a_fully_masked_row_is_zeros(xp):
    mask = np.ones((5, 64), bool)
    mask[2] = False
    got = backends.to_numpy(ops.softmax(on(xp, X), on(xp, mask)))
    assert (got[:, 2] == 0).all()
    np.testing.assert_allclose(got[:, 3].sum(-1), 1, atol=1e-6)


def test_C39_softmax_keeps_nan_and_takes_minus_infinity(xp):
    row = np.array([[0, np.nan, 1], [-np.inf, 0, -np.inf]], np.float32)
    got = backends.to_numpy(ops.softmax(on(xp, row)))
    assert np.isnan(got[0]).all()
    assert got[1].tolist() == [0, 1, 0]


def test_layer_norm(xp):
    scale, bias = (RNG.standard_normal(64).astype(np.float32) for _ in "sb")
    wide = X.astype(np.float64)
    expected = (wide - wide.mean(-1, keepdims=True)) / np.sqrt(wide.var(-1, keepdims=True) + 1e-5) * scale + bias
    np.testing.assert_allclose(backends.to_numpy(ops.layer_norm(on(xp, X), on(xp, scale), on(xp, bias), 1e-5)), expected, atol=3e-6)


def test_C37_layer_norm_takes_the_variance_in_two_passes(xp):
    row = np.float32(1e4) + np.arange(4, dtype=np.float32)[None]
    one, zero = on(xp, np.ones(4, np.float32)), on(xp, np.zeros(4, np.float32))
    expected = (np.arange(4) - 1.5) / np.sqrt(1.25)
    np.testing.assert_allclose(backends.to_numpy(ops.layer_norm(on(xp, row), one, zero, 1e-12))[0], expected, atol=1e-6)


def test_C36_rms_norm_does_not_overflow_in_fp16(xp):
    if not hasattr(xp, "float16"):
        assert backends.library_of(xp) == "array_api_strict"  # the standard has no fp16
        return
    got = ops.rms_norm(on(xp, np.full((1, 8), 300, np.float16)), on(xp, np.ones(8, np.float32)), 1e-6)
    assert got.dtype == xp.float16
    np.testing.assert_allclose(np.asarray(backends.to_numpy(got), np.float32), 1, atol=1e-3)


@pytest.mark.usefixtures("bfloat16")
def test_C21_norms_of_wide_bf16_rows_are_taken_in_fp32(xp):
    row = (1 + RNG.standard_normal((2, 4096)) / 4).astype(ml_dtypes.bfloat16)
    wide = row.astype(np.float64)
    expected = (wide - wide.mean(-1, keepdims=True)) / wide.std(-1, keepdims=True)
    one, zero = on(xp, np.ones(4096, np.float32)), on(xp, np.zeros(4096, np.float32))
    got = ops.layer_norm(on(xp, row), one, zero, 1e-12)
    assert got.dtype == ops.dtype(xp, "bfloat16")
    got = backends.to_numpy(xp.astype(got, xp.float32))
    np.testing.assert_allclose(got, expected, atol=2**-8 * np.abs(expected).max())


def test_C34_gelu_is_exact_and_gelu_new_is_the_tanh_form(xp):
    x = on(xp, np.array([-2.7], np.float32))
    assert abs(float(ops.ACTIVATIONS["gelu"](x)[0]) - -0.0093608) < 3e-7  # one rounding of 1 + erf, times 2.7
    assert abs(float(ops.ACTIVATIONS["gelu_new"](x)[0]) - -0.0088875) < 3e-7  # one rounding of 1 + erf, times 2.7


ACTIVATIONS = {
    "gelu": lambda x: x * 0.5 * (1 + math.erf(x / math.sqrt(2))),
    "gelu_new": lambda x: 0.5 * x * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    "quick_gelu": lambda x: x / (1 + math.exp(-1.702 * x)),
    "silu": lambda x: x / (1 + math.exp(-x)),
    "relu": lambda x: max(x, 0.0),
    "tanh": math.tanh,
}


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations(xp, name):
    x = np.concatenate([np.linspace(-30, 30, 601), [1e-20, -1e-20, 0]]).astype(np.float32)
    got = backends.to_numpy(ops.ACTIVATIONS[name](on(xp, x)))
    np.testing.assert_allclose(got, [ACTIVATIONS[name](float(v)) for v in x], atol=1e-6, rtol=2e-6)
    assert np.isnan(float(ops.ACTIVATIONS[name](on(xp, np.array([np.nan], np.float32)))[0]))


def test_erf_is_within_seven_ulp(xp):
    x = np.concatenate([np.linspace(-5, 5, 20001), np.logspace(-30, 0, 500), [3e-12, np.inf, -np.inf]]).astype(np.float32)
    expected = np.array([math.erf(float(v)) for v in x])
    got = backends.to_numpy(ops.erf(on(xp, x))).astype(np.float64)
    ulp = np.abs(got - expected) / np.spacing(np.abs(expected).astype(np.float32))
    assert ulp.max() <= 7
    assert np.isnan(float(ops.erf(on(xp, np.array([np.nan], np.float32)))[0]))


def test_erf_of_an_array_larger_than_a_block_and_not_contiguous(xp):
    x = RNG.standard_normal((130, 300)).astype(np.float32)
    got = backends.to_numpy(ops.erf(xp.permute_dims(on(xp, x), (1, 0))))
    np.testing.assert_allclose(got[::50, ::50], [[math.erf(v) for v in row] for row in x.T[::50, ::50].astype(float)], atol=5e-7)


def test_integers_are_refused_where_real_numbers_are_meant(xp):
    with pytest.raises(TypeError, match="floating-point numbers, got .*int32"):
        ops.softmax(on(xp, np.ones((2, 2), np.int32)))


@pytest.mark.parametrize(("m", "n", "k"), [(1, 1, 1), (3, 5, 7), (4, 8, 1024), (2, 3, 1025), (5, 2, 4099)])
def test_C25_int8_contraction_is_exact(xp, m, n, k):
    a, b = (RNG.integers(-128, 128, (rows, k)).astype(np.int8) for rows in (m, n))
    a[0], b[0] = 127, 127
    a[-1], b[-1] = -128, -128
    got = ops.contract(on(xp, a), on(xp, b), xp.int32)
    assert got.dtype == xp.int32
    np.testing.assert_array_equal(backends.to_numpy(got), a.astype(np.int64) @ b.astype(np.int64).T)


@pytest.mark.parametrize("shapes", [((2, 3, 4, 8), (2, 3, 5, 8)), ((2, 3, 4, 8), (5, 8)), ((1, 3, 4, 8), (2, 1, 5, 8)), ((4, 8), (5, 8))])
def test_contraction_takes_batches_as_matmul_does(xp, shapes):
    a, b = (RNG.standard_normal(shape).astype(np.float32) for shape in shapes)
    expected = a.astype(np.float64) @ np.swapaxes(b.astype(np.float64), -1, -2)
    np.testing.assert_allclose(backends.to_numpy(ops.contract(on(xp, a), on(xp, b), xp.float32)), expected, atol=1e-5)


def test_C16_write_puts_rows_at_a_position(xp):
    cache, new = RNG.standard_normal((2, 3, 7, 4)).astype(np.float32), RNG.standard_normal((2, 3, 2, 4)).astype(np.float32)
    for position in (0, 3, 5):
        expected = cache.copy()
        expected[:, :, position : position + 2] = new
        place = xp.asarray(position, dtype=xp.int32)
        np.testing.assert_array_equal(backends.to_numpy(ops.write(on(xp, cache.copy()), on(xp, new), place)), expected)


def test_pick_first_and_last(xp):
    mask = np.array([[0, 0, 1, 1], [1, 1, 1, 0], [0, 1, 0, 0]], bool)
    assert backends.to_numpy(ops.first(on(xp, mask))).tolist() == [2, 0, 1]
    assert backends.to_numpy(ops.last(on(xp, mask))).tolist() == [3, 2, 1]
    x = X[:, :4, :]
    got = backends.to_numpy(ops.pick(on(xp, x), on(xp, np.array([2, 0, 1], np.int32))))
    np.testing.assert_array_equal(got, x[[0, 1, 2], [2, 0, 1]])


def test_mean_leaves_out_what_is_masked_and_normalize_keeps_zeros(xp):
    mask = np.ones((3, 5), bool)
    mask[0, 3:] = False
    mask[1] = False
    poisoned = np.where(mask[:, :, None], X, np.float32(np.nan))
    got = backends.to_numpy(ops.mean(on(xp, poisoned), on(xp, mask)))
    np.testing.assert_allclose(got[0], X[0, :3].mean(0), atol=1e-6)
    assert (got[1] == 0).all()
    length = np.linalg.norm(backends.to_numpy(ops.normalize(on(xp, got))), axis=-1)
    np.testing.assert_allclose(length, [1, 0, 1], atol=1e-6)


def test_a_missing_dtype_is_named(xp):
    with pytest.raises(TypeError, match=f"{backends.library_of(xp)} has no dtype float3"):
        ops.dtype(xp, "float3")


def test_unknown_namespace_is_named():
    with pytest.raises(ValueError, match="unknown namespace 'tensorflow'; known: numpy, jax"):
        backends.find("tensorflow")
