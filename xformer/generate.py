"""The host's side of generation: prompts, what ends a row, and the steps over any (prefill, decode) pair."""

from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import numpy as np

from xformer import checks, tokenizer
from xformer.config import Config
from xformer.sampling import Sampling


@dataclass(frozen=True)
class Ends:
    """What ends a row: ids, which are kept, and texts, which are cut."""

    ids: frozenset[int]
    texts: tuple[str, ...]

    @classmethod
    def of(cls, stop: Sequence[int | str] | int | str | None, config: Config) -> "Ends":
        """None means the model's end-of-text id, () nothing. Raises ValueError for anything but ids of the model and texts."""
        if stop is None:
            return cls(frozenset(() if config.eos_token is None else (config.eos_token,)), ())
        entries: tuple[Any, ...] = tuple(stop) if isinstance(stop, Iterable) and not isinstance(stop, str | bytes) else (stop,)
        for entry in entries:
            if isinstance(entry, bool) or not isinstance(entry, Integral | str) or entry == "":
                raise ValueError(f"stop takes token ids and texts, got {entry!r}")
            if isinstance(entry, Integral) and not 0 <= int(entry) < config.vocab_size:
                raise ValueError(f"stop id {entry} is outside the vocabulary [0, {config.vocab_size})")
        return cls(frozenset(int(e) for e in entries if isinstance(e, Integral)), tuple(e for e in entries if isinstance(e, str)))


@dataclass(frozen=True)
class Prompts:
    """Checked ids (b, t) and their mask; whether they came as `text`, and as a `single` prompt rather than a batch."""

    tokens: np.ndarray
    mask: np.ndarray
    text: bool
    single: bool


def prompts(given: Any, mask: Any, encode: Callable[[list[str]], list[list[int]]], config: Config) -> Prompts:
    """Texts, rows of ids of any lengths, or an array of ids with its mask. Raises ValueError for what the model cannot take."""
    head = given[0] if isinstance(given, Sequence) and len(given) > 0 else None
    text = isinstance(given, str | list | tuple) and (isinstance(given, str) or isinstance(head, str))
    single = isinstance(given, str) or isinstance(head, int | np.integer)
    if text and mask is not None:
        raise ValueError("a mask goes with ids, not with texts")
    rows = encode(checks.texts(given)) if text else [given] if single else given
    if isinstance(rows, Sequence) and mask is None:
        if not rows:
            raise ValueError("no prompts: the batch is empty")
        for index, row in enumerate(rows):
            if not isinstance(row, Sized) or isinstance(row, str):
                raise ValueError(f"prompt {index} is {row!r}, expected a list of token ids beside other lists, or texts alone")
            if len(row) == 0:
                raise ValueError(f"prompt {index} is empty")
            checks.ids([row], config)
        rows, mask = tokenizer.pad(rows, left=True)
    tokens, mask = checks.batch(rows, mask, config)
    if not mask.any(axis=1).all():
        raise ValueError(f"prompt {int(np.argmin(mask.any(axis=1)))} has no real token")
    return Prompts(tokens, mask, text, single)


@dataclass(frozen=True)
class Plan:
    """A checked request, as `steps` takes it: at most `count` ids a row."""

    given: Prompts
    count: int
    sampling: Sampling
    ends: Ends
    to_text: Callable[[Sequence[int]], str] | None


def steps(
    prefill: Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, Any]],
    decode: Callable[[np.ndarray, Any], tuple[np.ndarray, Any]],
    given: Prompts,
    count: int,
    sampling: Sampling,
    ends: Ends,
    to_text: Callable[[Sequence[int]], str] | None,
) -> Iterator[list[Any]]:
    """Yield, for each of at most `count` steps, every row's next id, or its next piece of text; None once the row has ended.

    `prefill(tokens, mask)` and `decode(ids, cache)` return the next logits (b, v) and a cache for the next call. `to_text`
    is needed when the prompts are text or a text ends a row. A step may follow the last one for text that was held back.
    """
    transcripts = [Transcript(to_text, ends.texts) for _ in given.tokens] if to_text else []
    running = [True] * len(given.tokens)
    logits, cache = prefill(given.tokens, given.mask)
    for step in range(count):
        ids = sampling.choose(logits, step)
        row_ids = [int(token) if alive else None for token, alive in zip(ids, running, strict=True)]
        pieces = [None if token is None else row.push(token) for row, token in zip(transcripts, row_ids, strict=False)]
        yield pieces if given.text else row_ids
        running = [token is not None and token not in ends.ids for token in row_ids]
        running = [alive and not row.ended for alive, row in zip(running, transcripts, strict=True)] if transcripts else running
        if not any(running):
            break
        if step < count - 1:
            logits, cache = decode(ids, cache)
    held = [row.flush() for row in transcripts]
    if given.text and any(held):
        yield held


class Transcript:
    """The text of one row as its ids arrive, cut before the first of the `stops`."""

    def __init__(self, decode: Callable[[Sequence[int]], str], stops: Sequence[str] = ()):
        self.decode, self.stops = decode, stops
        self.ids: list[int] = []
        self.sent = 0
        self.ended = False

    def push(self, token: int) -> str:
        """The text that `token` completes. Held back: a character in pieces, and what may be the start of a stop."""
        self.ids.append(token)
        text = self.decode(self.ids)
        found = [place for place in (text.find(stop) for stop in self.stops) if place >= 0]
        self.ended = bool(found)
        end = min(found) if found else len(text.rstrip("\ufffd"))
        if not found:
            end = min(
                [
                    end,
                    *(
                        start
                        for stop in self.stops
                        for start in range(max(len(text) - len(stop) + 1, 0), len(text))
                        if stop.startswith(text[start:])
                    ),
                ]
            )
        return self._send(text, end)

    def flush(self) -> str:
        """What was held back, once no more ids will come."""
        text = self.decode(self.ids)
        return "" if self.ended else self._send(text, len(text))

    def _send(self, text, end):
        piece, self.sent = text[self.sent : end], max(self.sent, end)
        return piece
