"""Tokenizers from each kind of folder; padding and truncation as its files say."""

import json

import pytest
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from xformer import tokenizer

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "hello", "world", "##s", "a", "b", "c"]


def word_pieces():
    inner = Tokenizer(models.WordPiece({word: index for index, word in enumerate(WORDS)}, unk_token="[UNK]"))
    inner.normalizer = normalizers.BertNormalizer()
    inner.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    inner.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    inner.decoder = decoders.WordPiece()
    inner.add_special_tokens(WORDS[:4])
    return inner


@pytest.fixture
def folder(tmp_path):
    word_pieces().save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"pad_token": "[PAD]", "model_max_length": 6}))
    return tmp_path


def test_encode_adds_special_tokens_and_decode_drops_them(folder):
    found = tokenizer.load(folder, 128)
    assert found.encode(["Hello worlds", "hello"]) == [[2, 4, 5, 6, 3], [2, 4, 3]]
    assert found.decode([2, 4, 5, 6, 3]) == "hello worlds"
    assert (found.pad_token, found.pad_left, found.limit) == (0, False, 6)


def test_truncation_keeps_the_special_tokens(folder):
    found = tokenizer.load(folder, 128)
    assert found.encode(["a b c a b c a b c"], truncate=True) == [[2, 7, 8, 9, 7, 3]]
    with pytest.raises(ValueError, match="text 1 .* has more than 6 tokens"):
        found.encode(["a", "a b c a b c a b c"])


@pytest.mark.parametrize(
    ("positions", "files", "limit"),
    [
        (4, {}, 4),
        (128, {}, 6),
        (128, {"sentence_bert_config.json": {"max_seq_length": 5}}, 5),
        (128, {"tokenizer_config.json": {}}, 128),
        (128, {"tokenizer_config.json": {"model_max_length": 1e30}}, 128),
    ],
)
def test_the_limit_is_the_most_specific_one_within_the_positions(folder, positions, files, limit):
    for name, value in files.items():
        (folder / name).write_text(json.dumps(value))
    assert tokenizer.load(folder, positions).limit == limit


def test_a_limit_inside_tokenizer_json_counts(folder):
    inner = word_pieces()
    inner.enable_truncation(5)
    inner.enable_padding(length=32)
    inner.save(str(folder / "tokenizer.json"))
    found = tokenizer.load(folder, 128)
    assert found.limit == 5
    assert found.encode(["a"]) == [[2, 7, 3]]  # its fixed padding is not for us


def test_vocab_txt(tmp_path):
    (tmp_path / "vocab.txt").write_text("\n".join([*WORDS, "[MASK]"]))
    found = tokenizer.load(tmp_path, 128)
    assert found.encode(["Hello worlds"]) == [[2, 4, 5, 6, 3]]


def test_vocab_json_and_merges(tmp_path):
    vocabulary = {"a": 0, "b": 1, "ab": 2, "Ġ": 3, "Ġab": 4}
    (tmp_path / "vocab.json").write_text(json.dumps(vocabulary), encoding="utf-8")
    (tmp_path / "merges.txt").write_text("#version: 0.2\na b\nĠ ab\n", encoding="utf-8")
    found = tokenizer.load(tmp_path, 128)
    assert found.encode(["ab ab"]) == [[2, 4]]
    assert found.decode([2, 4]) == "ab ab"


def test_saved_files_load_again(folder, tmp_path_factory):
    found, other = tokenizer.load(folder, 128), tmp_path_factory.mktemp("other")
    for name, text in found.files().items():
        (other / name).write_text(text, encoding="utf-8")
    again = tokenizer.load(other, 128)
    assert again.encode(["a b c a b c a b c"], truncate=True) == found.encode(["a b c a b c a b c"], truncate=True)
    assert (again.limit, again.pad_token, again.pad_left) == (found.limit, found.pad_token, found.pad_left)


def test_no_tokenizer_is_none_and_a_broken_one_is_named(tmp_path):
    assert tokenizer.load(tmp_path, 128) is None
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(ValueError, match="not a valid tokenizer"):
        tokenizer.load(tmp_path, 128)


@pytest.mark.parametrize(("left", "expected"), [(False, [[1, 2, 3], [4, 9, 9]]), (True, [[1, 2, 3], [9, 9, 4]])])
def test_pad(left, expected):
    tokens, mask = tokenizer.pad([[1, 2, 3], [4]], 9, left)
    assert tokens.tolist() == expected
    assert mask.sum(1).tolist() == [3, 1]
    assert (tokens[~mask] == 9).all()
