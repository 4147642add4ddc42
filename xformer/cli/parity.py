"""`xformer parity`: which model on which texts, where and in which precisions; the comparing is `xformer.parity`'s."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

import xformer
from xformer import parity, tokenizer
from xformer import precision as known
from xformer.cli import terminal
from xformer.config import PRESETS
from xformer.model import Model
from xformer.parity import Comparison
from xformer.precision import PRECISIONS

TEXTS = ("A man is eating food.", "Quantum field theory is hard, and its numbers are exact.")
LENGTH = 16  # of random ids, for a model without a tokenizer


def compared(
    name: str, namespaces: Sequence[str] | None, precisions: Sequence[str] | None, texts: Sequence[str] | None
) -> tuple[list[Comparison], dict[str, str]]:
    """The comparisons, and by "place precision" why others cannot be made: a library that has not the precision's dtype."""
    places, found, missing = parity.places(list(namespaces or ())), [], {}
    for precision in [known.find(name).name for name in precisions or PRECISIONS]:
        model = load(name, precision)
        tokens, mask = inputs(model, texts)
        with terminal.progress(f"comparing {precision}", len(places)) as advance:
            for place in places:
                try:
                    found += parity.compare(model, tokens, mask, [place])
                except TypeError as problem:
                    missing[f"{place.name} {precision}"] = str(problem)
                advance(1)
    return found, missing


def load(name: str, precision: str) -> Model:
    """The model in a folder, or one of a preset's sizes with random weights."""
    return (
        xformer.init(name, 0, precision=precision)
        if name in PRESETS and not Path(name).exists()
        else xformer.load(name, precision=precision)
    )


def inputs(model: Model, texts: Sequence[str] | None) -> tuple[np.ndarray, np.ndarray]:
    """A padded batch of texts, or of random ids where there is no tokenizer. Raises ValueError for texts without one."""
    if model.tokenizer is None:
        if texts:
            raise ValueError("this model has no tokenizer: its folder has none, or it was not loaded from one; leave out --text")
        ids = np.random.default_rng(0).integers(0, model.config.vocab_size, (2, min(LENGTH, model.config.positions)))
        mask = np.ones_like(ids)
        mask[1, ids.shape[1] // 2 :] = 0
        return ids, mask
    return tokenizer.pad(model.tokenizer.encode(list(texts or TEXTS), truncate=True), model.tokenizer.pad_token)


def remarks(missing: dict[str, str], written: Sequence[Path]) -> Iterator[str]:
    """What is said after the table."""
    yield from (f"not compared: {what}: {why}" for what, why in missing.items())
    yield from (f"wrote {path}" for path in written)


def faults(comparisons: Sequence[Comparison]) -> list[str]:
    """Where an integer operation that was given NumPy's operands gave other results."""
    return [
        f"{found.place} {found.precision}" for found in comparisons if any(row.alone.integer and not row.alone.equal for row in found.rows)
    ]
