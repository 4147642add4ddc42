"""The comparisons that other tests stand on find a difference, in bfloat16 too, where NumPy's own fail."""

import ml_dtypes
import numpy as np
import pytest
from compare import bits, numbers, relative, ulp, worst

BF16 = np.array([1.0, -0.0, np.nan, 3e38], ml_dtypes.bfloat16)


def test_C23_bfloat16_is_compared_exactly_and_by_difference():
    other = BF16.copy()
    assert (bits(other) == bits(BF16)).all()
    assert worst(other, BF16) == 0.0
    other[0] = 1.0078125  # the next one
    other[1] = 0.0
    assert (bits(other) == bits(BF16)).tolist() == [False, False, True, True]
    assert worst(other, BF16) == 0.0078125
    assert numbers(BF16).dtype == np.float64


def test_nan_on_one_side_alone_is_a_difference():
    assert np.isnan(worst(np.array([1.0, np.nan]), np.array([1.0, 2.0])))
    assert not worst(np.array([1.0, np.nan]), np.array([1.0, 2.0])) <= 1.0
    assert worst(np.array([np.inf, -np.inf]), np.array([np.inf, -np.inf])) == 0.0


def test_what_is_left_out_does_not_count():
    assert worst(np.array([1.0, 9.0]), np.array([1.5, 0.0]), np.array([True, False])) == 0.5


def test_relative_is_by_norm_and_ulp_by_spacing():
    assert relative(np.array([3.0, 4.0]), np.array([3.0, 0.0])) == pytest.approx(4 / 3)
    one = np.ones(2, np.float32)
    assert ulp(np.nextafter(one, np.float32(2)), one) == 1.0


def test_shapes_that_differ_are_no_comparison():
    with pytest.raises(AssertionError, match=r"\(2,\) against \(1,\)"):
        worst(np.ones(2), np.ones(1))
