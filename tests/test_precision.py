"""What each precision does to operands, and what it leaves alone."""

import math

import numpy as np
import pytest

import xformer
from xformer import backends, ops
from xformer import precision as precisions
from xformer.blocks import Linear
from xformer.params import Spec, leaves, spec
from xformer.precision import BF16, FP32, INT8, INT32

RNG = np.random.default_rng(1)


def on(xp, array):
    return backends.from_numpy(xp, np.ascontiguousarray(array))


def wide(x):
    return backends.to_numpy(x).astype(np.float64)


@pytest.mark.parametrize(("chosen", "limit"), [(INT8, 1 / 127), (INT32, 1 / 1672)], ids=["int8", "int32"])
def test_integer_operands_are_within_half_a_step(xp, chosen, limit):
    x = RNG.standard_normal((4, 768)).astype(np.float32) * np.array([[1e-3], [1], [1e3], [1e20]], np.float32)
    q = chosen.narrow(on(xp, x))
    values, scale = wide(q.values), wide(q.scale)
    np.testing.assert_allclose(scale[:, 0], np.abs(x).max(1) * limit, rtol=1e-6)
    assert (np.abs(values * scale - x) <= scale * 0.5001).all()
    assert np.abs(values).max(1).tolist() == [round(1 / limit)] * 4


def test_C38_rounding_is_half_to_even(xp):
    x = np.array([[127, 0.5, 1.5, 2.5, -0.5, -1.5]], np.float32)
    assert wide(INT8.narrow(on(xp, x)).values)[0].tolist() == [127, 0, 2, 2, 0, -2]


@pytest.mark.parametrize("width", [48, 384, 40, 41])
def test_rotating_both_operands_leaves_their_product(xp, width):
    a, b = (RNG.standard_normal((3, width)).astype(np.float32) for _ in "ab")
    turned = [wide(precisions.rotate(on(xp, x))) for x in (a, b)]
    np.testing.assert_allclose(turned[0] @ turned[1].T, a.astype(np.float64) @ b.T, atol=2e-3)
    same = np.array_equal(turned[0], a)
    assert same == (width == 41)  # no block divides it: left as it is


@pytest.mark.parametrize(("chosen", "bound"), [(INT8, 1.5e-2), (INT32, 1e-3)], ids=["int8", "int32"])
def test_a_channel_of_outliers_does_not_drown_the_others(xp, chosen, bound):
    a, b = RNG.standard_normal((8, 256)).astype(np.float32), RNG.standard_normal((32, 256)).astype(np.float32)
    a[:, 7] *= 60
    b[:, 7] = 0  # the outlier is not even used
    expected = a.astype(np.float64) @ b.T
    got = wide(chosen.project(on(xp, a), Linear(on(xp, b))))
    plain = wide(chosen.contract(on(xp, a), on(xp, b)))
    error, without = (np.linalg.norm(x - expected) / np.linalg.norm(expected) for x in (got, plain))
    assert error < min(bound * 8, without / 2)


@pytest.mark.parametrize("chosen", [INT8, INT32], ids=["int8", "int32"])
def test_prepared_operands_are_the_same_bits_everywhere(xp, chosen):
    x = RNG.standard_normal((5, 384)).astype(np.float32) * np.array([[1e-30], [1e-3], [1], [1e5], [1e30]], np.float32)
    x[:, 3] *= 40
    expected = chosen.prepare(x)
    got = chosen.prepare(on(xp, x))
    np.testing.assert_array_equal(backends.to_numpy(got.values), expected.values)
    np.testing.assert_array_equal(backends.to_numpy(got.scale), expected.scale)


@pytest.mark.parametrize("terms", [1, 2, 64, 768, 3072, 4097])
def test_the_int32_range_is_the_widest_that_cannot_overflow(terms):
    limit = INT32.limit(terms)
    assert terms * limit**2 <= 2**31 - 1 < terms * (limit + 1) ** 2


@pytest.mark.parametrize("chosen", [INT8, INT32], ids=["int8", "int32"])
def test_an_all_zero_row_gives_zeros_and_nan_stays(xp, chosen):
    a = RNG.standard_normal((3, 16)).astype(np.float32)
    a[0], a[1, 3] = 0, np.nan
    got = wide(chosen.contract(on(xp, a), on(xp, RNG.standard_normal((5, 16)).astype(np.float32))))
    assert (got[0] == 0).all()
    assert np.isnan(got[1]).all()
    assert np.isfinite(got[2]).all()


@pytest.mark.parametrize("chosen", [INT8, INT32], ids=["int8", "int32"])
def test_rows_too_small_for_a_normal_scale_are_zero_everywhere(xp, chosen):
    x = np.full((1, 8), 2.0**-126, np.float32)
    assert (wide(chosen.narrow(on(xp, x)).values) == 0).all()


BOUNDS = {"fp32": 1e-6, "bf16": 6e-3, "int8": 2e-2, "int32": 1e-3}


def test_a_contraction_is_as_close_as_its_precision_allows(xp, precision):
    a, b = RNG.standard_normal((2, 9, 768)).astype(np.float32), RNG.standard_normal((33, 768)).astype(np.float32)
    got = precision.contract(on(xp, a), on(xp, b))
    assert got.dtype == xp.float32
    expected = a.astype(np.float64) @ b.T
    error = np.linalg.norm(wide(got) - expected) / np.linalg.norm(expected)
    assert error < BOUNDS[precision.name]


def test_a_prepared_weight_gives_what_a_raw_one_gives(xp, precision):
    x, weight, bias = (on(xp, RNG.standard_normal(s).astype(np.float32)) for s in ((2, 3, 96), (40, 96), (40,)))
    raw = precision.project(x, Linear(weight, bias))
    prepared = precision.project(x, Linear(precision.prepare(weight), bias))
    np.testing.assert_array_equal(backends.to_numpy(raw), backends.to_numpy(prepared))


def test_stored_tells_what_prepare_makes(xp, precision):
    weight = RNG.standard_normal((40, 96)).astype(np.float32)
    assert leaves(spec(precision.prepare(on(xp, weight)))) == leaves(precision.stored(Spec((40, 96))))


@pytest.mark.usefixtures("bfloat16")
def test_bf16_accumulates_in_fp32(xp):
    """256 + 1 is not a bf16 number: an accumulator of bf16 would stop at 256."""
    got = BF16.contract(on(xp, np.ones((1, 1000), np.float32)), on(xp, np.ones((1, 1000), np.float32)))
    assert float(got[0, 0]) == 1000


def test_int32_contraction_of_the_widest_operands_is_exact(xp):
    limit = INT32.limit(768)
    a = np.full((2, 768), limit, np.int32)
    a[1, ::2] *= -1
    got = backends.to_numpy(ops.contract(on(xp, a), on(xp, np.full((1, 768), limit, np.int32)), xp.int32))
    assert got[:, 0].tolist() == [768 * limit**2, 0]
    assert 768 * limit**2 > 2**31 - 2**22


def test_precisions_are_found_by_name_in_either_case():
    assert precisions.find("INT8") is INT8
    assert precisions.find(FP32) is FP32
    with pytest.raises(ValueError, match="unknown precision 'fp8'; known: fp32, bf16, int8, int32"):
        precisions.find("fp8")
    with pytest.raises(ValueError, match="unknown precision"):
        xformer.init("bert-tiny", precision="fp8")


def test_C52_scaling_by_a_python_number_keeps_the_dtype(xp):
    x = on(xp, np.ones((1, 1, 2, 64), np.float32))
    assert (x * math.sqrt(64)).dtype == xp.float32
