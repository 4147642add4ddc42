"""GPT-2 against what transformers computed, and what padding and batching may not change.

The ids in test names (C01 ..) are faults that users of transformer libraries reported; the threads are in the docstrings.
"""

import dataclasses

import ml_dtypes
import numpy as np
import pytest
from compare import GOLDEN, bits, golden, numbers, worst

from xformer import cache
from xformer.config import PRESETS

MODELS = ("gpt2-null", "gpt2-37")
LOGITS = 1e-5  # absolute; logits reach 3.4
ROUNDING = 4e-6  # the same sums in another order: 1e-6 of that size


@pytest.fixture(params=MODELS)
def name(request):
    return request.param


@pytest.fixture
def model(compiled):
    return compiled.load(GOLDEN / "gpt2-null")


@pytest.fixture
def batch():
    """Ids of four rows of nine."""
    return np.random.default_rng(7).integers(1, 61, (4, 9))


# --------------------------------------------------------------------------------------------------- against transformers
def test_logits_equal_transformers(runner, name):
    expected = golden(name)
    assert worst(runner.load(GOLDEN / name)(expected["tokens"], expected["mask"]), expected["logits"], expected["mask"]) <= LOGITS


def test_greedy_tokens_of_left_padded_prompts_equal_transformers(runner, name):
    expected = golden(name)
    wanted = [[token for token in row if token >= 0] for row in expected["greedy"].tolist()]
    count = expected["greedy"].shape[1]
    assert runner.load(GOLDEN / name).generate(expected["prompts"], count, mask=expected["prompts_mask"]) == wanted


def test_C57_a_null_inner_width_is_four_times_the_width(runner):
    """github.com/keras-team/keras-hub/pull/1704"""
    assert runner.load(GOLDEN / "gpt2-null").config.ffn == 4 * 24
    assert runner.load(GOLDEN / "gpt2-37").config.ffn == 37


# ------------------------------------------------------------------------------------------------------ padding and batches
def test_a_batch_equals_its_rows(model, batch):
    rows = [numbers(model(row[None])) for row in batch]
    assert worst(model(batch), np.concatenate(rows)) <= ROUNDING


def test_a_permuted_batch_gives_permuted_logits_and_tokens(model, batch):
    order, mask = np.array([2, 0, 3, 1]), golden("gpt2-null")["mask"]
    assert worst(model(batch[order], mask[order]), numbers(model(batch, mask))[order]) <= ROUNDING
    tokens = model.generate(batch, 5, mask=mask)
    assert model.generate(batch[order], 5, mask=mask[order]) == [tokens[row] for row in order]


@pytest.mark.parametrize("side", ["left", "right", "both"])
def test_C01_padded_equals_unpadded(model, batch, side):
    """github.com/huggingface/transformers/issues/3021, /10289, /21080, pull/7552: positions must count real tokens."""
    left, right = {"left": (5, 0), "right": (0, 5), "both": (2, 3)}[side]
    mask = np.pad(np.ones(batch.shape, bool), ((0, 0), (left, right)))
    tokens = np.pad(batch, ((0, 0), (left, right)))
    assert worst(numbers(model(tokens, mask))[:, left : left + 9], model(batch)) <= LOGITS
    assert model.generate(tokens, 6, mask=mask) == model.generate(batch, 6)


def test_C01_left_padded_example(model):
    """The input of the first of those threads."""
    assert model.generate([[0, 0, 5, 6, 7, 8]], 8, mask=[[0, 0, 1, 1, 1, 1]]) == model.generate([[5, 6, 7, 8]], 8)


def test_C02_the_next_token_follows_the_last_real_one(model):
    """github.com/huggingface/transformers/issues/3167: it was read at the padding."""
    together = model.generate([[5, 6, 7], [5, 6, 0]], 6, mask=[[1, 1, 1], [1, 1, 0]])
    assert together == [model.generate([row, row], 6)[0] for row in ([5, 6, 7], [5, 6])]


def test_rows_of_any_lengths_generate_as_if_alone(model, batch):
    short = batch[3, :4].tolist()
    alone = model.generate(batch, 6)[:3] + model.generate([short] * 4, 6)[:1]
    assert model.generate([*batch[:3].tolist(), short], 6) == alone


def test_what_stands_under_padding_has_no_influence(compiled, precision, batch):
    """Bit for bit: a masked key weighs exactly 0, whatever its value."""
    model, mask = compiled.load(GOLDEN / "gpt2-null", precision.name), golden("gpt2-null")["mask"]
    assert (bits(model(batch * mask, mask))[mask] == bits(model(batch, mask))[mask]).all()


def test_later_tokens_have_no_influence(compiled, precision, batch):
    """Causality, bit for bit."""
    model, changed = compiled.load(GOLDEN / "gpt2-null", precision.name), batch.copy()
    changed[:, 6:] = 1
    assert (bits(model(batch))[:, :6] == bits(model(changed))[:, :6]).all()


def test_C03_left_padded_rows_are_finite_and_equal_to_unpadded(compiled, precision):
    """github.com/huggingface/transformers/pull/17306, /17437: two large negative numbers added up to -inf."""
    model = compiled.load(GOLDEN / "gpt2-null", precision.name)
    padded, alone = numbers(model([[0, 5]], [[0, 1]])), numbers(model([[5]]))
    assert np.isfinite(padded).all()
    assert worst(padded[:, 1:], alone) <= {"fp32": LOGITS, "bf16": 2e-2, "int8": 0.1, "int32": 1e-2}[precision.name]


def test_C05_a_fully_masked_row_is_finite_and_leaves_others_alone(model, batch):
    """github.com/patrick-kidger/equinox/pull/274: softmax over nothing gave NaN."""
    mask = np.ones(batch.shape, bool)
    mask[1] = False
    logits = numbers(model(batch, mask))
    assert np.isfinite(logits).all()
    assert worst(logits[[0, 2, 3]], numbers(model(batch))[[0, 2, 3]]) <= ROUNDING


def test_C13_more_tokens_than_positions_are_refused(model):
    """github.com/huggingface/transformers/issues/530, /1749: a crash deep in a gather, or silence."""
    with pytest.raises(ValueError, match=r"25 tokens: the model has 24 positions"):
        model(np.ones((1, 25), np.int32))
    with pytest.raises(ValueError, match=r"a prompt of 20 tokens and 5 new: the model has 24 positions"):
        model.generate(np.ones((1, 20), np.int32), 5)
    assert len(model.generate(np.ones((1, 20), np.int32), 4)[0]) == 4


@pytest.mark.parametrize("bad", [61, -1, 2**31])
def test_C14_an_id_outside_the_vocabulary_is_refused(model, bad):
    """github.com/jax-ml/jax/issues/3774: a gather clamps it or returns NaN."""
    for run in (model, model.generate):
        with pytest.raises(ValueError, match=rf"token id {bad} at \[0, 1\] is outside the vocabulary \[0, 61\)"):
            run(np.array([[5, bad]]))


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int64, np.float32, ml_dtypes.bfloat16])
def test_C19_positions_count_in_a_wide_type(compiled, dtype):
    """A sum of 200 ones is -56 in int8 and stops at 256 in bf16: 300 real tokens after 20 of padding show either."""
    config = dataclasses.replace(PRESETS["gpt2-tiny"], positions=320, layers=1)
    model, tokens = compiled.init(config), np.random.default_rng(3).integers(0, 512, (1, 320))
    mask = np.arange(320)[None, :] >= 20
    assert (bits(model(tokens, mask.astype(dtype))) == bits(model(tokens, mask))).all()
    assert worst(numbers(model(tokens, mask.astype(dtype)))[:, 20:], model(tokens[:, 20:])) <= LOGITS


def test_C19_places_of_a_long_row(xp):
    places = cache.places(xp.ones((1, 300), dtype=xp.bool), 0, 300)
    assert numbers(places).tolist() == [list(range(300))]
