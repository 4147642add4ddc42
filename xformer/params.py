"""Parameter trees: frozen dataclasses and tuples, with arrays (or `Spec`s, which need no memory) as leaves.

A path names a leaf: "layers.0.attention.query.weight". None stands for a part that a model does without.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, dataclass_transform

NODES: list[type] = []
_listeners: list[Callable[[type], None]] = []


@dataclass_transform(frozen_default=True, eq_default=False)
def node(cls: type) -> type:
    """Make `cls` a frozen dataclass that holds a part of a parameter tree. It compares by identity, as arrays do."""
    cls = dataclasses.dataclass(frozen=True, eq=False)(cls)
    NODES.append(cls)
    for listener in _listeners:
        listener(cls)
    return cls


def on_node(listener: Callable[[type], None]) -> None:
    """Call `listener` with every node class there is and with each that is defined later (a frontend registers them)."""
    _listeners.append(listener)
    for cls in NODES:
        listener(cls)


@dataclasses.dataclass(frozen=True)
class Spec:
    """A leaf before it has memory: what an initialiser, a checkpoint reader and a tracer need to know of it."""

    shape: tuple[int, ...]
    dtype: str = "float32"


def items(tree: Any, path: str = "") -> list[tuple[str, Any]]:
    """Every leaf with its path, in field order."""
    found: list[tuple[str, Any]] = []
    _collect(tree, path, found)
    return found


def _collect(tree: Any, path: str, found: list[tuple[str, Any]]) -> None:
    """Append to one list: a step of decoding walks its cache, and nested generators would take longer than a small kernel."""
    if not _is_inner(tree):
        found.append((path, tree))
        return
    for name, child in _children(tree):
        _collect(child, f"{path}.{name}" if path else name, found)


def leaves(tree: Any) -> dict[str, Any]:
    """The leaves by path."""
    return dict(items(tree))


def map(function: Callable[[str, Any], Any], tree: Any, at: tuple[type, ...] = (), path: str = "") -> Any:
    """The tree with each leaf (and each node of a class in `at`) replaced by function(path, leaf)."""
    if isinstance(tree, at) or not _is_inner(tree):
        return function(path, tree)
    children = {name: map(function, child, at, f"{path}.{name}" if path else name) for name, child in _children(tree)}
    if tree is None:
        return None
    return tuple(children.values()) if isinstance(tree, tuple) else type(tree)(**children)


def spec(tree: Any) -> Any:
    """The tree with a Spec for each array."""
    return map(lambda path, leaf: Spec(tuple(leaf.shape), str(leaf.dtype).rsplit(".", 1)[-1]), tree)


def count(tree: Any) -> int:
    """How many numbers the tree holds; a leaf that stands in two places counts once."""
    distinct = {id(leaf): leaf for _, leaf in items(tree)}
    total = 0
    for leaf in distinct.values():
        size = 1
        for extent in leaf.shape:
            size *= extent
        total += size
    return total


def _is_inner(tree):
    return tree is None or isinstance(tree, tuple) or type(tree) in NODES


@functools.cache
def _fields(cls: type) -> tuple[str, ...]:
    return tuple(field.name for field in dataclasses.fields(cls))


def _children(tree):
    if isinstance(tree, tuple):
        return [(str(index), child) for index, child in enumerate(tree)]
    if type(tree) in NODES:
        return [(name, getattr(tree, name)) for name in _fields(type(tree))]
    return []
