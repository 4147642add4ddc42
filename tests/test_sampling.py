"""Drawing tokens: limits, ties, and the distribution that comes out."""

import numpy as np
import pytest

from xformer.sampling import Sampling, uniform

LOGITS = np.log(np.array([[0.5, 0.25, 0.15, 0.1]], np.float32))


def frequencies(sampling, draws=4000):
    ids = [int(sampling.choose(LOGITS, step)[0]) for step in range(draws)]
    return np.bincount(ids, minlength=4) / draws


def test_greedy_takes_the_first_of_the_best():
    assert Sampling().choose(np.array([[1, 3, 3], [5, 0, 5]], np.float32), 0).tolist() == [1, 0]


def test_the_distribution_is_the_softmax():
    np.testing.assert_allclose(frequencies(Sampling(1.0)), [0.5, 0.25, 0.15, 0.1], atol=0.03)


def test_temperature_sharpens():
    weights = np.array([0.5, 0.25, 0.15, 0.1]) ** 2
    np.testing.assert_allclose(frequencies(Sampling(0.5)), weights / weights.sum(), atol=0.03)


def test_top_k_and_top_p_cut_the_tail():
    np.testing.assert_allclose(frequencies(Sampling(1.0, top_k=2)), [2 / 3, 1 / 3, 0, 0], atol=0.03)
    np.testing.assert_allclose(frequencies(Sampling(1.0, top_p=0.76)), [0.5 / 0.9, 0.25 / 0.9, 0.15 / 0.9, 0], atol=0.03)
    assert frequencies(Sampling(1.0, top_p=1e-9), 50).tolist() == [1, 0, 0, 0]
    assert frequencies(Sampling(1.0, top_k=100), 50).sum() == 1


def test_a_draw_depends_on_seed_row_and_step_alone():
    draws = {(seed, row, step): uniform(seed, row, step) for seed in range(5) for row in range(5) for step in range(5)}
    assert len(set(draws.values())) == len(draws)
    assert all(0 <= value < 1 for value in draws.values())
    assert uniform(2**64 - 1, 3, 4) == uniform(2**64 - 1, 3, 4)


def test_the_stream_never_changes():
    """Tokens drawn today must be drawn again by the next version."""
    assert [uniform(0, 0, 0), uniform(7, 1, 2)] == PINNED


PINNED = [0.011546754286331562, 0.8569593147495812]


def test_nan_logits_are_refused_by_row():
    with pytest.raises(FloatingPointError, match="the logits of row 1 at step 3 hold NaN"):
        Sampling().choose(np.array([[0, 1], [np.nan, 1]], np.float32), 3)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"temperature": -1}, "temperature must be a number >= 0, got -1"),
        ({"temperature": float("nan")}, "temperature must be a number >= 0, got nan"),
        ({"temperature": float("inf")}, "temperature must be"),
        ({"top_k": 0}, "top_k must be an integer >= 1, got 0"),
        ({"top_k": 1.5}, "top_k must be an integer >= 1, got 1.5"),
        ({"top_p": 0}, r"top_p must be in \(0, 1\], got 0"),
        ({"top_p": 1.01}, r"top_p must be in \(0, 1\], got 1.01"),
        ({"seed": -1}, r"seed must be an integer in \[0, 2\^64\), got -1"),
        ({"seed": 2**64}, "seed must be an integer"),
        ({"seed": 1.0}, "seed must be an integer"),
    ],
)
def test_limits(options, message):
    with pytest.raises(ValueError, match=message):
        Sampling(**options)


@pytest.mark.parametrize("temperature", [5e-324, 1e-308, 1e-300, 1e-30])
def test_a_tiny_temperature_takes_the_best(temperature):
    logits = np.tile(np.array([[-50.0, -20.0, -90.0]], np.float32), 3)
    assert all(Sampling(temperature, seed=seed).choose(logits, 0) in ([1], [4], [7]) for seed in range(5))


@pytest.mark.parametrize(
    "options", [{"temperature": "a"}, {"temperature": None}, {"temperature": 1j}, {"temperature": True}, {"top_p": "a"}, {"top_k": 1.5}]
)
def test_what_is_no_number_is_refused(options):
    with pytest.raises(ValueError, match=f"{next(iter(options))} must be"):
        Sampling(**options)


def test_numbers_of_numpy_are_numbers():
    assert Sampling(np.float32(0.5), np.int64(3), np.float64(0.9), np.int64(1)).top_k == 3


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_nan_anywhere_in_a_row_is_refused(temperature):
    logits = np.array([[1, 2, 3], [np.inf, np.nan, np.inf]], np.float32)
    with pytest.raises(FloatingPointError, match="row 1 at step 7"):
        Sampling(temperature).choose(logits, 7)
