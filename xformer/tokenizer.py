"""Text to ids and back through the `tokenizers` library, as the files of a model's folder say."""

import contextlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from xformer.checkpoint import read_json

FILE = "tokenizer.json"  # all of a tokenizer but its options


class Tokenizer:
    """A folder's tokenizer, which may be shared between threads."""

    def __init__(self, inner, limit: int, options: dict[str, Any]):
        self.inner, self.limit, self.options = inner, limit, options
        pad = options.get("pad_token")
        pad = pad.get("content") if isinstance(pad, dict) else pad
        if not isinstance(pad, str | None):
            raise ValueError(f"pad_token must be a text, got {pad!r}")
        self.pad_token = (inner.token_to_id(pad) if pad else None) or 0
        self.pad_left = options.get("padding_side") == "left"
        inner.no_padding()
        inner.enable_truncation(limit)

    def encode(self, texts: Sequence[str], truncate: bool = False) -> list[list[int]]:
        """The ids of each text, special tokens included.

        A text of more than `limit` tokens is cut, keeping its special tokens, when `truncate` says so; else ValueError,
        and for a text with a word that the tokenizer has no token for.
        """
        with _naming("the texts cannot be encoded"):
            encodings = self.inner.encode_batch(list(texts))
        for index, encoding in enumerate(encodings):
            if encoding.overflowing and not truncate:
                raise ValueError(f"text {index} ({texts[index][:40]!r}...) has more than {self.limit} tokens, the limit of this model")
        return [encoding.ids for encoding in encodings]

    def decode(self, ids: Sequence[int]) -> str:
        """The text of `ids` without special tokens."""
        return self.inner.decode(list(ids), skip_special_tokens=True)

    def files(self) -> dict[str, str]:
        """The texts to write beside saved weights, by file name."""
        options = self.options | {"model_max_length": self.limit}
        return {FILE: self.inner.to_str(pretty=True), "tokenizer_config.json": json.dumps(options, indent=2) + "\n"}


def pad(rows: Sequence[Sequence[int]], pad_token: int = 0, left: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """Rows of ids as one (b, t) array and its mask, the shorter ones padded on one side."""
    width = max(len(row) for row in rows)
    tokens, mask = np.full((len(rows), width), pad_token, np.int32), np.zeros((len(rows), width), bool)
    for index, row in enumerate(rows):
        place = slice(width - len(row), None) if left else slice(0, len(row))
        tokens[index, place], mask[index, place] = row, True
    return tokens, mask


def load(folder: str | Path, positions: int) -> Tokenizer | None:
    """The tokenizer in `folder` for a model of `positions`, or None when the folder has no files of one.

    Raises ImportError when there is one and `tokenizers` is not installed, ValueError when its files are not valid.
    """
    folder = Path(folder)
    options = read_json(folder / "tokenizer_config.json") if (folder / "tokenizer_config.json").is_file() else {}
    build = next((build for files, build in _KINDS.items() if all((folder / name).is_file() for name in files)), None)
    if build is None:
        return None
    try:
        with _naming(f"{folder}: not a valid tokenizer"):
            inner = build(folder, options)
            inner.encode("")  # a template of special tokens that are not defined shows only here
    except ImportError as error:
        raise ImportError("a tokenizer needs `pip install tokenizers`") from error
    limit = _limit(folder, inner, options, positions)
    with _naming(str(folder / "tokenizer_config.json")):
        return Tokenizer(inner, limit, options)


@contextlib.contextmanager
def _naming(what: str) -> Iterator[None]:
    """Raise ValueError for what `tokenizers` raises: bare Exceptions, and for some files panics, which are none."""
    try:
        yield
    except ImportError:
        raise
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        raise ValueError(f"{what} ({error})") from error


def check_pooling(folder: str | Path) -> None:
    """Raise ValueError when the folder is one of sentence-transformers and asks for another vector than the mean of the tokens."""
    path = Path(folder) / "1_Pooling" / "config.json"
    options = read_json(path) if path.is_file() else {}
    chosen = sorted(key for key, value in options.items() if key.startswith("pooling_mode_") and value is True)
    if chosen and chosen != ["pooling_mode_mean_tokens"]:
        raise ValueError(f"{path}: {', '.join(chosen)} is not supported; supported: pooling_mode_mean_tokens")


def _limit(folder, inner, options, positions):
    """What the folder says, the most specific file first, and never more than the model's positions."""
    sentences = folder / "sentence_bert_config.json"
    stated = (
        read_json(sentences).get("max_seq_length") if sentences.is_file() else None,
        (inner.truncation or {}).get("max_length"),
        options.get("model_max_length"),
    )
    limit = next((limit for limit in stated if limit is not None), positions)
    if isinstance(limit, bool) or not isinstance(limit, int | float) or not limit >= 1:  # a huge float stands for no limit
        raise ValueError(f"{folder}: the limit of a text must be a positive number of tokens, got {limit!r}")
    return int(min(limit, positions))


def _from_json(folder, options):
    from tokenizers import Tokenizer

    return Tokenizer.from_file(str(folder / FILE))


def _from_word_pieces(folder, options):
    from tokenizers import BertWordPieceTokenizer

    lower = options.get("do_lower_case", True)
    return BertWordPieceTokenizer(str(folder / "vocab.txt"), lowercase=lower)._tokenizer


def _from_byte_pairs(folder, options):
    from tokenizers import ByteLevelBPETokenizer

    space = options.get("add_prefix_space", False)
    return ByteLevelBPETokenizer(str(folder / "vocab.json"), str(folder / "merges.txt"), add_prefix_space=space)._tokenizer


_KINDS = {(FILE,): _from_json, ("vocab.txt",): _from_word_pieces, ("vocab.json", "merges.txt"): _from_byte_pairs}
