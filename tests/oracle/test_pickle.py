"""A `pytorch_model.bin` is read as weights alone."""

import numpy as np
import pytest
import torch
from hugging_face import MASK, batch, random_bert, random_gpt2

import xformer


@pytest.mark.parametrize("build", [random_bert, random_gpt2])
def test_a_pickled_checkpoint_is_the_same_model(build, tmp_path):
    oracle = build(1)
    oracle.save_pretrained(tmp_path / "safe")
    oracle.config.save_pretrained(tmp_path / "pickled")
    torch.save(oracle.state_dict(), tmp_path / "pickled" / "pytorch_model.bin")
    tokens = batch(oracle.config.vocab_size)
    pickled, safe = (xformer.load(tmp_path / name).logits(tokens, MASK) for name in ("pickled", "safe"))
    np.testing.assert_array_equal(pickled, safe)


def test_a_pickle_with_code_is_refused(tmp_path):
    oracle = random_gpt2(0)
    oracle.config.save_pretrained(tmp_path)
    torch.save({"wte.weight": oracle, "code": print}, tmp_path / "pytorch_model.bin")
    with pytest.raises(ValueError, match=r"pytorch_model.bin: not a file of weights alone"):
        xformer.load(tmp_path)
