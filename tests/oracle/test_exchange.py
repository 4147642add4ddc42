"""A folder written by xformer loads in transformers with the same tensors, and the other way round."""

import numpy as np
import pytest
import torch
from compare import bits
from hugging_face import random_bert, random_gpt2
from transformers import AutoModelForCausalLM, BertForMaskedLM, BertForPreTraining, BertModel, GPT2LMHeadModel

import xformer
from xformer import params
from xformer.config import Config

BERT = {"vocab_size": 50, "positions": 16, "width": 24, "layers": 2, "heads": 3, "ffn": 20, "eps": 1e-6}
OURS = {
    "bert with a pooler": (BertModel, Config("bert", **BERT, activation="gelu", token_types=2, pooler=True)),
    "bert with a tied head": (BertForMaskedLM, Config("bert", **BERT, activation="gelu_new", token_types=2, head=True)),
    "bert with its own head": (BertForMaskedLM, Config("bert", **BERT, activation="relu", token_types=1, head=True, tied=False)),
    "gpt2": (GPT2LMHeadModel, Config("gpt2", **BERT, activation="gelu_new")),
    "gpt2 with its own head": (GPT2LMHeadModel, Config("gpt2", **BERT, activation="silu", tied=False)),
}
PAIRS = {"cls.seq_relationship.weight", "cls.seq_relationship.bias"}  # scores pairs of sentences: xformer leaves it out
UNREAD = {"cls.predictions.bias"}  # in a model whose head is untied, and has cls.predictions.decoder.bias


def loaded(kind, folder, absent=frozenset(), **options):
    """A model of transformers. Nothing may be missing but what is `absent`, nothing unexpected or mis-shaped."""
    model, report = kind.from_pretrained(folder, output_loading_info=True, **options)
    assert set(report.pop("missing_keys")) == absent
    assert not any(report.values()), report
    return model.eval()


def same_state(model, other, apart_from=frozenset()):
    """Whether two models of transformers hold equal tensors."""
    state, others = model.state_dict(), other.state_dict()
    assert state.keys() == others.keys()
    return all(torch.equal(state[name], others[name]) for name in state.keys() - apart_from)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("build", [random_bert, random_gpt2])
def test_what_passed_through_xformer_is_the_same_model(build, seed, tmp_path):
    oracle = build(seed)
    absent = PAIRS if isinstance(oracle, BertForPreTraining) else set()
    options = {"add_pooling_layer": oracle.pooler is not None} if isinstance(oracle, BertModel) else {}
    oracle.save_pretrained(tmp_path / "theirs")
    xformer.load(tmp_path / "theirs").save(tmp_path / "ours")
    again = loaded(type(oracle), tmp_path / "ours", absent, **options)
    assert same_state(oracle, again, absent | (set() if oracle.config.tie_word_embeddings else UNREAD))


@pytest.mark.parametrize("name", OURS)
def test_transformers_loads_what_xformer_made(name, tmp_path):
    kind, config = OURS[name]
    model = xformer.init(config, seed=3)
    model.save(tmp_path / "ours")
    theirs = loaded(kind, tmp_path / "ours")
    theirs.save_pretrained(tmp_path / "again")
    again = xformer.load(tmp_path / "again")
    assert again.config == model.config
    leaves, others = params.leaves(model.params), params.leaves(again.params)
    assert leaves.keys() == others.keys()
    for path in leaves:
        assert (bits(leaves[path]) == bits(others[path])).all(), path


@pytest.mark.parametrize("build", [random_bert, random_gpt2])
def test_shards_are_the_same_as_one_file(build, tmp_path):
    oracle = build(4)
    oracle.save_pretrained(tmp_path / "whole")
    oracle.save_pretrained(tmp_path / "parts", max_shard_size="4KB")
    assert len(list((tmp_path / "parts").glob("model-*.safetensors"))) > 2
    whole, parts = (params.leaves(xformer.load(tmp_path / name).params) for name in ("whole", "parts"))
    assert whole.keys() == parts.keys()
    for path in whole:
        assert (bits(whole[path]) == bits(parts[path])).all(), path


def test_half_precision_checkpoints_load(tmp_path):
    oracle = random_gpt2(1).to(torch.bfloat16)
    oracle.save_pretrained(tmp_path)
    model = xformer.load(tmp_path)
    assert np.isfinite(model([[1, 2, 3]])).all()
    assert same_state(oracle.float(), AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32))
