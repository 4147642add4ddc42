"""Leaving padding out: what `unpad` and `pad` do, and that a model gives for real tokens what it gives with all of them computed."""

import numpy as np
import pytest
from compare import numbers, worst

import xformer
from xformer import backends, padding
from xformer.config import Config

CONFIG = Config("bert", 61, 24, width=24, layers=2, heads=3, ffn=40, activation="gelu", eps=1e-12, token_types=2, pooler=True)
LENGTHS = np.array([7, 1, 11, 4])
RIGHT = np.arange(11)[None, :] < LENGTHS[:, None]
MASKS = {
    "right": RIGHT,
    "left": RIGHT[:, ::-1].copy(),
    "holes": RIGHT & (np.arange(11) % 3 != 1)[None, :],
    "one token": np.arange(44).reshape(4, 11) == 17,
    "a row of padding": RIGHT & (np.arange(4) != 2)[:, None],
    "one row": RIGHT[:1],
}
ROUNDING = {"fp32": 1e-5, "bf16": 2e-2, "int8": 0.1, "int32": 1e-2}  # another number of rows may be summed in another order


@pytest.fixture(params=MASKS)
def mask(request):
    """Which tokens are real, in some pattern."""
    return MASKS[request.param]


def placed(xp, mask):
    return padding.of_values(backends.from_numpy(xp, mask))


@pytest.fixture
def eager(namespace):
    """A namespace in which shapes may depend on values."""
    if padding.places(backends.from_numpy(backends.find(namespace), RIGHT)) is None:
        pytest.skip(f"{namespace} computes whole batches: its programs have fixed shapes")
    return backends.find(namespace)


def test_unpadded_tokens_are_the_real_ones_in_order(eager, mask):
    x = np.arange(mask.size * 3, dtype=np.float32).reshape(*mask.shape, 3)
    got = padding.unpad(backends.from_numpy(eager, x), placed(eager, mask))
    assert numbers(got).tolist() == [x[mask].tolist()]


def test_padding_again_gives_the_batch_with_zeros(eager, mask):
    x, found = np.ones((*mask.shape, 3), np.float32), placed(eager, mask)
    x[~mask] = np.nan
    got = padding.pad(padding.unpad(backends.from_numpy(eager, x), found), found)
    assert numbers(got).tolist() == np.where(mask[:, :, None], 1.0, np.zeros_like(x)).tolist()


@pytest.mark.parametrize("every", [True, False])
def test_a_batch_without_padding_and_one_of_nothing_else_stay_whole(xp, every):
    mask = backends.from_numpy(xp, np.full((2, 3), every))
    assert padding.places(mask) is None
    x = backends.from_numpy(xp, np.ones((2, 3, 4), np.float32))
    assert padding.unpad(x, None) is x
    assert padding.pad(x, None) is x


def inputs(mask):
    tokens = np.random.default_rng(3).integers(1, CONFIG.vocab_size, mask.shape)
    return tokens, mask


def test_hidden_states_are_those_of_the_whole_batch(eager, precision, namespace, mask, monkeypatch):
    model = xformer.init(CONFIG, 0, namespace, precision.name)
    got, vectors = model(*inputs(mask)), model.pool(*inputs(mask))
    monkeypatch.setattr(padding, "places", lambda mask: None)
    whole, from_whole = model(*inputs(mask)), model.pool(*inputs(mask))
    assert worst(got, numbers(whole), mask) <= ROUNDING[precision.name]
    real = mask.any(axis=1)
    assert worst(numbers(vectors)[real], numbers(from_whole)[real]) <= ROUNDING[precision.name]


def test_hidden_states_of_padding_are_zeros(compiled, precision, mask):
    hidden = compiled.init(CONFIG, 0, precision.name)(*inputs(mask))
    assert (numbers(hidden)[~mask] == 0).all()
    assert (np.abs(numbers(hidden)[mask]).max(axis=-1) > 0.1).all()


def test_real_tokens_alone_are_computed(eager, namespace, monkeypatch):
    """What a projection is given: 23 rows of 44."""
    seen, project = [], xformer.FP32.__class__.project
    monkeypatch.setattr(xformer.FP32.__class__, "project", lambda self, x, linear: (seen.append(x.shape), project(self, x, linear))[1])
    xformer.init(CONFIG, 0, namespace)(*inputs(RIGHT))
    assert set(seen) == {(1, 23, 24), (1, 23, 40)}
