"""What the integer precisions do against outliers: projections are rotated, values carry their size into their weights."""

import numpy as np
import pytest
from compare import bits, numbers, relative

import xformer
from xformer import backends, params
from xformer.blocks import Linear
from xformer.precision import INT8, INT32, rotate

INTEGERS = pytest.mark.parametrize("chosen", [INT8, INT32], ids=["int8", "int32"])
WIDTHS = {768: 64, 1600: 64, 48: 16, 20: 4, 6: 1, 1: 1}  # and the channels that are mixed


def matrix(size: int) -> np.ndarray:
    """The Kronecker product of 1/2 - I with itself, written out."""
    whole = np.ones((1, 1))
    while len(whole) < size:
        whole = np.kron(whole, np.full((4, 4), 0.5) - np.eye(4))
    return whole


def run(runner, function, array):
    """`function` of an array of the runner's namespace, under jit where it compiles."""
    if runner.compiled:
        import jax

        function = jax.jit(function)
    return function(on(runner.xp, array))


def on(xp, array):
    return backends.from_numpy(xp, np.ascontiguousarray(array))


def outliers(rows: int, width: int, seed: int = 0) -> np.ndarray:
    """Activations as layer norms of trained models give them: two channels tens of times as large as the others."""
    x = np.random.default_rng(seed).standard_normal((rows, width)).astype(np.float32)
    x[:, 7] *= 60
    x[:, width // 2] = 25
    return x


@pytest.mark.parametrize("size", [4, 16, 64])
def test_the_matrix_is_orthogonal_symmetric_and_keeps_equal_numbers(size):
    x = matrix(size)
    np.testing.assert_array_equal(x @ x, np.eye(size))
    np.testing.assert_array_equal(x, x.T)
    np.testing.assert_array_equal(x.sum(axis=1), np.ones(size))
    assert (np.abs(x) == size**-0.5).all()


@pytest.mark.parametrize(("width", "size"), WIDTHS.items())
def test_a_rotation_mixes_blocks_of_the_largest_size_that_fits(xp, width, size):
    x = np.random.default_rng(width).standard_normal((3, 2, width)).astype(np.float32)
    wanted = (x.reshape(3, 2, -1, size).astype(np.float64) @ matrix(size)).reshape(x.shape)
    step = 2 * size * np.abs(x).max() * 2**-23  # of the grid that channels are rounded to
    assert np.abs(numbers(rotate(on(xp, x))) - wanted).max() <= size**0.5 * step


@pytest.mark.parametrize("top", [1.0, 1.9999999, 127 / 128, 1e-30, 3e30])
def test_sums_of_a_rotation_are_exact_in_any_order(xp, top):
    """Also where all channels have the same magnitude, and on either side of a power of two."""
    signs = np.random.default_rng(0).choice(np.array([-1, 1], np.float32), (20, 128))
    x = signs * np.float32(top) * np.where(np.arange(20) < 10, 1, np.random.default_rng(1).random((128, 20))).T.astype(np.float32)
    coarse = np.abs(x).max(axis=-1, keepdims=True) * np.float32(128)
    on_grid = ((x + coarse) - coarse).astype(np.float64)
    np.testing.assert_array_equal(numbers(rotate(on(xp, x))), (on_grid.reshape(20, 2, 64) @ matrix(64)).reshape(x.shape))


@INTEGERS
@pytest.mark.parametrize("width", WIDTHS)
def test_operands_are_the_same_bits_everywhere(runner, chosen, width):
    def operand(x):
        prepared = chosen.prepare(x)
        return prepared.values, prepared.scale

    x = outliers(40, width) if width > 8 else np.random.default_rng(2).standard_normal((40, width)).astype(np.float32)
    for got, wanted in zip(run(runner, operand, x), operand(x), strict=True):
        assert (bits(got) == bits(wanted)).all()


@INTEGERS
def test_rotation_is_what_makes_outliers_harmless(xp, chosen):
    x, weight = outliers(32, 384), np.random.default_rng(1).standard_normal((200, 384)).astype(np.float32)
    weight[:, [7, 192]] = 0  # so that the outliers only hurt
    wanted = x.astype(np.float64) @ weight.T
    rotated = relative(chosen.project(on(xp, x), Linear(chosen.prepare(on(xp, weight)))), wanted)
    plain = relative(chosen.contract(on(xp, x), on(xp, weight)), wanted)
    assert rotated < plain / 4
    assert rotated < {"int8": 0.06, "int32": 3e-3}[chosen.name]


@INTEGERS
def test_zeros_stay_zeros_and_nan_stays_in_its_row(xp, chosen):
    x = outliers(3, 64)
    x[0], x[1, 5] = 0, np.nan
    got = numbers(chosen.project(on(xp, x), Linear(on(xp, np.ones((5, 64), np.float32)))))
    assert (got[0] == 0).all()
    assert np.isnan(got[1]).all()
    assert np.isfinite(got[2]).all()


# --------------------------------------------------------------------------------------------------------------- attention
def heads(seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Weights (1, 2, 5, 200) of which nearly half go to a first token whose value is small, and the values (1, 2, 200, 16)."""
    generator = np.random.default_rng(seed)
    weights = generator.random((1, 2, 5, 200)).astype(np.float32) / 200
    weights[..., 0] = 0.4
    value = generator.standard_normal((1, 2, 200, 16)).astype(np.float32)
    value[:, :, 0] *= 0.02
    return weights, value


@INTEGERS
def test_a_token_with_a_large_weight_and_a_small_value_drowns_no_other(xp, chosen):
    weights, value = heads()
    wanted = weights.astype(np.float64) @ value
    assert relative(chosen.combine(on(xp, weights), on(xp, value)), wanted) < {"int8": 1.5e-2, "int32": 5e-4}[chosen.name]
    plain = chosen.contract(on(xp, weights), on(xp, np.swapaxes(value, -1, -2)))
    assert relative(plain, wanted) > 5 * relative(chosen.combine(on(xp, weights), on(xp, value)), wanted)


@INTEGERS
def test_values_that_are_masked_out_change_no_bit(xp, chosen):
    weights, value = heads()
    weights[..., 150:] = 0
    loud = value.copy()
    loud[:, :, 150:] *= 1e6
    quiet, same = (chosen.combine(on(xp, weights), on(xp, v)) for v in (value, loud))
    assert (bits(quiet) == bits(same)).all()


def test_int32_weights_and_values_of_many_tokens_do_not_overflow(xp):
    """All operands at their largest: the range must follow from the number of tokens, not from the width of a head."""
    weights, value = np.ones((1, 1, 1, 4000), np.float32), np.full((1, 1, 4000, 2), -3, np.float32)
    np.testing.assert_allclose(numbers(INT32.combine(on(xp, weights), on(xp, value))), -12000, rtol=1e-6)


# ------------------------------------------------------------------------------------------------------------ whole models
@INTEGERS
@pytest.mark.parametrize("preset", ["bert-tiny", "gpt2-tiny"])
def test_prepared_weights_are_the_same_bits_on_every_namespace(namespace, preset, chosen):
    here, there = (xformer.init(preset, 5, place, chosen).params for place in (namespace, "numpy"))
    for (path, a), (_, b) in zip(params.items(here), params.items(there), strict=True):
        assert (bits(a) == bits(b)).all(), path


def test_a_model_with_outliers_stays_near_its_fp32_self(compiled, tmp_path):
    """One channel of every norm forty times as large, as in trained models, and what reads it as much smaller."""

    def grown(path, leaf):
        if path.endswith("_norm.scale"):
            return np.where(np.arange(64) == 9, np.float32(40), leaf)
        reads = path.endswith(("query.weight", "key.weight", "value.weight", "up.weight"))
        return np.where(np.arange(64) == 9, leaf / 40, leaf * 4) if reads else leaf

    model = xformer.init("gpt2-tiny", 3)
    model.params = params.map(grown, model.params)
    model.save(tmp_path)
    tokens = np.random.default_rng(0).integers(1, 511, (2, 30))
    wanted = model(tokens)
    for chosen, limit in ((INT8, 0.08), (INT32, 2e-3)):
        assert relative(compiled.load(tmp_path, chosen.name)(tokens), wanted) < limit
