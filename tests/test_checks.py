"""What is refused on the host, and in which words."""

import numpy as np
import pytest

import xformer
from xformer import backends, checks
from xformer.config import PRESETS

CONFIG = PRESETS["gpt2-tiny"]  # 512 ids, 128 positions
BERT = PRESETS["bert-tiny"]


@pytest.mark.parametrize(
    ("tokens", "message"),
    [
        ([[0, 512]], r"token id 512 at \[0, 1\] is outside the vocabulary \[0, 512\)"),
        ([[3], [-1]], r"token id -1 at \[1, 0\] is outside the vocabulary \[0, 512\)"),
        ([[2**40]], "token id 1099511627776"),
        ([[2**70]], "token id 1180591620717411303424"),
        (np.array([[2**64 - 1]], np.uint64), "token id 18446744073709551615"),
        ([[1] * 129], "129 tokens: the model has 128 positions"),
        ([1, 2], r"rank 2 \(batch, length\), got shape \(2,\)"),
        ([[[1]]], r"rank 2 \(batch, length\), got shape \(1, 1, 1\)"),
        (5, r"rank 2"),
        ([], r"rank 2|empty"),
        ([[]], r"must not be empty, got shape \(1, 0\)"),
        (np.zeros((0, 4), np.int32), r"must not be empty, got shape \(0, 4\)"),
        ([[1.5]], "must be integers, got float64"),
        ([["a"]], "must be integers"),
        ([[True]], "must be integers, got bool"),
        ([[1, 2], [3]], r"rows of different lengths \[1, 2\]: pad them and pass a mask"),
    ],
)
def test_C13_C14_tokens(tokens, message):
    with pytest.raises(ValueError, match=message):
        checks.batch(tokens, None, CONFIG)


@pytest.mark.parametrize(
    ("mask", "message"),
    [
        ([[1]], r"mask has shape \(1, 1\), tokens have \(1, 2\)"),
        ([[1, 2]], "mask must be 0 or 1, got 2"),
        ([[1, float("nan")]], "mask must be 0 or 1, got nan"),
        ([[1, -1]], "mask must be 0 or 1, got -1"),
    ],
)
def test_masks(mask, message):
    with pytest.raises(ValueError, match=message):
        checks.batch([[1, 2]], mask, CONFIG)


@pytest.mark.parametrize("dtype", [bool, np.int8, np.int64, np.uint8, np.float32])
def test_C19_a_mask_may_have_any_dtype(dtype):
    _, mask = checks.batch([[1, 2]], np.array([[0, 1]], dtype), CONFIG)
    assert mask.dtype == bool
    assert mask.tolist() == [[False, True]]


def test_tokens_may_be_arrays_of_any_namespace(xp):
    tokens, mask = checks.batch(backends.from_numpy(xp, np.array([[1, 2]], np.int32)), None, CONFIG)
    assert tokens.dtype == np.int32
    assert tokens.tolist() == [[1, 2]]
    assert mask.all()


def test_C09_padding_without_a_mask_is_warned_of():
    with pytest.warns(UserWarning, match="end in the padding id 0 but no mask is given"):
        checks.batch([[5, 0]], None, BERT)


@pytest.mark.parametrize(
    ("types", "message"),
    [([[0, 2]], r"token type 2 is outside \[0, 2\)"), ([[0]], r"shape \(1, 1\), tokens have \(1, 2\)"), ([[0.0, 1.0]], "must be integers")],
)
def test_token_types(types, message):
    with pytest.raises(ValueError, match=message):
        xformer.init("bert-tiny")([[5, 6]], token_types=types)


@pytest.mark.parametrize("value", [0, -3, 2.0, True, None, "4"])
def test_counts(value):
    with pytest.raises(ValueError, match="max_new_tokens must be a positive integer, got"):
        checks.count(value, "max_new_tokens")


def test_texts():
    assert checks.texts("one") == ["one"]
    with pytest.raises(ValueError, match="the batch is empty"):
        checks.texts([])
    with pytest.raises(TypeError, match="text 1 is int, expected str"):
        checks.texts(["a", 3])
