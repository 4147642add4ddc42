"""Damaged checkpoints and exported files: a model or one clear error, and never a crash, a hang, or memory without a reason."""

import json
import struct
import subprocess
import sys
import tracemalloc

import numpy as np
import pytest
from compare import GOLDEN
from corrupting import changed, damaged, sections
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers, processors

import xformer
from xformer import config, storage
from xformer import tokenizer as tokenizers
from xformer.frontends import jax as frontend
from xformer.frontends.jax import export

SMALL = {
    "bert": config.replace(config.PRESETS["bert-tiny"], vocab_size=40, positions=16, width=8, heads=2, ffn=16, layers=1),
    "gpt2": config.replace(config.PRESETS["gpt2-tiny"], vocab_size=40, positions=16, width=8, heads=2, ffn=16, layers=1, eos_token=39),
}
ROOM = 4_000_000  # bytes that loading takes whatever the file holds: modules, messages, a tokenizer
many = settings(
    max_examples=120, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
)


@pytest.fixture(scope="module", params=[("bert", "fp32"), ("gpt2", "int8")], ids=" ".join)
def whole(request, tmp_path_factory):
    """A folder with every kind of file that a checkpoint has, and its files' bytes."""
    name, precision = request.param
    folder = tmp_path_factory.mktemp(name)
    xformer.init(SMALL[name], 3, precision=precision).save(folder)
    inner = Tokenizer(models.WordLevel({word: index for index, word in enumerate(["[UNK]", "[CLS]", "hello", "world"])}, unk_token="[UNK]"))
    inner.pre_tokenizer = pre_tokenizers.Whitespace()
    inner.post_processor = processors.TemplateProcessing("[CLS] $A", special_tokens=[("[CLS]", 1)])
    for file, text in tokenizers.Tokenizer(inner, 12, {"pad_token": "[UNK]", "padding_side": "left"}).files().items():
        (folder / file).write_text(text, encoding="utf-8")
    (folder / "sentence_bert_config.json").write_text('{"max_seq_length": 10}')
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text('{"pooling_mode_mean_tokens": true}')
    xformer.load(folder)
    return folder, {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def attempt(folder, load=xformer.load):
    """Load and use what is in a folder: an error names the folder, and no more memory is taken than its files explain."""
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    tracemalloc.start()
    try:
        with np.errstate(all="ignore"):  # a weight with a flipped bit may be as large as numbers get
            model = load(folder)
            try:
                assert model([[1, 2, 3]]).shape[:2] == (1, 3)
                if model.tokenizer is not None:
                    model.embed(["hello world"]) if model.config.model_type == "bert" else model.generate("hello", 2)
            except ValueError:
                pass  # a tokenizer whose ids this model has not: told once there is a text
    except (ValueError, FileNotFoundError) as error:
        assert str(folder) in str(error)  # noqa: PT017 - either outcome is right, but an error must name the file
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak <= 6 * size + ROOM


@many
@given(data=st.data())
def test_damaged_bytes_give_a_model_or_one_error(whole, data):
    folder, files = whole
    name = data.draw(st.sampled_from(sorted(files)))
    try:
        (folder / name).write_bytes(data.draw(damaged(files[name])))
        attempt(folder)
    finally:
        (folder / name).write_bytes(files[name])


@many
@given(data=st.data())
def test_a_value_of_another_kind_gives_a_model_or_one_error(whole, data):
    folder, files = whole
    name = data.draw(st.sampled_from(sorted(name for name in files if name.endswith(".json"))))
    try:
        (folder / name).write_text(data.draw(changed(files[name].decode())))
        attempt(folder)
    finally:
        (folder / name).write_bytes(files[name])


@many
@given(data=st.data())
def test_a_header_with_another_value_gives_a_model_or_one_error(whole, data):
    """Of the file of weights: other dtypes, shapes, places and names, the header's length being right."""
    folder, files = whole
    name = "model.safetensors"
    length = int.from_bytes(files[name][:8], "little")
    text = data.draw(changed(files[name][8 : 8 + length].decode())).encode()
    try:
        (folder / name).write_bytes(struct.pack("<Q", len(text)) + text + files[name][8 + length :])
        attempt(folder)
    finally:
        (folder / name).write_bytes(files[name])


def test_a_file_of_weights_that_ends_anywhere_is_refused(whole):
    folder, files = whole
    path = folder / "model.safetensors"
    try:
        for end in sections(files["model.safetensors"]):
            path.write_bytes(files["model.safetensors"][:end])
            with pytest.raises(ValueError, match="model.safetensors: not a whole safetensors file"):
                xformer.load(folder)
    finally:
        path.write_bytes(files["model.safetensors"])


# ----------------------------------------------------------------------------------------------- in a process of little memory
LIMITED = """
import faulthandler, pathlib, resource, sys
import numpy, safetensors, tokenizers, xformer
from xformer import checkpoint, tokenizer

faulthandler.dump_traceback_later(120, exit=True)
used = int(pathlib.Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + 256 * 2**20,) * 2)
for folder in sys.argv[1:]:
    try:
        xformer.load(folder)
        print("loaded", folder)
    except (ValueError, FileNotFoundError) as error:
        print(f"{type(error).__name__}: {error}".splitlines()[0])
"""
EMPTY = {
    "a": {"dtype": "F32", "shape": [0, 2**40, 2**40], "data_offsets": [0, 0]},
    "b": {"dtype": "U8", "shape": [64], "data_offsets": [0, 64]},
}
ENORMOUS = {  # what a file may declare, and what is said
    "header": ({"model.safetensors": struct.pack("<Q", 2**62) + bytes(64)}, "not a whole safetensors file"),
    "header of 90 MB": ({"model.safetensors": struct.pack("<Q", 90_000_000) + bytes(64)}, "not a whole safetensors file"),
    "shape": ({"model.safetensors": {"a": {"dtype": "F32", "shape": [2**40, 2**20], "data_offsets": [0, 64]}}}, "not a whole safetensors"),
    "empty shape": ({"model.safetensors": EMPTY}, "which NumPy has not"),
    "layers": ({"config.json": {"num_hidden_layers": 2**40}}, "num_hidden_layers = 1099511627776, but there are only"),
    "vocabulary": ({"config.json": {"vocab_size": 2**60}}, "tensors do not fit the config"),
    "width": ({"config.json": {"hidden_size": 2**50, "intermediate_size": 2**50}}, "tensors do not fit the config"),
    "number": ({"config.json": {"hidden_size": 10**4000}}, "tensors do not fit the config"),
    "nesting": ({"config.json": b"[" * 1_000_000}, "not JSON"),
    "path": ({"model.safetensors.index.json": {"weight_map": {"a": "../../../../etc/passwd"}}}, "is not the name of a file in this folder"),
    "absolute path": ({"model.safetensors.index.json": {"weight_map": {"a": "/dev/zero"}}}, "is not the name of a file in this folder"),
    "model's name": ({"config.json": {"model_type": "../../os"}}, "unsupported model_type '../../os'"),
}


@pytest.mark.skipif(sys.platform != "linux", reason="limits the memory of a process as Linux does")
def test_what_a_file_declares_takes_no_memory(tmp_path):
    folders = []
    for number, (changes, _) in enumerate(ENORMOUS.values()):
        folder = tmp_path / str(number)
        xformer.init(SMALL["bert"], 3).save(folder)
        if "model.safetensors.index.json" in changes:
            (folder / "model.safetensors").unlink()
        for name, value in changes.items():
            path = folder / name
            if name == "config.json" and isinstance(value, dict):
                value = json.dumps(json.loads(path.read_text()) | value).encode()
            elif isinstance(value, dict):
                text = json.dumps(value).encode()
                value = struct.pack("<Q", len(text)) + text + bytes(64) if name.endswith("safetensors") else text
            path.write_bytes(value)
        folders.append(str(folder))
    done = subprocess.run([sys.executable, "-c", LIMITED, *folders], capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    for folder, line, (_, message) in zip(folders, done.stdout.splitlines(), ENORMOUS.values(), strict=True):
        assert line.startswith(f"ValueError: {folder}"), line
        assert message in line


# ----------------------------------------------------------------------------------------------------- files of JAX's programs
@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    folder = tmp_path_factory.mktemp("exported")
    export.save(xformer.init(SMALL["bert"], 3), folder)
    return folder, (folder / export.EXPORTED).read_bytes()


@settings(many, max_examples=60)
@given(data=st.data())
def test_no_damage_to_an_exported_file_goes_unseen(exported, data):
    folder, content = exported
    found = data.draw(damaged(content))
    try:
        (folder / export.EXPORTED).write_bytes(found)
        if found != content:
            with pytest.raises(ValueError, match=export.EXPORTED):
                frontend.load(folder)
    finally:
        (folder / export.EXPORTED).write_bytes(content)


def signed(content, **metadata):
    """An exported file with other metadata (None: without), and the digest of what it says now."""
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    said = {key: value for key, value in (header["__metadata__"] | metadata).items() if key != "digest" and value is not None}
    tensors = {}
    for name, entry in header.items():
        if name != "__metadata__":
            start, stop = (8 + length + offset for offset in entry["data_offsets"])
            tensors[name] = np.frombuffer(content[start:stop], storage.DTYPES[entry["dtype"]]).reshape(entry["shape"])
    text = json.dumps(header | {"__metadata__": said | {"digest": export._digest(said, tensors)}}).encode()
    return struct.pack("<Q", len(text)) + text + content[8 + length :]


@pytest.mark.parametrize("key", ["config", "leaves", "precision"])
@settings(many, max_examples=25)
@given(data=st.data())
def test_a_signed_file_that_says_something_else_is_refused_or_runs(exported, key, data):
    """A digest tells damage, not who wrote a file."""
    folder, content = exported
    length = int.from_bytes(content[:8], "little")
    text = json.loads(content[8 : 8 + length])["__metadata__"][key]
    other = data.draw(st.sampled_from([None, "", "{", "[]", "fp64"]) | (changed(text) if key != "precision" else st.nothing()))
    path = folder / export.EXPORTED
    try:
        path.write_bytes(signed(content, **{key: other}))
        try:
            frontend.load(folder)
        except ValueError as error:
            assert str(path) in str(error)  # noqa: PT017 - either outcome is right, but an error must name the file
    finally:
        path.write_bytes(content)


def test_a_file_of_the_first_version_whose_programs_are_damaged_is_refused_or_runs(tmp_path):
    """It has no digest."""
    content = (GOLDEN / "exported-gpt2-format-1.safetensors").read_bytes()
    length, path = 8 + int.from_bytes(content[:8], "little"), tmp_path / export.EXPORTED
    entries = {name: entry["data_offsets"] for name, entry in json.loads(content[8:length]).items() if name.startswith("program.")}
    refused = 0
    for start, _ in entries.values():
        for place in range(length + start, length + start + 200, 5):
            path.write_bytes(content[:place] + b"\xff" * 5 + content[place + 5 :])
            try:
                frontend.load(tmp_path)
            except ValueError as error:
                assert f"{path}: not a file of exported programs" in str(error)  # noqa: PT017
                refused += 1
    assert refused
