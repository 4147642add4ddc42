"""BERT against what transformers computed, and what padding and batching may not change.

The ids in test names (C03 ..) are faults that users of transformer libraries reported; the threads are in the docstrings.
"""

import ml_dtypes
import numpy as np
import pytest
from compare import GOLDEN, bits, golden, numbers, worst

MODELS = ("bert-pretraining", "bert-untied", "bert-bare")
HIDDEN = 1e-5  # absolute; states reach 3.4
ROUNDING = 4e-6  # the same sums in another order: 1e-6 of that size


@pytest.fixture(params=MODELS)
def name(request):
    return request.param


@pytest.fixture
def model(compiled):
    return compiled.load(GOLDEN / "bert-pretraining")


@pytest.fixture
def batch():
    """Ids of four rows of nine, none of them the padding id."""
    return np.random.default_rng(7).integers(1, 61, (4, 9))


# --------------------------------------------------------------------------------------------------- against transformers
def test_hidden_states_equal_transformers(runner, name):
    expected = golden(name)
    hidden = runner.load(GOLDEN / name)(expected["tokens"], expected["mask"], expected["token_types"])
    assert worst(hidden, expected["hidden"], expected["mask"]) <= HIDDEN


@pytest.mark.parametrize("name", ["bert-pretraining", "bert-bare"])
def test_pooled_output_equals_transformers(runner, name):
    expected = golden(name)
    pooled = runner.load(GOLDEN / name).pool(expected["tokens"], expected["mask"], expected["token_types"])
    assert worst(pooled, expected["pooled"]) <= HIDDEN


@pytest.mark.parametrize("name", ["bert-pretraining", "bert-untied"])
def test_logits_equal_transformers(runner, name):
    expected = golden(name)
    logits = runner.load(GOLDEN / name).logits(expected["tokens"], expected["mask"], expected["token_types"])
    assert worst(logits, expected["logits"], expected["mask"]) <= HIDDEN


def test_token_types_count(runner):
    """The comparison with transformers would not notice them if the golden inputs had only one type."""
    expected, model = golden("bert-untied"), runner.load(GOLDEN / "bert-untied")
    assert worst(model(expected["tokens"], expected["mask"]), expected["hidden"], expected["mask"]) > 0.1


# ------------------------------------------------------------------------------------------------------ padding and batches
def test_a_batch_equals_its_rows(model, batch):
    rows = [numbers(model(row[None])) for row in batch]
    assert worst(model(batch), np.concatenate(rows)) <= ROUNDING


def test_a_permuted_batch_gives_permuted_states(model, batch):
    order = np.array([2, 0, 3, 1])
    mask = golden("bert-pretraining")["mask"]
    assert worst(model(batch[order], mask[order]), numbers(model(batch, mask))[order]) <= ROUNDING


@pytest.mark.parametrize("side", ["left", "right", "both"])
def test_C09_padded_equals_unpadded(model, batch, side):
    """github.com/huggingface/transformers/issues/2860, /3150, /30096"""
    left, right = {"left": (5, 0), "right": (0, 5), "both": (2, 3)}[side]
    alone = model(batch)
    tokens = np.pad(batch, ((0, 0), (left, right)))
    padded = model(tokens, tokens != 0)
    assert worst(numbers(padded)[:, left : left + 9], alone) <= HIDDEN
    assert worst(model.pool(tokens, tokens != 0), model.pool(batch)) <= HIDDEN


def test_C09_padding_without_a_mask_is_attended_to_and_said_so(model, batch):
    tokens = np.pad(batch, ((0, 0), (0, 5)))
    with pytest.warns(UserWarning, match="padding id 0"):
        padded = model(tokens)
    assert worst(numbers(padded)[:, :9], model(batch)) > 1e-3


def test_what_stands_under_padding_has_no_influence(compiled, precision, batch):
    """Bit for bit: a masked key weighs exactly 0, whatever its value."""
    model, mask = compiled.load(GOLDEN / "bert-pretraining", precision.name), golden("bert-pretraining")["mask"]
    zeros, others = model(batch * mask, mask), model(batch, mask)
    assert (bits(zeros)[mask] == bits(others)[mask]).all()


def test_C03_left_padded_rows_are_finite_and_equal_to_unpadded(compiled, precision):
    """github.com/huggingface/transformers/pull/17306, /17437: two large negative numbers added up to -inf."""
    model = compiled.load(GOLDEN / "bert-pretraining", precision.name)
    padded, alone = numbers(model([[0, 5]], [[0, 1]])), numbers(model([[5]]))
    assert np.isfinite(padded).all()
    assert worst(padded[:, 1:], alone) <= {"fp32": HIDDEN, "bf16": 2e-2, "int8": 0.1, "int32": 1e-2}[precision.name]


def test_C05_a_fully_masked_row_is_finite_and_leaves_others_alone(model, batch):
    """github.com/patrick-kidger/equinox/pull/274: softmax over nothing gave NaN."""
    mask = np.ones(batch.shape, bool)
    mask[1] = False
    hidden = numbers(model(batch, mask))
    assert np.isfinite(hidden).all()
    assert worst(hidden[[0, 2, 3]], numbers(model(batch))[[0, 2, 3]]) <= ROUNDING


def test_C13_a_text_longer_than_the_positions_is_refused(model):
    """github.com/huggingface/transformers/issues/530, /1749: a crash deep in a gather, or silence."""
    with pytest.raises(ValueError, match=r"25 tokens: the model has 24 positions"):
        model(np.ones((1, 25), np.int32))
    assert model(np.ones((1, 24), np.int32)).shape == (1, 24, 24)


@pytest.mark.parametrize("bad", [61, -1, 2**31])
def test_C14_an_id_outside_the_vocabulary_is_refused(model, bad):
    """github.com/jax-ml/jax/issues/3774: a gather clamps it or returns NaN."""
    with pytest.raises(ValueError, match=rf"token id {bad} at \[0, 1\] is outside the vocabulary \[0, 61\)"):
        model(np.array([[5, bad]]))


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int64, np.float32, ml_dtypes.bfloat16])
def test_C19_a_mask_of_any_dtype_means_the_same(model, batch, dtype):
    mask = golden("bert-pretraining")["mask"]
    assert (bits(model(batch, mask.astype(dtype))) == bits(model(batch, mask))).all()
