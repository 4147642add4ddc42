"""Texts that every Python brings along, so that the examples need no download: the sources of its standard library."""

import ast
import inspect
import re
import sysconfig
from pathlib import Path

import numpy as np

LIBRARY = Path(sysconfig.get_paths()["stdlib"])


def sources(limit: int | None = None) -> list[Path]:
    """The library's modules in alphabetical order, the first `limit` of them."""
    return sorted(LIBRARY.glob("*.py"))[:limit]


def held_out(name: str) -> bool:
    """Whether something of this name is kept from training: one in eight, by its letters."""
    return sum(name.encode()) % 8 == 0


def characters(kept: bool, limit: int | None = None) -> np.ndarray:
    """The bytes of the modules that are kept from training, or of the others."""
    return np.concatenate([np.frombuffer(path.read_bytes(), np.uint8) for path in sources(limit) if held_out(path.stem) == kept])


def described(kept: bool, limit: int | None = None) -> list[tuple[str, str]]:
    """Functions and classes: the words of the name and of the module's, and the first sentence of what is said of it."""
    pairs = {}
    for path in sources(limit):
        for node in ast.walk(ast.parse(path.read_bytes())):
            if isinstance(node, ast.FunctionDef | ast.ClassDef) and (text := ast.get_docstring(node)):
                sentence = re.split(r"\.\s|\n\n", inspect.cleandoc(text))[0].replace("\n", " ")
                words = " ".join(re.findall(r"[A-Z]?[a-z]+|[A-Z]+", f"{path.stem} {node.name}")).lower()
                if 20 < len(sentence) < 200 and held_out(words) == kept:
                    pairs.setdefault(sentence, (words, sentence))
    return list({words: (words, sentence) for words, sentence in pairs.values()}.values())
