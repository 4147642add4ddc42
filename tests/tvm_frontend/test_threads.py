"""Compiled models in several threads, beside each other, and while kernels are tuned: each gives what it gives alone."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import xformer
from xformer.frontends import tvm
from xformer.frontends.tvm import namespace as xp
from xformer.frontends.tvm.tuning.records import Records

THREADS = 8
TOKENS = np.random.default_rng(9).integers(0, 61, (THREADS, 3, 11))


def in_threads(function):
    """function(index) for each thread, all at once."""
    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(function, range(THREADS), timeout=300))


def compiled(name, seed=0, precision="fp32"):
    return tvm.compile(xformer.init(name, seed), precision=precision)


@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_one_encoder_serves_many_threads(precision):
    model = compiled("bert-tiny", precision=precision)
    together = in_threads(lambda index: model(TOKENS[index]))  # compiled by whoever comes first
    for index, states in enumerate(together):
        np.testing.assert_array_equal(states, model(TOKENS[index]))


def test_one_decoder_generates_in_many_threads():
    model = compiled("gpt2-tiny")
    together = in_threads(lambda index: model.generate(TOKENS[index], 5, stop=(), temperature=1.0, seed=index))
    assert together == [model.generate(TOKENS[index], 5, stop=(), temperature=1.0, seed=index) for index in range(THREADS)]


def test_two_models_in_one_process_keep_apart():
    models = [compiled("gpt2-tiny", seed) for seed in (0, 1)]
    expected = [model(TOKENS[0]) for model in models]
    assert not np.array_equal(*expected)
    for index, logits in enumerate(in_threads(lambda index: models[index % 2](TOKENS[0]))):
        np.testing.assert_array_equal(logits, expected[index % 2])


def test_a_model_serves_while_kernels_are_tuned(tmp_path):
    model = compiled("bert-tiny")
    expected = model(TOKENS[0])
    records = Records(tmp_path / "records.jsonl")
    with ThreadPoolExecutor(1) as pool:
        tuning = pool.submit(tvm.tune, "bert-tiny", (1, 16), trials=3, records=records)
        calls = 0
        while not tuning.done() or calls < 3:
            np.testing.assert_array_equal(model(TOKENS[0]), expected)
            calls += 1
        assert tuning.result(timeout=300)
    tuned = tvm.compile(xformer.init("bert-tiny", 0), records=records)
    np.testing.assert_allclose(tuned(TOKENS[0]), expected, atol=1e-5)


def test_arrays_are_computed_in_many_threads():
    shared = xp.exp(xp.asarray(TOKENS[0].astype(np.float32) / 61))

    def work(index):
        return np.asarray(xp.sum(shared * float(index), axis=-1)), np.asarray(xp.sort(xp.asarray(TOKENS[index])))

    for index, (sums, ordered) in enumerate(in_threads(work)):
        np.testing.assert_allclose(sums, np.exp(TOKENS[0].astype(np.float32) / 61).sum(-1) * index, rtol=1e-5)
        np.testing.assert_array_equal(ordered, np.sort(TOKENS[index]))
