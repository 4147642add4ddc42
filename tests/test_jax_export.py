"""One file for every platform: any batch and length, without the code that it was made from."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import safetensors
from jax import export as jax_export
from tokenizers import Tokenizer, models, pre_tokenizers
from typer.testing import CliRunner

import xformer
from xformer import config
from xformer.cli.commands import app
from xformer.frontends import jax as frontend
from xformer.frontends.jax import export
from xformer.tokenizer import Tokenizer as Wrapped

GENERATOR = np.random.default_rng(4)
KEPT = Path(__file__).parent / "golden" / "exported-gpt2-format-1.safetensors"
SMALL = config.replace(config.PRESETS["gpt2-tiny"], vocab_size=40, positions=16, width=8, heads=2, ffn=16, layers=1, eos_token=39)


def ids(batch, length, vocabulary=500):
    return GENERATOR.integers(0, vocabulary, (batch, length)).astype(np.int32)


@pytest.mark.parametrize("precision", ["fp32", "bf16", "int8"])
@pytest.mark.parametrize("preset", ["bert-tiny", "gpt2-tiny"])
def test_C48_an_exported_model_gives_the_same_for_any_batch_and_length(tmp_path, preset, precision):
    model = xformer.init(preset, 3, "jax", precision)
    export.save(model, tmp_path / "model")
    again = export.load(tmp_path / "model")
    atol = {"fp32": 2e-6, "bf16": 5e-3, "int8": 2e-2}[precision]
    for batch, length in ((1, 7), (3, 100)):
        tokens = ids(batch, length)
        mask = np.arange(length) < np.arange(length, length - batch, -1)[:, None]
        np.testing.assert_allclose(again(tokens, mask), model(tokens, mask), rtol=0, atol=atol)


def test_an_exported_encoder_pools(tmp_path):
    model = xformer.init(config.replace(config.PRESETS["bert-tiny"], head=True), 3)
    export.save(model, tmp_path / "model")
    again = export.load(tmp_path / "model")
    tokens = ids(2, 9)
    np.testing.assert_allclose(again.pool(tokens), model.pool(tokens), rtol=0, atol=2e-6)
    np.testing.assert_allclose(again.logits(tokens), model.logits(tokens), rtol=0, atol=2e-6)


def test_a_compiled_model_is_saved_with_its_tokenizer_and_loaded_by_the_same_names(tmp_path):
    model = xformer.init("bert-tiny", 3)
    inner = Tokenizer(models.WordLevel({"[UNK]": 0, "hello": 1, "world": 2}, unk_token="[UNK]"))
    inner.pre_tokenizer = pre_tokenizers.Whitespace()
    model.tokenizer = Wrapped(inner, 8, {})
    frontend.compile(model, (2, 8)).save(tmp_path / "model")
    texts = ["hello world", "world", "hello hello hello"]
    np.testing.assert_allclose(frontend.load(tmp_path / "model").embed(texts), model.embed(texts), rtol=0, atol=2e-6)


def test_the_command_line_exports_and_runs_what_it_exported(tmp_path):
    model = xformer.init("gpt2-tiny", 3)
    inner = Tokenizer(models.WordLevel({f"w{index}": index for index in range(512)}, unk_token="w0"))
    inner.pre_tokenizer = pre_tokenizers.Whitespace()
    model.tokenizer = Wrapped(inner, 100, {})
    model.save(tmp_path / "model")
    out = tmp_path / "out"
    assert "out: fp32 for CPU, CUDA and TPU, " in run("compile", tmp_path / "model", out, "--through", "jax")
    asked = ("w5 w6", "--max-new-tokens", 5, "--json")
    assert run("run", out, *asked, "--device", "cpu") == run("run", tmp_path / "model", *asked, "--namespace", "jax")
    assert "--precision int8: " in run("run", out, *asked, "--precision", "int8", code=2)
    assert "is no model compiled through TVM" in run("compile", tmp_path / "model", out, code=2)
    assert "--length and --target do not go with" in run("compile", tmp_path / "model", out, "--through", "jax", "--length", 5, code=2)
    assert "--through xla: unknown" in run("compile", tmp_path / "model", out, "--through", "xla", code=2)


def run(*arguments, code=0):
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == code, (result.output, result.exception)
    return result.stdout if code == 0 else result.stderr


def test_an_exported_decoder_generates(tmp_path):
    model = xformer.init("gpt2-tiny", 3)
    export.save(model, tmp_path / "model")
    again = export.load(tmp_path / "model")
    for options in ({"stop": ()}, {"temperature": 1.0, "seed": 5}):
        assert again.generate([[1, 2, 3], [4]], 9, **options) == model.generate([[1, 2, 3], [4]], 9, **options)


def test_a_program_names_every_platform(tmp_path):
    export.save(xformer.init(SMALL, 0), tmp_path / "model")
    stored = xformer.storage.read(tmp_path / "model" / export.EXPORTED)
    assert {"program.forward", "program.prefill", "program.decode", "program.greedy"} <= set(stored)
    assert jax_export.deserialize(bytearray(stored["program.greedy"])).platforms == ("cpu", "cuda", "tpu")


def test_a_tied_table_is_stored_once(tmp_path):
    export.save(xformer.init(SMALL, 0), tmp_path / "model")
    stored = xformer.storage.read(tmp_path / "model" / export.EXPORTED)
    assert [name for name in stored if name in ("embedding.token", "head.weight")] == ["embedding.token"]


def test_int32_is_refused_by_name(tmp_path):
    with pytest.raises(ValueError, match="int32 cannot be exported for any length; fp32, bf16 and int8 can"):
        export.save(xformer.init(SMALL, 0, precision="int32"), tmp_path / "model")


def test_another_format_is_refused(tmp_path):
    xformer.storage.write(tmp_path / "model", {"a": np.zeros(3, np.float32)}, {"format": "pt"})
    with pytest.raises(ValueError, match="format 'pt', expected 'xformer-jax 3'"):
        export.load(tmp_path / "model")


def test_no_flipped_bit_is_loaded(tmp_path):
    export.save(xformer.init(SMALL, 0), tmp_path)
    path, generator = tmp_path / export.EXPORTED, np.random.default_rng(0)
    content = path.read_bytes()
    length = int.from_bytes(content[:8], "little")
    for place in [*generator.integers(0, 8 + length, 40), *generator.integers(8 + length, len(content), 40)]:
        bit = 1 << int(generator.integers(8))
        path.write_bytes(content[:place] + bytes([content[place] ^ bit]) + content[place + 1 :])
        with pytest.raises(ValueError, match=r"exported.safetensors"):
            export.load(tmp_path)
    path.write_bytes(content)
    assert export.load(tmp_path).generate([[1, 2]], 2, stop=()) == xformer.init(SMALL, 0).generate([[1, 2]], 2, stop=())


READER = """
import json, sys
sys.modules["xformer"] = None  # not even there to be imported
import numpy as np
from jax import export
from safetensors import safe_open

with safe_open(sys.argv[1], framework="numpy") as file:
    leaves = [file.get_tensor(name) for name in json.loads(file.metadata()["leaves"])]
    forward = export.deserialize(bytearray(file.get_tensor("program.forward")))
tokens = np.array(json.loads(sys.argv[2]), np.int32)
print(json.dumps(np.asarray(forward.call(leaves, tokens, np.ones(tokens.shape, bool))).tolist()))
"""


def test_a_fresh_process_without_xformer_runs_a_file_kept_from_an_earlier_version():
    tokens = ids(2, 5, 40)
    command = [sys.executable, "-c", READER, str(KEPT), json.dumps(tokens.tolist())]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    np.testing.assert_allclose(json.loads(done.stdout), xformer.init(SMALL, 7)(tokens), rtol=0, atol=2e-6)


def test_a_file_kept_from_an_earlier_version_still_generates():
    prompt = [[1, 2, 3], [4]]
    assert export.load(KEPT).generate(prompt, 8, stop=()) == xformer.init(SMALL, 7).generate(prompt, 8, stop=())


@pytest.mark.parametrize("form", ["xformer-jax 1", "xformer-jax 2"])
def test_a_narrow_decoder_with_a_wide_cache_is_refused(form, tmp_path):
    with safetensors.safe_open(KEPT, framework="numpy") as file:
        metadata = {**file.metadata(), "format": form, "precision": "int8"}
    xformer.storage.write(tmp_path / "model", xformer.storage.read(KEPT), metadata)
    with pytest.raises(ValueError, match="that of int8 is narrow from 'xformer-jax 3' on: compile it again"):
        export.load(tmp_path / "model")
