"""A model as a folder: its programs for CPU, CUDA and TPU, of any batch and length, beside the weights that they read.

Programs and weights are one safetensors file, beside the tokenizer's files. Its metadata has "format" ("xformer-jax 2"),
"precision", "config" and "leaves": JSON, the last the names of the tensors that every program takes first, in this order;
and "digest", the SHA-256 of all else, which files of the first version lack. A tensor "program.NAME" holds the bytes that
`jax.export.deserialize` reads; what each program takes after the leaves and returns is in PROGRAMS. A program whose trees
are caches takes and returns the leaves of one: every layer's keys, every layer's values, real, position.
"""

import dataclasses
import functools
import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import export

from xformer import backends, cache, params, storage
from xformer import tokenizer as tokenizers
from xformer.config import Config
from xformer.frontends import SAVED
from xformer.frontends.jax import loop, trees
from xformer.frontends.jax.model import LENGTHS, Compiled
from xformer.model import Model
from xformer.precision import FP32, INT32, find

FORMAT, PLATFORMS = "xformer-jax 3", ("cpu", "cuda", "tpu")
UNSIGNED, EARLIER = "xformer-jax 1", "xformer-jax 2"  # without a digest; both with programs whose caches are fp32 in every precision
EXPORTED = SAVED["jax"]
PROGRAMS = {  # name: what it takes after the leaves; b batch, t tokens, s cache, v vocabulary
    "forward": ("tokens", "mask"),  # int32 (b, t), bool (b, t) -> (b, t, d) of an encoder, (b, t, v) of a decoder
    "embed": ("tokens", "mask"),  # -> (b, d)
    "pool": ("hidden", "mask"),  # (b, t, d), (b, t) -> (b, d)
    "logits": ("hidden",),  # (b, t, d) -> (b, t, v)
    "prefill": ("tokens", "mask", "memory"),  # -> (b, v), cache
    "decode": ("ids", "memory"),  # int32 (b), cache -> (b, v), cache
    "greedy": ("tokens", "mask", "ending", "count", "room"),  # .. bool (v), int32, bool (s) -> int32 (b, s), bool (b), int32
}


def save(model: Model, folder: str | Path) -> None:
    """Write `model` to `folder`. Any namespace will do; a write that fails leaves old files whole.

    Raises ValueError for INT32: the range of its operands depends on the length, which a program of any length does not know.
    """
    if model.precision == INT32:
        raise ValueError("int32 cannot be exported for any length; fp32, bf16 and int8 can")
    folder = Path(folder)
    tree = trees.place(model.params)
    names = _names(tree)
    tensors = {name: backends.to_numpy(leaf) for name, leaf in zip(names, jax.tree.leaves(tree), strict=True)}
    for name, function in _functions(model).items():
        tensors[f"program.{name}"] = np.frombuffer(_exported(name, function, tree, model), np.uint8)
    config = json.dumps(dataclasses.asdict(model.config))
    metadata = {"format": FORMAT, "precision": model.precision.name, "config": config, "leaves": json.dumps(names)}
    metadata["digest"] = _digest(metadata, tensors)
    texts = {} if model.tokenizer is None else model.tokenizer.files()
    folder.mkdir(parents=True, exist_ok=True)
    with storage.replacing(*(folder / name for name in texts), folder / EXPORTED) as (*others, exported):
        for path, text in zip(others, texts.values(), strict=True):
            path.write_text(text, encoding="utf-8")
        storage.write(exported, tensors, metadata)


def load(folder: str | Path, device: Any = None) -> "Exported":
    """The model in a folder that `save` wrote, or in its file of programs alone, run by them; it needs no file of a model.

    `device` is a name that `xformer doctor` lists, or a device of JAX. Raises ValueError when the file is corrupt or not one
    of these.
    """
    from safetensors import safe_open

    folder = Path(folder)
    path = folder / EXPORTED if folder.is_dir() else folder
    tensors = storage.read(path)
    with safe_open(path, framework="numpy") as file:
        metadata = file.metadata() or {}
    written = metadata.pop("digest", None)
    if metadata.get("format") not in (FORMAT, EARLIER, UNSIGNED):
        raise ValueError(f"{path}: format {metadata.get('format')!r}, expected {FORMAT!r}")
    if metadata["format"] != FORMAT and metadata["precision"] != FP32.name and "program.decode" in tensors:
        raise ValueError(f"{path}: its cache is fp32, that of {metadata['precision']} is narrow from {FORMAT!r} on: compile it again")
    if metadata["format"] != UNSIGNED and written != _digest(metadata, tensors):
        raise ValueError(f"{path} is not as it was written: its digest differs")
    device = backends.find_device(jnp, device)
    try:
        config = Config(**json.loads(metadata["config"]))
        names = json.loads(metadata["leaves"])
        if config.layers > len(names):  # before a tree of that many layers is made
            raise ValueError(f"{config.layers} layers, but only {len(names)} weights")
        leaves = tuple(backends.from_numpy(jnp, tensors[name], device) for name in names)
        programs = {
            name.removeprefix("program."): export.deserialize(bytearray(tensor))
            for name, tensor in tensors.items()
            if name.startswith("program.")
        }
        precision = find(metadata["precision"])
    except Exception as error:  # the reader of a program's bytes raises many kinds
        raise ValueError(f"{path}: not a file of exported programs ({type(error).__name__}: {error})") from error
    tokenizer = tokenizers.load(path.parent, config.positions)
    return Exported(Model(config, leaves, precision, jnp, tokenizer, device, functions=_functions_of(programs)))


class Exported(Compiled):
    """What `load` returns: a model whose functions are its file's programs."""

    def __init__(self, model: Model):
        super().__init__(model, LENGTHS)

    def __repr__(self) -> str:
        return f"<{self.config.model_type}: exported, {params.count(self.params) / 1e6:.1f} M numbers, {self.precision.name}>"

    def _greedy(self, *arrays, capacity):
        return self._run("greedy", *arrays, self._array(np.zeros(capacity, bool)))


def _digest(metadata: dict[str, str], tensors: dict[str, np.ndarray]) -> str:
    """The SHA-256 of everything in a file: weights too, since a program may not fit others."""
    found = hashlib.sha256(json.dumps(metadata, sort_keys=True).encode())
    for name in sorted(tensors):
        array = np.ascontiguousarray(tensors[name])
        found.update(f"{name} {array.dtype.name} {array.shape}".encode())
        found.update(array.reshape(-1).view(np.uint8).data)
    return found.hexdigest()


def _functions_of(programs):
    return SimpleNamespace(**{name: _callable(name, program) for name, program in programs.items()})


def _functions(model) -> dict[str, Callable]:
    """The programs of a model as functions of its parameters and arrays."""
    config, options = model.config, {"config": model.config, "precision": model.precision}
    absent = {name for name, there in (("pool", config.pooler), ("logits", config.head)) if not there or hasattr(model.functions, "decode")}
    found: dict[str, Callable] = {
        name: functools.partial(getattr(model.functions, name), **options)
        for name in PROGRAMS
        if hasattr(model.functions, name) and name not in absent
    }
    if hasattr(model.functions, "decode"):
        found["greedy"] = lambda p, *arrays: loop.greedy(p, *arrays[:-1], capacity=arrays[-1].shape[0], **options)
    return found


def _exported(name, function, tree, model) -> bytearray:
    structure = jax.tree.structure(tree)
    arguments = _arguments(model.config, model.precision, PROGRAMS[name])
    memory = _structure(model.config, model.precision)

    def flat(leaves, *arrays):
        *arrays, last = arrays
        last = jax.tree.unflatten(memory, last) if isinstance(last, list) else last
        return _flat_caches(function(jax.tree.unflatten(structure, leaves), *arrays, last))

    shapes = [jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) for leaf in jax.tree.leaves(tree)]
    return export.export(jax.jit(flat), platforms=PLATFORMS)(shapes, *arguments.values()).serialize()


def _arguments(config, precision, taken) -> dict[str, Any]:
    """The shapes of what programs take, in the symbols b, t and s, constrained for a program that takes `taken`."""
    present = {letter for letter, names in (("t", {"tokens", "mask", "hidden"}), ("s", {"memory", "room"})) if names & set(taken)}
    constraints = [f"{letter} <= {config.positions}" for letter in sorted(present)] + ["t <= s"] * (len(present) == 2)
    b, t, s = export.symbolic_shape("b, t, s", constraints=constraints)
    shape = jax.ShapeDtypeStruct
    found: dict[str, Any] = {
        "tokens": shape((b, t), jnp.int32),
        "mask": shape((b, t), jnp.bool),
        "hidden": shape((b, t, config.width), jnp.float32),
        "ids": shape((b,), jnp.int32),
        "ending": shape((config.vocab_size,), jnp.bool),
        "count": shape((), jnp.int32),
        "room": shape((s,), jnp.bool),
    }
    if "memory" in taken:
        empty = jax.eval_shape(lambda rows: cache.empty(jnp, config, *rows.shape, precision=precision), shape((b, s), jnp.bool))
        found["memory"] = jax.tree.leaves(empty)
    return {name: found[name] for name in taken}


def _flat_caches(result):
    return (
        tuple(jax.tree.leaves(part) if isinstance(part, cache.Cache) else part for part in result) if isinstance(result, tuple) else result
    )


def _callable(name, program):
    """The program with the signature of the function that it was made from."""

    def run(p, *arrays, config, precision):
        *arrays, last = arrays
        last = jax.tree.leaves(last) if isinstance(last, cache.Cache) else last
        result = program.call(list(p), *arrays, last)
        if name not in ("prefill", "decode"):
            return result
        return result[0], jax.tree.unflatten(_structure(config, precision), result[1])

    return run


def _structure(config, precision):
    return jax.tree.structure(jax.eval_shape(lambda: cache.empty(jnp, config, 1, 1, precision=precision)))


def _names(tree) -> list[str]:
    """A name for each leaf; a leaf in two places is stored once."""
    first: dict[int, str] = {}
    return [first.setdefault(id(leaf), path) for path, leaf in params.items(tree)]
