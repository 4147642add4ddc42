"""Damaged artifacts: refused by name before any of their code is loaded, and what they declare takes no memory."""

import json
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from corrupting import HUGE, changed, damaged, sections
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_artifact import sign
from tokenizers import Tokenizer, models, pre_tokenizers

import xformer
from xformer import config
from xformer.frontends.tvm import artifact, compile, load, program

SMALL = config.replace(config.PRESETS["gpt2-tiny"], vocab_size=40, positions=32, width=16, heads=2, ffn=16, layers=1, eos_token=39)
PROMPTS = [[5, 6, 7]]
many = settings(
    max_examples=80, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """An artifact with a tokenizer, and its files' bytes."""
    source, folder = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("saved") / "gpt2"
    inner = Tokenizer(models.WordLevel({f"w{index}": index for index in range(40)}, unk_token="w0"))
    inner.pre_tokenizer = pre_tokenizers.Whitespace()
    xformer.init(SMALL, precision="int8").save(source)
    inner.save(str(source / "tokenizer.json"))
    compile(xformer.load(source), (1, 16, 4)).save(folder)
    return folder, {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture
def whole(saved):
    """The same, whole again after each test."""
    yield saved
    restore(*saved)


def restore(folder, files):
    for path in folder.iterdir():
        if path.name not in files:
            path.unlink()
    for name, content in files.items():
        if not (folder / name).exists() or (folder / name).read_bytes() != content:
            (folder / name).write_bytes(content)


@pytest.fixture
def unloaded(monkeypatch):
    """No shared library may be loaded."""

    def refuse(path):
        raise AssertionError(f"{path} was loaded")

    monkeypatch.setattr(program.tvm.runtime, "load_module", refuse)


@many
@given(data=st.data())
def test_no_damage_goes_unseen_and_no_damaged_code_is_loaded(whole, unloaded, data):
    folder, files = whole
    name = data.draw(st.sampled_from(sorted(files)))
    found = data.draw(damaged(files[name]).filter(lambda content: content != files[name]))
    if name == artifact.MANIFEST and _same(found, files[name]):
        return  # another space
    (folder / name).write_bytes(found)
    try:
        with pytest.raises(ValueError, match=name):
            load(folder)
    finally:
        restore(folder, files)


def _same(one, other):
    try:
        return json.loads(one) == json.loads(other)
    except ValueError:
        return False


def test_a_file_that_ends_anywhere_is_refused(whole, unloaded):
    folder, files = whole
    for name, content in files.items():
        for end in sections(content) if name == artifact.WEIGHTS else (0, 1, 4, 16, len(content) // 2, len(content) - 2):
            (folder / name).write_bytes(content[:end])
            with pytest.raises(ValueError, match=name):
                load(folder)
        (folder / name).write_bytes(content)


@settings(many, max_examples=150)
@given(data=st.data())
def test_a_signed_manifest_that_says_something_else_is_refused_or_runs(saved, data):
    """A digest tells damage, not who wrote a folder: what is inconsistent is refused all the same, by name."""
    folder, files = saved
    whole = json.loads(files[artifact.MANIFEST])
    whole.pop("digest")
    part = data.draw(st.sampled_from(sorted(whole)))
    other = {**whole, part: json.loads(data.draw(changed(json.dumps(whole[part]))))}
    sign(folder, {**other, "digest": ""})
    try:
        try:
            model = load(folder)
        except (ValueError, FileNotFoundError) as error:
            assert str(folder) in str(error)  # noqa: PT017 - either outcome is right, but an error must name the folder
        else:
            assert model.config.layers == 1
    finally:
        restore(folder, files)


@pytest.mark.parametrize("library", ["../outside.so", "{}/outside.so", "outside.so", "", ".", "weights.safetensors", None, 5, ["a"]])
def test_only_code_that_was_checked_is_loaded(whole, library, tmp_path):
    """A library that runs a command when it is loaded, in every place where a manifest may look for it."""
    folder, files = whole
    ran = tmp_path / "ran"
    source = tmp_path / "outside.c"
    source.write_text(f'#include <stdio.h>\n__attribute__((constructor)) void run(void) {{ fclose(fopen("{ran}", "w")); }}\n')
    subprocess.run(["cc", "-shared", "-fPIC", "-o", str(tmp_path / "outside.so"), str(source)], check=True)
    shutil.copy(tmp_path / "outside.so", folder / "outside.so")
    shutil.copy(tmp_path / "outside.so", folder.parent / "outside.so")
    manifest = json.loads(files[artifact.MANIFEST])
    manifest["programs"][0]["library"] = library.format(tmp_path) if isinstance(library, str) else library
    sign(folder, manifest)
    with pytest.raises(ValueError, match=r"manifest.json: not a manifest of this format"):
        load(folder)
    assert not ran.exists()


def test_a_tokenizer_that_was_not_saved_with_an_artifact_is_not_read(whole):
    folder, files = whole
    manifest = json.loads(files[artifact.MANIFEST])
    del manifest["files"]["tokenizer.json"], manifest["files"]["tokenizer_config.json"]
    sign(folder, manifest)
    assert load(folder).tokenizer is None
    with pytest.raises(ValueError, match="no tokenizer"):
        load(folder).generate("w1 w2", 3)


@pytest.mark.parametrize("change", ["dtype", "shape", "name", "another tensor", "layout"])
def test_weights_that_do_not_fit_the_config_are_refused_by_name(whole, change):
    folder, files = whole
    manifest, weights = json.loads(files[artifact.MANIFEST]), files[artifact.WEIGHTS]
    length = int.from_bytes(weights[:8], "little")
    header = json.loads(weights[8 : 8 + length])
    path = "layers.0.attention.query.weight.values"
    entry = manifest["parameters"][path]
    if change == "dtype":
        header[entry["stored"]]["dtype"] = "U8" if header[entry["stored"]]["dtype"] == "I8" else "I8"
    elif change == "shape":
        header[entry["stored"]]["shape"] = header[entry["stored"]]["shape"][::-1]
    elif change == "name":
        header["other"] = header.pop(entry["stored"])
    elif change == "another tensor":
        entry["stored"] = manifest["parameters"]["layers.0.up.weight.scale"]["stored"]
    else:
        entry["layout"] = [entry["layout"][1], entry["layout"][0], *entry["layout"][2:]]
    text = json.dumps(header).encode()
    text += b" " * (length - len(text))
    (folder / artifact.WEIGHTS).write_bytes(struct.pack("<Q", len(text)) + text + weights[8 + length :])
    manifest["files"][artifact.WEIGHTS] = artifact._facts(folder / artifact.WEIGHTS)
    sign(folder, manifest)
    with pytest.raises(ValueError, match=rf"manifest.json: .*{path if change != 'name' else 'KeyError'}"):
        load(folder)


LIMITED = """
import faulthandler, pathlib, resource, sys
from xformer.frontends import tvm

faulthandler.dump_traceback_later(240, exit=True)
tvm.load(sys.argv[1])  # what TVM's runtime itself takes
used = int(pathlib.Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + 256 * 2**20,) * 2)
for folder in sys.argv[2:]:
    try:
        tvm.load(folder)
        print("loaded", folder)
    except (ValueError, FileNotFoundError) as error:
        print(f"{type(error).__name__}: {error}".splitlines()[0])
"""


@pytest.mark.skipif(sys.platform != "linux", reason="limits the memory of a process as Linux does")
def test_what_an_artifact_declares_takes_no_memory(whole, tmp_path):
    folder, files = whole
    folders = []

    def copy(change):
        other = Path(shutil.copytree(folder, tmp_path / str(len(folders))))
        manifest = json.loads(files[artifact.MANIFEST])
        change(other, manifest)
        sign(other, manifest)
        folders.append(str(other))

    def enormous(other, size):
        (other / artifact.WEIGHTS).write_bytes(struct.pack("<Q", size) + files[artifact.WEIGHTS][8:])
        return artifact._facts(other / artifact.WEIGHTS)

    for size in HUGE:
        copy(lambda _, manifest, size=size: manifest["config"].update(layers=size))
        copy(lambda _, manifest, size=size: manifest["config"].update(vocab_size=size))
        copy(lambda other, manifest, size=size: manifest["files"].update({artifact.WEIGHTS: enormous(other, size)}))
        copy(lambda _, manifest, size=size: manifest["files"][artifact.WEIGHTS].update(bytes=size))
    done = subprocess.run([sys.executable, "-c", LIMITED, str(folder), *folders], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    for other, line in zip(folders, done.stdout.splitlines(), strict=True):
        assert line.startswith(f"ValueError: {other}"), line
