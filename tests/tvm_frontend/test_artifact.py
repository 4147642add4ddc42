"""Saved models: a fresh process without a compiler gives the same, and nothing that is not whole or does not fit is loaded."""

import json
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers

import xformer
from xformer.frontends.tvm import artifact, compile, load, processor, runtime, target
from xformer.frontends.tvm.weights import PackedWeight
from xformer.params import items
from xformer.params import map as map_leaves

PROMPTS = [[5, 6, 7], [8, 9]]
FRESH = """
import json, re, sys
import xformer
from xformer.frontends import tvm

model = tvm.load(sys.argv[1])
tokens = model.generate({prompts}, 12, stop=())
mapped = set(re.findall(r"lib(tvm_[a-z]+)", open("/proc/self/maps").read())) if sys.platform == "linux" else set()
try:
    tvm.compile(xformer.init("gpt2-tiny"))
except ImportError as error:
    refused = str(error)
print(json.dumps({{"tokens": tokens, "modules": sorted(sys.modules), "mapped": sorted(mapped), "refused": refused}}))
"""


@pytest.fixture(scope="module")
def decoder(tmp_path_factory):
    """A compiled model and its artifact."""
    model, folder = compile(xformer.init("gpt2-tiny", precision="int8"), (2, 16, 12)), tmp_path_factory.mktemp("saved") / "gpt2"
    model.save(folder)
    return model, folder


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    """The same of an encoder, with a tokenizer."""
    inner = Tokenizer(models.WordLevel({word: index for index, word in enumerate(["[UNK]", "hello", "world", "again"])}, unk_token="[UNK]"))
    inner.pre_tokenizer = pre_tokenizers.Whitespace()
    source, folder = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("saved") / "bert"
    xformer.init("bert-tiny", seed=2).save(source)
    inner.save(str(source / "tokenizer.json"))
    model = compile(xformer.load(source), (2, 16))
    model.save(folder)
    return model, folder


@pytest.fixture
def copy(decoder, tmp_path):
    return Path(shutil.copytree(decoder[1], tmp_path / "copy"))


def test_a_fresh_process_without_a_compiler_generates_the_same_tokens(decoder):
    model, folder = decoder
    command = [sys.executable, "-c", FRESH.format(prompts=PROMPTS), str(folder)]
    found = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    assert found["tokens"] == model.generate(PROMPTS, 12, stop=())
    assert "tvm_compiler" not in found["mapped"]
    own = {"tracing", "namespace", "schedules", "building", "packing", "target", "contraction"}
    assert not {f"xformer.frontends.tvm.{name}" for name in own} & set(found["modules"])
    assert not {"tvm.relax", "tvm.s_tir.meta_schedule", "tvm.topi", "jax", "torch", "typer"} & set(found["modules"])
    assert "imported without its compiler" in found["refused"]


def test_a_loaded_encoder_is_the_compiled_one(encoder):
    model, loaded = encoder[0], load(encoder[1])
    tokens, mask = np.array([[1, 2, 3], [2, 1, 0]]), np.array([[1, 1, 1], [1, 1, 0]])
    assert loaded.config == model.config
    assert loaded.precision is model.precision
    np.testing.assert_array_equal(loaded(tokens, mask), model(tokens, mask))
    np.testing.assert_array_equal(loaded.pool(tokens, mask), model.pool(tokens, mask))
    texts = ["hello world", "again", "world"]
    np.testing.assert_array_equal(loaded.embed(texts, batch_size=2), model.embed(texts, batch_size=2))


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc/self/maps")
def test_weights_are_used_where_the_file_is_mapped(encoder):
    loaded = load(encoder[1])
    path = re.escape(str(encoder[1] / artifact.WEIGHTS))
    ranges = re.findall(rf"^([0-9a-f]+)-([0-9a-f]+) .* {path}$", Path("/proc/self/maps").read_text(), re.MULTILINE)
    arrays = [runtime.to_numpy(getattr(leaf, "tensor", leaf)) for _, leaf in items(loaded.params)]
    inside = [any(int(a, 16) <= x.ctypes.data < int(b, 16) for a, b in ranges) for x in arrays]
    assert all(inside)


def test_a_call_takes_the_smallest_program_that_holds_it_and_no_other(decoder, encoder):
    loaded = load(decoder[1])
    assert loaded.generate([[3]], 4, stop=()) == decoder[0].generate([[3]], 4, stop=())
    with pytest.raises(ValueError, match=r"no program of forward for 1 x 20 tokens; it has: 2 x 16 tokens"):
        loaded([[1] * 20])
    five = [[1, 2], [3, 4], [5, 6], [7, 8], [9, 10]]
    np.testing.assert_array_equal(loaded(five), np.concatenate([loaded([row]) for row in five]))
    with pytest.raises(ValueError, match=r"no program of prefill for 1 x 20 tokens in a cache of 24 columns; it has: 2 x 16 tokens in a"):
        loaded.generate([[1] * 20], 4)
    with pytest.raises(ValueError, match=r"no program of forward .* it has: none"):
        load(encoder[1])([[1, 2]], token_types=[[0, 1]])


def test_a_loaded_model_can_be_saved_again_over_its_own_folder(copy, decoder):
    load(copy).save(copy)
    assert load(copy).generate(PROMPTS, 12, stop=()) == decoder[0].generate(PROMPTS, 12, stop=())
    assert {path.name for path in copy.iterdir()} == {path.name for path in decoder[1].iterdir()}


def test_a_tied_table_is_stored_once_and_loaded_once():
    tree = compile(xformer.init("gpt2-tiny")).params
    again = map_leaves(lambda path, leaf: replace(leaf) if isinstance(leaf, PackedWeight) else leaf, tree)  # as loading makes them
    for found in (tree, again):
        stored, parameters = artifact._parameters(found)
        assert parameters["head.weight"]["stored"] == "embedding.token"
        assert "head.weight" not in stored


def test_a_model_without_programs_is_not_saved(tmp_path):
    with pytest.raises(ValueError, match="nothing is compiled yet"):
        compile(xformer.init("bert-tiny")).save(tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_saving_that_fails_leaves_what_was_there(copy, decoder, monkeypatch):
    before = {path.name: path.read_bytes() for path in copy.iterdir()}
    monkeypatch.setattr(artifact.weights, "write", lambda *_: (_ for _ in ()).throw(OSError("no space left")))
    with pytest.raises(OSError, match="no space left"):
        decoder[0].save(copy)
    assert {path.name: path.read_bytes() for path in copy.iterdir()} == before


# ---------------------------------------------------------------------------------------------------------- what is refused
def sign(folder, manifest):
    """Write a manifest with the digest of what it says now."""
    manifest.pop("digest")
    (folder / artifact.MANIFEST).write_text(json.dumps({**manifest, "digest": artifact._digest(manifest)}))


@pytest.mark.parametrize("name", ["forward-0.so", artifact.WEIGHTS])
def test_truncated_changed_and_missing_files_are_refused_by_name(copy, name):
    path, content = copy / name, (copy / name).read_bytes()
    path.write_bytes(content[:-100])
    with pytest.raises(ValueError, match=rf"{name} has {len(content) - 100} bytes; manifest.json says {len(content)}$"):
        load(copy)
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(ValueError, match=rf"{name} is not as it was written"):
        load(copy)
    path.unlink()
    with pytest.raises(FileNotFoundError, match=rf"{name}: no such file, but manifest.json names it"):
        load(copy)


def test_a_changed_or_truncated_manifest_is_refused(copy):
    path = copy / artifact.MANIFEST
    text = path.read_text()
    path.write_text(text.replace('"precision": "int8"', '"precision": "fp32"'))
    with pytest.raises(ValueError, match="manifest.json is not as it was written"):
        load(copy)
    path.write_text(text[:-50])
    with pytest.raises(ValueError, match="manifest.json: not JSON"):
        load(copy)
    path.write_text("{}")
    with pytest.raises(ValueError, match="manifest.json: a compiled model of format None; known: 2"):
        load(copy)
    path.unlink()
    with pytest.raises(FileNotFoundError, match="manifest.json: no such file"):
        load(copy)


def test_no_flipped_bit_is_loaded(copy):
    generator = np.random.default_rng(0)
    for path in sorted(copy.iterdir()):
        content = path.read_bytes()
        for place in generator.integers(0, len(content), 30):
            path.write_bytes(content[:place] + bytes([content[place] ^ 1 << int(generator.integers(8))]) + content[place + 1 :])
            with pytest.raises(ValueError, match=re.escape(path.name)):
                load(copy)
        path.write_bytes(content)
    load(copy)


@pytest.mark.parametrize("name", ["../outside", "/etc/hostname", "sub/weights"])
def test_files_outside_the_folder_are_refused(copy, name):
    manifest = json.loads((copy / artifact.MANIFEST).read_text())
    manifest["files"][name] = {"bytes": 1, "sha256": "0"}
    sign(copy, manifest)
    with pytest.raises(ValueError, match=re.escape(f"names {name!r}, which is not a file of its folder")):
        load(copy)


def test_code_for_another_tvm_or_processor_is_refused(copy, monkeypatch):
    manifest = json.loads((copy / artifact.MANIFEST).read_text())
    needed = manifest["processor"]["features"][0]
    present = [processor.FEATURES[feature] for feature in manifest["processor"]["features"][1:]]
    with monkeypatch.context() as patch:
        patch.setattr(processor.machine, "description", lambda: f"flags\t: fpu {' '.join(present)}\n")
        with pytest.raises(ValueError, match=rf"copy was compiled for {manifest['processor']['name']}; this CPU lacks {needed}$"):
            load(copy)
        patch.setattr(processor, "architecture", lambda: "riscv64")
        with pytest.raises(ValueError, match=rf"compiled for {manifest['processor']['architecture']}; this machine is riscv64"):
            load(copy)
    manifest["versions"]["apache-tvm"] = "0.26.0"
    sign(copy, manifest)
    with pytest.raises(ValueError, match=r"compiled by apache-tvm 0.26.0; .* is installed: compile it again"):
        load(copy)


def test_a_model_is_compiled_for_a_processor_that_this_machine_may_not_be():
    model = compile(xformer.init("bert-tiny"), (1, 16), target="sapphirerapids")
    assert {"avx512f", "avx512vnni", "avx512fp16"} <= set(model.processor.features)
    assert model.params.layers[0].up.weight.layout.columns == 32


@pytest.mark.skipif(processor.architecture() != "x86_64", reason="features of x86")
def test_code_for_this_machine_uses_nothing_that_is_hidden_from_it(monkeypatch):
    whole = target.machine()
    present = [processor.FEATURES[feature] for feature in whole.processor.features if not feature.startswith("avx")]
    monkeypatch.setattr(processor.machine, "description", lambda: f"flags\t: fpu {' '.join(present)}\n")
    found = target.machine()
    assert found.lanes == 4
    assert found.processor.name == whole.processor.name
    assert not processor.missing(found.processor.features)
    assert not any(feature.startswith("avx") for feature in found.processor.features)
