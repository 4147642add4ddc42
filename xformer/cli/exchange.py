"""Texts in, results out: lines, JSON, and files that are replaced whole or not at all."""

import json
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from xformer import checks, storage


@dataclass(frozen=True)
class Vectors:
    """What an encoder made of texts: `vectors` is (n, d)."""

    namespace: str
    precision: str
    texts: list[str]
    vectors: np.ndarray


@dataclass(frozen=True)
class Continuations:
    """What a decoder made of prompts."""

    namespace: str
    precision: str
    prompts: list[str]
    texts: list[str]


def read(texts: list[str] | None, file: Path | None) -> list[str]:
    """The arguments, or else one text a line of `file` ("-" is standard input) or of standard input.

    Raises ValueError when there is no text, when both are given, or when the bytes are not UTF-8.
    """
    if texts and file:
        raise ValueError("texts are given as arguments and with --file; one of them, please")
    if texts:
        return texts
    standard = file is None or str(file) == "-"
    if file is None and sys.stdin.isatty():
        raise ValueError("no texts: give them as arguments, with --file, or on standard input")
    name, content = ("standard input", sys.stdin.buffer.read()) if standard else (str(file), Path(str(file)).read_bytes())
    if not content:
        raise ValueError(f"no texts: {name} is empty")
    try:
        lines = content.decode("utf-8-sig").removesuffix("\n").split("\n")
    except UnicodeDecodeError as error:
        raise ValueError(f"{name} is not UTF-8: {error.reason} at byte {error.start}") from error
    return checks.texts([line.removesuffix("\r") for line in lines])


def to_json(result: Vectors | Continuations) -> str:
    """An object with the fields of `result`; nine digits are enough to give the same fp32 numbers back."""
    values = {field.name: getattr(result, field.name) for field in fields(result)}
    if isinstance(result, Vectors):
        values["vectors"] = [[float(f"{number:.9g}") for number in row] for row in result.vectors]
    return json.dumps(values, ensure_ascii=False, allow_nan=False)


def check(path: Path, kind: type) -> None:
    """Raise ValueError or an OSError, before the work, when a result of this kind cannot be written to `path`."""
    if path.suffix not in WRITERS[kind]:
        raise ValueError(f"{path}: {kind.__name__.lower()} are written as {', '.join(WRITERS[kind])}")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"{path.parent}: no such folder")
    if path.is_dir() or not os.access(path.parent, os.W_OK):
        raise PermissionError(f"{path} cannot be written")


def write(path: Path, result: Vectors | Continuations) -> None:
    """Write a result in the format that the suffix names."""
    try:
        with storage.replacing(path) as (temporary,), temporary.open("wb") as file:
            WRITERS[type(result)][path.suffix](file, result)
    except OSError as error:
        raise OSError(f"{path}: {error.strerror or error}") from error


def _json(file: BinaryIO, result: Any) -> None:
    file.write(f"{to_json(result)}\n".encode())


def _npy(file: BinaryIO, result: Any) -> None:
    np.save(file, result.vectors)


def _npz(file: BinaryIO, result: Any) -> None:
    np.savez(file, vectors=result.vectors, texts=np.array(result.texts))


def _lines(file: BinaryIO, result: Any) -> None:
    file.write("".join(f"{text}\n" for text in result.texts).encode())


WRITERS: dict[type, dict[str, Callable[[BinaryIO, Any], None]]] = {
    Vectors: {".npy": _npy, ".npz": _npz, ".json": _json},
    Continuations: {".txt": _lines, ".json": _json},
}
