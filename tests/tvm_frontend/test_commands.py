"""`xformer compile`, `run` of what it wrote, and `explain`."""

import json
import re

import numpy as np
import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from typer.testing import CliRunner

import xformer
from xformer.cli.commands import app
from xformer.frontends import tvm
from xformer.frontends.tvm import timing


@pytest.fixture(scope="module")
def decoder(tmp_path_factory):
    """A GPT-2 of bytes, and its compiled form."""
    folder = tmp_path_factory.mktemp("decoder")
    vocabulary = {byte: index for index, byte in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    inner = Tokenizer(models.BPE({**vocabulary, **{f"w{index}": index for index in range(256, 512)}}, []))
    inner.pre_tokenizer, inner.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    xformer.init("gpt2-tiny", seed=3).save(folder)
    inner.save(str(folder / "tokenizer.json"))
    out = run("compile", folder, folder / "compiled", "--length", 16, "--max-new-tokens", 12, "--precision", "int8")
    assert "compiled: int8 for " in out
    assert "3 programs in" in out
    return folder


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    """A BERT of three words, and its compiled form."""
    folder = tmp_path_factory.mktemp("encoder")
    inner = Tokenizer(models.WordLevel({word: index for index, word in enumerate(["[UNK]", "hello", "world"])}, unk_token="[UNK]"))
    inner.pre_tokenizer = pre_tokenizers.Whitespace()
    xformer.init("bert-tiny", seed=3).save(folder)
    inner.save(str(folder / "tokenizer.json"))
    run("compile", folder, folder / "compiled", "--length", 16)
    return folder


def run(*arguments, code=0):
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == code, (result.output, result.exception)
    return result.stdout if code == 0 else result.stderr


def test_a_compiled_decoder_continues_prompts_in_batches_that_it_holds(decoder):
    given = ("hello", "a", "--max-new-tokens", 8, "--json")
    found = json.loads(run("run", decoder / "compiled", *given))
    assert found["precision"] == "int8"
    assert found["texts"] == json.loads(run("run", decoder, *given, "--precision", "int8"))["texts"]


def test_a_compiled_encoder_embeds_some_rows_at_a_time(encoder):
    given = ("hello world", "world", "hello hello", "--json")
    found, eager = (json.loads(run("run", folder, *given))["vectors"] for folder in (encoder / "compiled", encoder))
    np.testing.assert_allclose(found, eager, atol=1e-5)


def test_options_that_do_not_fit_a_compiled_model_are_refused(decoder):
    for option, value in (("--precision", "fp32"), ("--namespace", "jax"), ("--device", "cuda")):
        assert f"{option} {value}: " in run("run", decoder / "compiled", "a", option, value, code=2)
    assert "cache of 64 columns; it has: 1 x 16" not in run("run", decoder / "compiled", "a", "--max-new-tokens", 12)
    assert "no program of prefill" in run("run", decoder / "compiled", "a" * 20, code=2)


def test_a_folder_with_other_things_is_not_overwritten(decoder, tmp_path):
    assert "is there already, and is no model compiled through TVM" in run("compile", decoder, decoder, code=2)
    assert "LLVM knows no CPU 'i8080'" in run("compile", decoder, tmp_path / "out", "--target", "i8080", code=2)
    assert "the model has 128 positions" in run("compile", decoder, tmp_path / "out", "--length", 129, code=2)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("preset", ["bert-tiny", "gpt2-tiny"])
@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_the_number_of_distinct_kernels_does_not_grow_with_depth(preset, precision):
    def found(layers):
        given = ("explain", preset, "--layers", layers, "--length", 16, "--precision", precision)
        return [line.split(" distinct")[0] for line in run(*given).splitlines() if "distinct kernels" in line]

    assert len(found(1)) == 3
    assert found(1) == found(2) == found(12)


def test_a_kernel_is_shown_with_its_te_its_schedule_and_its_rule(decoder):
    kernels = {kernel.name: kernel for kernel in tvm.explain("bert-tiny", (1, 16), target="haswell")}
    up = kernels["forward.contraction_multiply"]
    assert (up.rule, up.calls, up.result) == ("contraction", 2, "float32[16, 256]")
    assert "T.vectorized" not in up.te
    assert "T.reduce" in up.te or 'T.axis.remap("SSR"' in up.te
    assert "T.vectorized(8)" in up.tir
    shown = run("explain", decoder, "--kernel", "decode.write", "--length", 16)
    assert "rule write, called 4 times" in shown
    assert "no kernel 'nix'; there are: forward." in run("explain", decoder, "--kernel", "nix", code=2)
    facts = json.loads(run("explain", decoder, "--kernel", "decode.write", "--length", 16, "--json"))
    assert [fact["calls"] for fact in facts] == [4]


def test_specs_without_weights_are_those_of_the_packed_weights(precision):
    from xformer import params
    from xformer.frontends.tvm import packing, target, weights

    for preset in ("bert-tiny", "gpt2-tiny"):
        config = xformer.config.find(preset)
        if preset == "bert-tiny":
            config = xformer.config.replace(config, head=True)
        for tied in (True, False):
            sized = xformer.config.replace(config, tied=tied)
            tree = packing.prepare(xformer.init(sized).params, sized, precision, target.machine())
            assert params.leaves(packing.specs(sized, precision, target.machine())) == params.leaves(
                params.map(lambda path, leaf: weights.spec(leaf), tree)
            )


def test_the_time_of_each_kernel_is_shown_beside_what_the_machine_does(monkeypatch):
    monkeypatch.setattr(timing, "SECONDS", 0.001)
    monkeypatch.setattr(timing, "CACHE", 1 << 16)
    monkeypatch.setattr(timing, "SIZES", (64, 96))
    shown = run("explain", "gpt2-tiny", "--length", 16, "--time")
    for function in ("forward", "prefill", "decode"):
        assert re.search(rf"{function}: \d+\.\d\d ms in kernels, \d+% of the peak, \d+% of the bandwidth", shown)
    assert re.search(r"measured peaks: \d+ GOP/s, \d+\.\d GB/s", shown)
    assert re.search(r"contraction_add +\d+ +\d", shown)


def test_a_peak_is_the_fastest_sample_of_any_size_and_round():
    assert timing.best([(6e9, [3.0, 2.0]), (8e9, [4.0, 1.0, 9.0]), (6e9, [5.0, 1.0])]) == 8e9


def test_the_work_of_a_kernel_is_counted():
    found = {kernel.name: kernel for kernel in tvm.explain("bert-tiny", (2, 16))}
    width, tokens = 64, 32
    (projection,) = timing.timings([found["forward.contraction_add"]])
    assert projection.operations == 2 * tokens * width * width
    assert projection.bytes == 4 * (2 * tokens * width + width * width + width)
    (take,) = timing.timings([found["forward.rows_take"]])
    assert (take.operations, take.bytes < 10 * 4 * tokens * width) == (0, True)  # not the whole table
