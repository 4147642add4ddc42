"""The Array API over TE: every function against NumPy, the corners that TE's own operations get wrong first."""

import array_api_compat
import ml_dtypes
import numpy as np
import pytest

from xformer import ops
from xformer.frontends.tvm import namespace
from xformer.frontends.tvm.array import Array
from xformer.frontends.tvm.nodes import Input
from xformer.precision import INT8

RNG = np.random.default_rng(0)
X = RNG.standard_normal((2, 3, 16)).astype(np.float32)
MASK = np.array([[False, True, True, False], [False] * 4, [True] * 4])


def symbol(*shape, dtype="float32"):
    return Array(Input("x", shape, dtype), shape)


def test_array_api_compat_takes_a_traced_array():
    assert array_api_compat.array_namespace(symbol(2, 3)) is namespace
    assert array_api_compat.device(symbol(2, 3)) == "cpu"
    assert ops.dtype(namespace, "bfloat16") == "bfloat16"


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x[:, None, 1:, ::2] + 1.0,
        lambda x: x[..., 0] * 2.0,
        lambda x: x[1, -1] - x[0, 0],
        lambda x: ops.namespace(x).permute_dims(x, (2, 0, 1)) * 1.0,
        lambda x: ops.namespace(x).reshape(ops.namespace(x).permute_dims(x, (1, 0, 2)), (6, 16)) + 0.0,
        lambda x: ops.namespace(x).reshape(ops.namespace(x).reshape(x, (2, 3, 4, 4)), (3, -1)) + 0.0,
        lambda x: ops.namespace(x).matrix_transpose(x) / 3.0,
        lambda x: ops.namespace(x).sum(x, axis=1) + ops.namespace(x).max(x, axis=-2),
        lambda x: ops.namespace(x).mean(x, axis=-1, keepdims=True) * x,
        lambda x: ops.namespace(x).clip(ops.namespace(x).round(x * 3.0), -2, 2),
        lambda x: ops.namespace(x).where(x < 0.0, -1.0, x) - ops.namespace(x).abs(-x),
        lambda x: ops.namespace(x).sqrt(2.0 + x * x),
    ],
)
def test_views_and_functions_are_numpys(run, function):
    np.testing.assert_allclose(run(function, X), function(X), rtol=2e-6, atol=1e-6)


def test_masks_and_picking_are_numpys(run):
    assert run(ops.first, MASK).tolist() == [1, 0, 0]
    assert run(ops.last, MASK).tolist() == [2, 0, 3]
    index = np.array([2, 0], np.int32)
    np.testing.assert_array_equal(run(ops.pick, X, index), X[[0, 1], index])
    counts = run(lambda m: ops.namespace(m).cumulative_sum(ops.namespace(m).astype(m, "int32"), axis=1, dtype="int32"), MASK)
    np.testing.assert_array_equal(counts, np.cumsum(MASK, axis=1))


@pytest.mark.parametrize("name", ["exp", "erf", "tanh"])
def test_C42_elementary_functions_are_accurate_over_their_range(run, name):
    x = np.concatenate([np.linspace(-86, 88, 4099), np.linspace(-1, 1, 4093), np.logspace(-30, 0, 1024)]).astype(np.float32)[None]
    scipy = pytest.importorskip("scipy.special", reason="the reference for erf") if name == "erf" else np
    wide = getattr(scipy, name)(x.astype(np.float64))
    error = np.abs(run(getattr(namespace, name), x) - wide)
    assert (error / wide).max() < 2.5e-7 if name == "exp" else error.max() < 5e-7


def test_C40_erf_and_tanh_of_the_smallest_arguments_keep_their_digits(run):
    x = np.array([[3e-12, -1e-20, 0.0, 1e-5]], np.float32)
    np.testing.assert_allclose(run(namespace.erf, x), 2 / np.sqrt(np.pi) * x, rtol=1e-6)
    np.testing.assert_allclose(run(namespace.tanh, x), x, rtol=1e-6)


@pytest.mark.parametrize("name", ["exp", "erf", "tanh"])
def test_elementary_functions_of_nan_and_infinity(run, name):
    got = run(getattr(namespace, name), np.array([[np.nan, np.inf, -np.inf]], np.float32))[0]
    assert np.isnan(got[0])
    assert got[1:].tolist() == {"exp": [np.inf, 0.0], "erf": [pytest.approx(1.0), pytest.approx(-1.0)], "tanh": [1.0, -1.0]}[name]


@pytest.mark.parametrize("width", [3, 8, 32])  # scalar code, one vector, several
def test_C39_maximum_keeps_nan_wherever_it_stands_and_starts_at_minus_infinity(run, width):
    rows = RNG.standard_normal((width + 2, width)).astype(np.float32)
    rows[np.arange(width), np.arange(width)] = np.nan
    rows[width] = -np.inf
    got = run(lambda x: ops.namespace(x).max(x, axis=-1, keepdims=True), rows)[:, 0]
    assert np.isnan(got[:width]).all()
    assert got[width] == -np.inf
    assert got[-1] == rows[-1].max()


@pytest.mark.parametrize("width", [1, 5, 16, 64, 96])
def test_C39_the_largest_magnitude_is_numpys_with_nan_infinity_and_zeros(run, width):
    rows = RNG.standard_normal((6, width)).astype(np.float32)
    rows[0, -1], rows[1, 0], rows[2, width // 2] = np.nan, -np.nan, -np.inf
    rows[3], rows[4], rows[5, -1] = -0.0, -1e-40, -9.0
    got = run(lambda x: ops.namespace(x).max(ops.namespace(x).abs(x), axis=-1), rows)
    np.testing.assert_array_equal(got, np.abs(rows).max(-1))


def test_C39_quantised_nan_lives_on_in_its_rows_scale(run):
    x = np.array([[1.0, np.nan, -2.0, 0.5], [1.0, 2.0, -4.0, 0.0]], np.float32)
    expected = INT8.narrow(x)
    got = run(INT8.narrow, x)
    np.testing.assert_array_equal(got.values[1], expected.values[1])
    assert np.isnan(got.scale[0]).all()
    assert got.values[0, 1] == 0
    assert run(lambda x: ops.namespace(x).isnan(x * 1.0), x).tolist() == np.isnan(x).tolist()


def test_a_sum_that_rounds_is_not_taken_back_exactly(run):
    np.testing.assert_array_equal(run(lambda x: (x + 1000.0) - 1000.0, X), (X + np.float32(1000)) - np.float32(1000))


def test_rotated_integers_are_numpys(run):
    x = RNG.standard_normal((5, 64)).astype(np.float32)
    got, expected = run(INT8.prepare, x), INT8.prepare(x)
    np.testing.assert_array_equal(got.values, expected.values)
    np.testing.assert_array_equal(got.scale, expected.scale)


def test_C05_C39_softmax_of_masked_rows_and_of_nan(run):
    x = RNG.standard_normal((3, 16)).astype(np.float32)
    x[2, 5] = np.nan
    mask = np.ones((3, 16), bool)
    mask[1], mask[0, 3] = False, False
    got = run(ops.softmax, x, mask)
    assert got[0, 3] == 0
    assert (got[1] == 0).all()
    assert np.isnan(got[2]).all()


def test_C37_variance_in_two_passes(run):
    row = np.float32(1e4) + np.arange(4, dtype=np.float32)[None]
    got = run(lambda x, s, b: ops.layer_norm(x, s, b, 1e-12), row, np.ones(4, np.float32), np.zeros(4, np.float32))
    np.testing.assert_allclose(got[0], (np.arange(4) - 1.5) / np.sqrt(1.25), atol=1e-6)


def test_C41_bfloat16_rounds_as_numpy_does(run):
    x = np.append(RNG.standard_normal(509), [np.inf, -0.0, 1e-30]).astype(np.float32)[None]
    got = run(lambda x: ops.namespace(x).astype(ops.namespace(x).astype(x, "bfloat16"), "float32"), x)
    np.testing.assert_array_equal(got, x.astype(ml_dtypes.bfloat16).astype(np.float32))


def test_write_puts_rows_at_the_position(run):
    new, position = RNG.standard_normal((2, 3, 2, 4)).astype(np.float32), np.array(5, np.int32)
    for cache in (np.zeros((2, 3, 8, 4), np.float32), np.ones((2, 3, 7, 4), np.float32)):
        expected = cache.copy()
        expected[:, :, 5:7] = new
        np.testing.assert_array_equal(run(ops.write, cache, new, position), expected)
        computed = run(lambda c, n, p: ops.write(c * 2.0, n, p), cache, new, position)
        np.testing.assert_array_equal(computed[:, :, :5], 2 * cache[:, :, :5])


def test_two_dtypes_do_not_mix_and_scalars_do_not_promote():
    with pytest.raises(TypeError, match="float32, int32"):
        symbol(2) + symbol(2, dtype="int32")
    assert (symbol(2, dtype="int32") * 2).dtype == "int32"
    assert (symbol(2) < 1).dtype == "bool"


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda: symbol(2, 3) + symbol(4), "broadcast"),
        (lambda: namespace.reshape(symbol(2, 3), (4,)), "reshape"),
        (lambda: namespace.contract(symbol(2, 3), symbol(2, 4), "float32"), "contract"),
        (lambda: namespace.sum(symbol(2, 3), axis=2), "axis 2"),
    ],
)
def test_shapes_that_do_not_fit_are_refused_by_name(wrong, message):
    with pytest.raises(ValueError, match=message):
        wrong()
