"""The user's handle: what it returns, what it keeps, and what it says."""

import copy
import pickle
import sys

import numpy as np
import pytest
from compare import worst
from tokenizers import Tokenizer, models, pre_tokenizers

import xformer
from xformer import backends, params
from xformer.tokenizer import Tokenizer as Wrapped

WORDS = ["[PAD]", "[UNK]", "a", "man", "is", "eating", "food", "bread"]


def with_words(model):
    inner = Tokenizer(models.WordLevel({word: index for index, word in enumerate(WORDS)}, unk_token="[UNK]"))
    inner.pre_tokenizer = pre_tokenizers.Whitespace()
    model.tokenizer = Wrapped(inner, 8, {"pad_token": "[PAD]"})
    return model


TEXTS = ["a man is eating food", "bread", "a man", "is eating bread is eating bread is eating bread"]


def test_embed_is_the_mean_over_real_tokens_in_the_order_given(xp):
    model = with_words(xformer.init("bert-tiny", seed=1, namespace=xp))
    got = backends.to_numpy(model.embed(TEXTS, batch_size=2))
    for row, text in zip(got, TEXTS, strict=True):
        ids = model.tokenizer.encode([text], truncate=True)
        np.testing.assert_allclose(row, backends.to_numpy(model(ids))[0].mean(0), atol=1e-6)
    one = backends.to_numpy(model.embed(TEXTS[0], normalize=True))
    assert one.shape == (1, 64)
    np.testing.assert_allclose(np.linalg.norm(one), 1, atol=1e-6)


def test_embed_refuses_an_empty_batch_and_what_is_no_text():
    model = with_words(xformer.init("bert-tiny"))
    with pytest.raises(ValueError, match="the batch is empty"):
        model.embed([])
    with pytest.raises(ValueError, match="batch_size must be a positive integer, got 0"):
        model.embed(["a"], batch_size=0)
    with pytest.raises(TypeError, match="text 0 is bytes"):
        model.embed([b"a"])
    with pytest.raises(ValueError, match="no tokenizer"):
        xformer.init("bert-tiny").embed("a")


def test_texts_are_generated_streamed_and_saved_with_their_tokenizer(tmp_path):
    model = with_words(xformer.init("gpt2-tiny", seed=2))
    model.params = params.map(lambda path, leaf: leaf[:8] if path.endswith("token") else leaf, model.params)
    model.params = model.functions.prepare(params.map(lambda p, x: None if p == "head.weight" else x, model.params), lambda w: w)
    model.config = xformer.config.replace(model.config, vocab_size=8, eos_token=None)
    text = model.generate("a man is", 5)
    assert set(text.split()) <= set(WORDS)
    assert "".join(model.stream("a man is", 5)) == text
    assert model.generate(["a man is", "bread"], 5)[0] == text
    model.save(tmp_path)
    assert xformer.load(tmp_path).generate("a man is", 5) == text


def test_token_types_and_pooler(xp):
    model, host = (xformer.init("bert-tiny", seed=1, namespace=n) for n in (xp, "numpy"))
    tokens, mask, types = [[0, 5, 6, 7], [5, 6, 7, 0]], [[0, 1, 1, 1], [1, 1, 1, 0]], [[0, 0, 1, 1], [0, 1, 1, 0]]
    left, right = backends.to_numpy(model(tokens, mask, types))
    np.testing.assert_allclose(left[1:], right[:3], atol=1e-5)
    pooled = backends.to_numpy(model.pool(tokens, mask, types))
    np.testing.assert_allclose(pooled[0], pooled[1], atol=1e-5)
    expected = np.tanh(right[0] @ host.params.pooler.weight.T + host.params.pooler.bias)
    np.testing.assert_allclose(pooled[1], expected, atol=1e-5)
    assert not np.allclose(left[1:], backends.to_numpy(model(tokens, mask))[0, 1:], atol=1e-3)


def test_the_logits_of_a_decoder_are_what_it_returns():
    model = xformer.init("gpt2-tiny")
    np.testing.assert_array_equal(model.logits([[1, 2]]), model([[1, 2]]))
    with pytest.raises(ValueError, match="gpt2 has no token types"):
        model([[1, 2]], token_types=[[0, 0]])


def test_a_seed_gives_the_same_weights_everywhere(xp):
    here, there = (xformer.init("gpt2-tiny", seed=9, namespace=n).params for n in (xp, "numpy"))
    for (path, a), (_, b) in zip(params.items(here), params.items(there), strict=True):
        np.testing.assert_array_equal(backends.to_numpy(a), b, err_msg=path)
    assert not np.array_equal(there.layers[0].up.weight, xformer.init("gpt2-tiny", seed=10).params.layers[0].up.weight)


def test_a_tied_table_is_in_memory_once(xp):
    tree = xformer.init("gpt2-tiny", namespace=xp).params
    assert tree.head.weight is tree.embedding.token


def test_repr_tells_what_it_is():
    assert repr(xformer.init("bert-tiny", precision="int8")) == "<bert: 2 layers x 64, 0.1 M parameters, int8 on numpy>"


def test_a_namespace_may_be_a_module_and_a_missing_one_says_how_to_get_it(monkeypatch):
    assert xformer.init("bert-tiny", namespace=np).xp is np
    monkeypatch.setitem(sys.modules, "cupy", None)
    monkeypatch.delitem(sys.modules, "array_api_compat.cupy", raising=False)
    with pytest.raises(ImportError, match=r"namespace 'cupy' needs `pip install cupy-cuda12x`"):
        xformer.init("bert-tiny", namespace="cupy")


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))], ids=["deepcopy", "pickle"])
def test_a_copy_gives_the_same(xp, copied):
    model = xformer.init("bert-tiny", 0, xp)
    other = copied(model)
    assert other.xp is model.xp
    assert worst(other([[5, 6, 7]]), model([[5, 6, 7]])) == 0.0


def test_a_device_is_found_by_name_or_refused(xp, namespace):
    placed = xformer.init("bert-tiny", 0, namespace, device=next(iter(backends.devices(xp))))
    assert worst(placed([[5]]), xformer.init("bert-tiny", 0, namespace)([[5]])) <= 2e-6
    with pytest.raises(ValueError, match="has no device 'quantum'"):
        xformer.init("bert-tiny", 0, namespace, device="quantum")


@pytest.mark.parametrize("wrong", [None, 5])
def test_what_is_no_namespace_is_refused(wrong):
    with pytest.raises(ValueError, match="namespace must be a name or an Array API module"):
        xformer.init("bert-tiny", 0, wrong)
