"""safetensors files: mapped, checked, and replaced whole or not at all."""

import json
import os
import signal
import struct

import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from xformer import storage

TENSORS = {
    "a": np.arange(12, dtype=np.float32).reshape(3, 4),
    "b": np.ones(5, ml_dtypes.bfloat16),
    "c": np.array([[1], [-2]], np.int8),
    "empty": np.zeros((0, 3), np.float32),
    "scalar": np.array(7, np.int32),
}


def test_read_maps_what_the_library_wrote(tmp_path):
    save_file(TENSORS, tmp_path / "x")
    found = storage.read(tmp_path / "x")
    assert found.keys() == TENSORS.keys()
    for name, tensor in TENSORS.items():
        assert found[name].dtype == tensor.dtype
        np.testing.assert_array_equal(found[name], tensor)
        assert not found[name].flags.writeable
        assert not found[name].flags.owndata


def test_the_library_reads_what_write_wrote(tmp_path):
    storage.write(tmp_path / "x", {"t": TENSORS["a"].T})
    np.testing.assert_array_equal(load_file(tmp_path / "x")["t"], TENSORS["a"].T)


@pytest.mark.parametrize("keep", [0, 4, 8, 60, -1])
def test_a_truncated_file_is_refused_by_name(tmp_path, keep):
    save_file(TENSORS, tmp_path / "x")
    whole = (tmp_path / "x").read_bytes()
    (tmp_path / "x").write_bytes(whole[:keep])
    with pytest.raises(ValueError, match=r"x: not a whole safetensors file"):
        storage.read(tmp_path / "x")


HEADERS = {
    "huge header": struct.pack("<Q", 2**62),
    "not json": struct.pack("<Q", 4) + b"{{{{",
    "offsets outside": {"a": {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}},
    "huge shape": {"a": {"dtype": "F32", "shape": [2**60], "data_offsets": [0, 8]}},
    "overlap": {"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}, "b": {"dtype": "F32", "shape": [2], "data_offsets": [4, 12]}},
    "negative": {"a": {"dtype": "F32", "shape": [-2], "data_offsets": [0, 8]}},
}


@pytest.mark.parametrize("kind", HEADERS)
def test_a_false_header_is_refused(tmp_path, kind):
    header = HEADERS[kind]
    if isinstance(header, dict):
        text = json.dumps(header).encode()
        header = struct.pack("<Q", len(text)) + text + bytes(8)
    (tmp_path / "x").write_bytes(header)
    with pytest.raises(ValueError, match="not a whole safetensors file"):
        storage.read(tmp_path / "x")


def test_a_dtype_that_numpy_has_not_is_named(tmp_path):
    text = json.dumps({"a": {"dtype": "F8_E4M3", "shape": [2], "data_offsets": [0, 2]}}).encode()
    (tmp_path / "x").write_bytes(struct.pack("<Q", len(text)) + text + bytes(2))
    with pytest.raises(ValueError, match="unsupported dtype F8_E4M3; supported: F64, F32"):
        storage.read(tmp_path / "x")


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(place=st.integers(0, 400), bit=st.integers(0, 7))
def test_a_flipped_bit_gives_tensors_or_a_value_error(tmp_path, place, bit):
    save_file(TENSORS, tmp_path / "x")
    data = bytearray((tmp_path / "x").read_bytes())
    data[place % len(data)] ^= 1 << bit
    (tmp_path / "x").write_bytes(data)
    try:
        found = storage.read(tmp_path / "x")
    except ValueError as error:
        assert "x: " in str(error)  # noqa: PT017 - either outcome is right, but an error must name the file
    else:
        assert sum(tensor.nbytes for tensor in found.values()) <= len(data)


def test_a_failed_write_leaves_the_old_files_and_nothing_else(tmp_path):
    old = {name: tmp_path / name for name in ("x", "y")}
    for path in old.values():
        path.write_text("old")

    def write_half():
        with storage.replacing(*old.values()) as (first, _):
            first.write_text("new")
            raise RuntimeError("halfway")

    with pytest.raises(RuntimeError, match="halfway"):
        write_half()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["x", "y"]
    assert [path.read_text() for path in old.values()] == ["old", "old"]


def test_a_write_that_ends_well_replaces_all_files(tmp_path):
    (tmp_path / "x").write_text("old")
    with storage.replacing(tmp_path / "x", tmp_path / "y") as (first, second):
        first.write_text("1")
        second.write_text("2")
    assert sorted((path.name, path.read_text()) for path in tmp_path.iterdir()) == [("x", "1"), ("y", "2")]


def test_a_folder_in_the_way_is_named_before_anything_is_written(tmp_path):
    (tmp_path / "y").mkdir()
    with (
        pytest.raises(IsADirectoryError, match="y is a folder, where a file is to be written"),
        storage.replacing(tmp_path / "x", tmp_path / "y"),
    ):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["y"]


@pytest.mark.parametrize("what", [OSError(28, "No space left on device"), KeyboardInterrupt()], ids=["error", "interrupt"])
def test_all_files_take_their_places_or_none(tmp_path, monkeypatch, what):
    old = [tmp_path / name for name in ("x", "y")]
    for path in old:
        path.write_text("old")
    replace, calls = os.replace, []
    listening = signal.signal(signal.SIGINT, signal.default_int_handler)  # a job started in the background ignores interrupts

    def second_fails(source, target):
        calls.append(target)
        if len(calls) == 2:
            if isinstance(what, OSError):
                raise what
            signal.raise_signal(signal.SIGINT)
        replace(source, target)

    def write():
        with storage.replacing(*old) as new:
            for path in new:
                path.write_text("new")
            monkeypatch.setattr(os, "replace", second_fails)

    try:
        with pytest.raises(type(what)):
            write()
    finally:
        signal.signal(signal.SIGINT, listening)
    expected = "old" if isinstance(what, OSError) else "new"  # an interrupt waits until both are there
    assert sorted((path.name, path.read_text()) for path in tmp_path.iterdir()) == [("x", expected), ("y", expected)]


def test_a_new_file_has_the_rights_that_the_user_gives_new_files(tmp_path):
    before = os.umask(0o077)
    try:
        with storage.replacing(tmp_path / "x") as (new,):
            new.write_text("1")
    finally:
        os.umask(before)
    assert (tmp_path / "x").stat().st_mode & 0o777 == 0o600


def test_a_full_disk_is_an_os_error(tmp_path, monkeypatch):
    def full(*_):
        raise SafetensorError("I/O error: No space left on device")

    monkeypatch.setattr(safetensors.numpy, "save_file", full)
    with pytest.raises(OSError, match="the weights cannot be written .*No space left"):
        storage.write(tmp_path / "x", {"a": np.ones(2, np.float32)})
