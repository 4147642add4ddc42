"""safetensors files: mapped into memory when read, replaced whole or not at all when written."""

import contextlib
import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

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
    Raises ValueError when the file is truncated, corrupt, or holds a dtype that NumPy has not.
    """
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="numpy"):  # checks the header, every offset, and the file's length against them
            pass
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
    return {name: _view(data, 8 + length, entry) for name, entry in header.items()}


def _view(data, base, entry):
    start, stop = entry["data_offsets"]
    dtype, shape = DTYPES[entry["dtype"]], tuple(entry["shape"])
    return np.asarray(data[base + start : base + stop]).view(dtype).reshape(shape)


def write(path: Path, tensors: Mapping[str, np.ndarray], metadata: Mapping[str, str] | None = None) -> None:
    """Write a safetensors file at `path`, which may be the temporary one of `replacing`."""
    from safetensors.numpy import save_file

    save_file({name: np.ascontiguousarray(tensor) for name, tensor in tensors.items()}, path, dict(metadata or {}))


@contextlib.contextmanager
def replacing(*paths: Path) -> Iterator[list[Path]]:
    """Temporary paths beside `paths`; they take the places of `paths` once the block has ended well, and vanish otherwise."""
    temporary: list[Path] = []
    try:
        for path in paths:
            handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
            os.close(handle)
            temporary.append(Path(name))
        yield temporary
        for new in temporary:
            with new.open("rb") as file:
                os.fsync(file.fileno())
            new.chmod(0o644)
        for new, path in zip(temporary, paths, strict=True):
            os.replace(new, path)
    finally:
        for new in temporary:
            new.unlink(missing_ok=True)
