"""safetensors files: mapped into memory when read, replaced whole or not at all when written."""

import contextlib
import json
import os
import signal
import threading
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

DTYPES = {
    "F64": np.dtype("float64"),
    "F32": np.dtype("float32"),
    "F16": np.dtype("float16"),
    "BF16": np.dtype(ml_dtypes.bfloat16),
    "I64": np.dtype("int64"),
    "I32": np.dtype("int32"),
    "I16": np.dtype("int16"),
    "I8": np.dtype("int8"),
    "U8": np.dtype("uint8"),
    "BOOL": np.dtype("bool"),
}


def read(path: Path, private: bool = False) -> dict[str, np.ndarray]:
    """The tensors of a safetensors file as read-only views of the mapped file: nothing is read before it is used.

    `private` views may be written to, which the file never sees: for libraries that take no read-only memory.
    Raises ValueError when the file is truncated, corrupt, or holds a dtype or shape that NumPy has not.
    """
    from safetensors import SafetensorError, safe_open

    try:
        path.open("rb").close()  # the library calls a file that may not be read one that is not there
        with safe_open(path, framework="numpy"):  # checks the header, every offset, and the file's length against them
            pass
    except PermissionError as error:
        raise PermissionError(f"{path}: may not be read") from error
    except (SafetensorError, OSError) as error:
        raise ValueError(f"{path}: not a whole safetensors file ({error})") from error
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(length))
    header.pop("__metadata__", None)
    foreign = {entry["dtype"] for entry in header.values()} - DTYPES.keys()
    if foreign:
        raise ValueError(f"{path}: unsupported dtype {', '.join(sorted(foreign))}; supported: {', '.join(DTYPES)}")
    data = np.memmap(path, np.uint8, "c" if private else "r", offset=0) if header else np.empty(0, np.uint8)
    found = {}
    for name, entry in header.items():
        try:
            found[name] = _view(data, 8 + length, entry)
        except ValueError as error:  # too many axes, or an empty one beside huge ones
            raise ValueError(f"{path}: tensor {name!r} has the shape {entry['shape']}, which NumPy has not ({error})") from error
    return found


def _view(data, base, entry):
    start, stop = entry["data_offsets"]
    dtype, shape = DTYPES[entry["dtype"]], tuple(entry["shape"])
    return np.asarray(data[base + start : base + stop]).view(dtype).reshape(shape)


def write(path: Path, tensors: Mapping[str, np.ndarray], metadata: Mapping[str, str] | None = None) -> None:
    """Write a safetensors file at `path`, which may be the temporary one of `replacing`. Raises OSError when the disk is full."""
    from safetensors import SafetensorError
    from safetensors.numpy import save_file

    try:
        save_file({name: np.ascontiguousarray(tensor) for name, tensor in tensors.items()}, path, dict(metadata or {}))
    except SafetensorError as error:
        raise OSError(f"{path.parent}: the weights cannot be written ({error})") from error


@contextlib.contextmanager
def replacing(*paths: Path) -> Iterator[list[Path]]:
    """Temporary paths beside `paths`; they take the places of `paths` once the block has ended well, and vanish otherwise.

    All take their places or none does, an interrupt in between included. Raises IsADirectoryError, before anything is
    written, where a folder is in the way.
    """
    for path in paths:
        if path.is_dir():
            raise IsADirectoryError(f"{path} is a folder, where a file is to be written")
        if not os.access(path.parent, os.W_OK):
            raise PermissionError(f"{path.parent} may not be written to")
    temporary = [path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}") for path in paths]
    try:
        for new in temporary:
            new.touch(exist_ok=False)
        yield temporary
        for new in temporary:
            with new.open("rb") as file:
                os.fsync(file.fileno())
        with _uninterrupted():
            _exchange(temporary, paths)
    finally:
        for new in temporary:
            new.unlink(missing_ok=True)


def _exchange(temporary, paths):
    """Put each file in its place; where one cannot be, the old ones come back."""
    kept: list[tuple[Path, Path]] = []
    try:
        for new, path in zip(temporary, paths, strict=True):
            if path.exists():
                old = new.with_name(f"{new.name}.old")
                os.link(path, old)
                kept.append((old, path))
            os.replace(new, path)
    except OSError:
        for old, path in kept:
            os.replace(old, path)
        raise
    finally:
        for old, _ in kept:
            old.unlink(missing_ok=True)


@contextlib.contextmanager
def _uninterrupted() -> Iterator[None]:
    """Ctrl-C counts once the block is over. Only the main thread hears it, and only there can it be put off."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    heard: list[Any] = []
    before = signal.signal(signal.SIGINT, lambda *signal_and_frame: heard.append(signal_and_frame))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if heard and callable(before):
            before(*heard[0])
