"""Random configs on every namespace, live against transformers."""

import numpy as np
import pytest
from compare import numbers, worst
from hugging_face import MASK, batch, greedy, logits, random_bert, random_gpt2, run
from transformers import BertForPreTraining


@pytest.fixture(params=range(9))
def seed(request):
    return request.param


@pytest.fixture
def saved(tmp_path):
    """saved(model) is the folder that transformers writes of it."""

    def save(model):
        model.save_pretrained(tmp_path)
        return tmp_path

    return save


def allowed(reference):
    """1e-5 for states of size up to 4, and in proportion above."""
    return 1e-5 * max(1.0, float(np.abs(numbers(reference)).max()) / 4)


def test_bert_equals_transformers(compiled, seed, saved):
    oracle = random_bert(seed)
    tokens = batch(oracle.config.vocab_size, seed=seed)
    types = np.random.default_rng(seed).integers(0, oracle.config.type_vocab_size, tokens.shape)
    output, model = run(oracle, tokens, MASK, types), compiled.load(saved(oracle))
    hidden, scores = output.hidden_states[-1].numpy(), logits(output)
    assert worst(model(tokens, MASK, types), hidden, MASK) <= allowed(hidden)
    assert model.config.head == (scores is not None)
    if scores is not None:
        assert worst(model.logits(tokens, MASK, types), scores.numpy(), MASK) <= allowed(scores.numpy())


def test_pooler_equals_transformers(compiled, seed, saved):
    """For rows that are not padded on the left: transformers pools column 0, padding or not."""
    oracle = random_bert(seed)
    encoder = oracle.bert if isinstance(oracle, BertForPreTraining) else oracle
    model, rows = compiled.load(saved(oracle)), MASK[:, 0]
    assert model.config.pooler == (getattr(encoder, "pooler", None) is not None)
    tokens = batch(oracle.config.vocab_size, seed=seed)[rows]
    if model.config.pooler:
        assert worst(model.pool(tokens, MASK[rows]), run(encoder, tokens, MASK[rows]).pooler_output.numpy()) <= 1e-5


def test_gpt2_equals_transformers(compiled, seed, saved):
    oracle = random_gpt2(seed)
    tokens = batch(oracle.config.vocab_size, seed=seed)
    expected = logits(run(oracle, tokens, MASK)).numpy()
    assert worst(compiled.load(saved(oracle))(tokens, MASK), expected, MASK) <= allowed(expected)


def test_greedy_tokens_equal_transformers(compiled, seed, saved):
    oracle, mask = random_gpt2(seed), np.sort(MASK, axis=1)
    prompts = batch(oracle.config.vocab_size, mask, seed)
    expected, margin = greedy(oracle, prompts, mask, 8)
    assert margin > 1e-4, "two candidates within rounding: choose another seed"
    assert compiled.load(saved(oracle)).generate(prompts, 8, mask=mask) == expected
