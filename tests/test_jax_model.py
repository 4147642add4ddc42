"""Fixed shapes, ahead-of-time compilation and generation on the device: what `compile` adds to `jit`."""

import dataclasses
import subprocess
import sys
from contextlib import contextmanager

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import xformer
from xformer import config
from xformer.frontends import jax as frontend
from xformer.frontends.jax import loop
from xformer.model import Model
from xformer.precision import FP32, PRECISIONS

GENERATOR = np.random.default_rng(11)
GPT2 = frontend.compile(xformer.init("gpt2-tiny", 6))
ON_HOST = xformer.init("gpt2-tiny", 6)


def ids(batch, length):
    return GENERATOR.integers(0, 500, (batch, length)).astype(np.int32)


@contextmanager
def compilations():
    """The names of the programs that XLA compiles inside."""
    found = []

    def listen(event, _, **details):
        if event == "/jax/core/compile/backend_compile_duration":
            found.append(details["fun_name"].removeprefix("jit(").removesuffix(")"))

    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        yield found
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)


# ---------------------------------------------------------------------------------------------------------------- lengths
def with_head():
    return config.replace(config.PRESETS["bert-tiny"], head=True)


@pytest.mark.parametrize("name", ["__call__", "pool", "logits"])
def test_lengths_inside_a_bucket_share_a_program_and_are_cut_back(name):
    eager = xformer.init(with_head(), 7)
    compiled = frontend.compile(eager)
    getattr(compiled, name)(ids(3, 16))
    for length in (9, 12, 15):
        tokens = ids(3, length)
        mask = np.arange(length) < np.array([[length], [length - 2], [3]])
        with compilations() as found:
            got = getattr(compiled, name)(tokens, mask)
        assert set(found) <= {"dynamic_slice", "slice"}  # only the cut, which is its own program
        wanted = getattr(eager, name)(tokens, mask)
        assert got.shape == wanted.shape
        np.testing.assert_allclose(got, wanted, rtol=0, atol=2e-6)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_padding_changes_no_precision_much(precision):
    tokens = ids(2, 21)
    compiled = frontend.compile(xformer.init("bert-tiny", 8, "jax", precision))
    exact = frontend.compile(xformer.init("bert-tiny", 8, "jax", precision), lengths=())
    atol = {"fp32": 2e-6, "bf16": 5e-3, "int8": 2e-2, "int32": 1e-3}[precision]
    np.testing.assert_allclose(compiled(tokens), exact(tokens), rtol=0, atol=atol)


def test_without_lengths_every_length_is_compiled():
    compiled = frontend.compile(xformer.init("bert-tiny", 0), lengths=())
    with compilations() as found:
        compiled(ids(5, 19))
        compiled(ids(5, 20))
    assert found.count("forward") == 2


def test_bad_input_is_refused_by_its_own_length():
    with pytest.raises(ValueError, match="129 tokens: the model has 128 positions"):
        GPT2(ids(1, 129))
    with pytest.raises(ValueError, match="token id 512"):
        GPT2([[512]])


# ----------------------------------------------------------------------------------------------------------- ahead of time
def test_shapes_compiled_ahead_need_no_compilation_later():
    encoder = frontend.compile(xformer.init("bert-tiny", 1), (4, 30))
    decoder = frontend.compile(xformer.init("gpt2-tiny", 1), (4, 10, 16))
    with compilations() as found:
        encoder(ids(4, 32))
        decoder.generate(ids(4, 9), 15)
        decoder.generate(ids(4, 12), 5, temperature=1.0)
    assert set(found) <= {"broadcast_in_dim", "convert_element_type"}  # the zeros of an empty cache


def test_a_model_is_compiled_in_a_precision_and_for_a_device_that_are_asked_for():
    model = xformer.init("bert-tiny", 1)
    compiled = frontend.compile(model, precision="int8", device="cpu")
    assert (compiled.precision.name, compiled.device.platform) == ("int8", "cpu")
    tokens = np.array([[1, 2, 3]])
    np.testing.assert_array_equal(compiled(tokens), frontend.compile(xformer.init("bert-tiny", 1, "jax", "int8"))(tokens))
    with pytest.raises(ValueError, match="prepared for int8; bf16 was asked for"):
        frontend.compile(compiled, precision="bf16")
    with pytest.raises(ValueError, match="no device 'tpu'"):
        frontend.compile(model, device="tpu")


def test_a_program_is_lowered_from_sizes_alone():
    sizes = config.PRESETS["gpt2-xl"]
    lowered = frontend.lower("decode", sizes, PRECISIONS["int8"], 8, 1, 1024)
    assert "tensor<6400x1600xi8>" in lowered.as_text()
    assert "jax.buffer_donor" in lowered.as_text() or "tf.aliasing_output" in lowered.as_text()


def test_what_is_compiled_is_found_again_by_another_process(tmp_path):
    code = f"""
import jax, xformer
from xformer.frontends import jax as frontend
jax.numpy.arange(3) + 1
counts = {{}}
jax.monitoring.register_event_listener(lambda event, **_: counts.update({{event: counts.get(event, 0) + 1}}))
frontend.keep_compiled({str(tmp_path)!r})
frontend.compile(xformer.init("bert-tiny", 1), (1, 16))
print(counts.get("/jax/compilation_cache/cache_hits", 0), counts.get("/jax/compilation_cache/cache_misses", 0))
"""
    runs = [subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split() for _ in range(2)]
    (hits, misses), (hits_again, misses_again) = [[int(count) for count in run] for run in runs]
    assert (hits, misses_again) == (0, 0)
    assert hits_again == misses >= 2


# ------------------------------------------------------------------------------------------------------ loop on the device
@pytest.mark.parametrize("stop", [None, (), 7, [7, 300, 12]])
def test_the_loop_on_the_device_gives_the_tokens_of_the_host(stop):
    prompts = [[5, 6, 7], [8], list(range(40))]
    streamed = list(GPT2.stream(prompts, 40, stop=stop))
    rows = [[step[row] for step in streamed if step[row] is not None] for row in range(3)]
    assert GPT2.generate(prompts, 40, stop=stop) == rows == ON_HOST.generate(prompts, 40, stop=stop)


def test_rows_end_at_their_own_stop():
    free = GPT2.generate([[5, 6, 7], [8]], 12, stop=())
    stop = [free[0][2], free[1][5]]
    expected = [row[: min(row.index(end) for end in stop if end in row) + 1] for row in free]
    assert GPT2.generate([[5, 6, 7], [8]], 12, stop=stop) == expected
    assert sum(map(len, expected)) < 24


def test_one_program_serves_all_counts_and_stops():
    GPT2.generate(ids(2, 10), 3)
    before = loop.jitted._cache_size()
    for length, count, stop in [(3, 1, ()), (16, 16, None), (11, 9, [4, 5])]:
        GPT2.generate(ids(2, length), count, stop=stop)
    assert loop.jitted._cache_size() == before


def test_sampled_tokens_are_those_of_numpy():
    options = {"max_new_tokens": 20, "temperature": 0.9, "top_k": 50, "top_p": 0.95, "seed": 3, "stop": ()}
    assert GPT2.generate([[1, 2, 3], [4]], **options) == ON_HOST.generate([[1, 2, 3], [4]], **options)


def test_a_generation_that_fills_the_model_is_not_padded_past_its_end():
    prompt = ids(1, 100)
    assert GPT2.generate(prompt, 28, stop=()) == ON_HOST.generate(prompt, 28, stop=())
    with pytest.raises(ValueError, match="prompt of 100 tokens and 29 new"):
        GPT2.generate(prompt, 29)


class Letters:
    """A tokenizer of one letter a token, some of which are halves of a character."""

    def encode(self, texts, truncate=False):
        return [[ord(letter) % 500 for letter in text] for text in texts]

    def decode(self, ids):
        return "".join("\ufffd" if token % 7 == 0 else chr(97 + token % 26) for token in ids)


def test_texts_are_those_of_the_host():
    eager = Model(GPT2.config, GPT2.params, FP32, jnp, Letters())
    assert frontend.compile(eager).generate(["some text", "another"], 12) == eager.generate(["some text", "another"], 12)


def test_nan_is_refused_as_on_the_host():
    broken = dataclasses.replace(
        GPT2.params, head=dataclasses.replace(GPT2.params.head, weight=GPT2.params.head.weight.at[3, 3].set(jnp.nan))
    )
    model = frontend.compile(Model(GPT2.config, broken, FP32, jnp))
    for generate in (lambda: model.generate([[1, 2], [3]]), lambda: list(model.stream([[1, 2], [3]]))):
        with pytest.raises(FloatingPointError, match="the logits of row 0 at step 0 hold NaN"):
            generate()
