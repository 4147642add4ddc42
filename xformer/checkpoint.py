"""Hugging Face folders in and out: config.json beside model.safetensors, through the tables of the model's file.

A folder written for another precision than FP32 holds prepared weights under their own paths instead, and says so in an
entry "xformer" of its config.json.
"""

import fnmatch
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from xformer import models, names, params, storage
from xformer.config import Config
from xformer.precision import FP32, PRECISIONS, Precision

FORMAT = 1  # of prepared weights
WEIGHTS, INDEX, PICKLED = "model.safetensors", "model.safetensors.index.json", "pytorch_model.bin"


@dataclass(frozen=True)
class Checkpoint:
    """What a folder holds: the leaves are NumPy arrays, views of the mapped file. `precision`: what they are prepared for."""

    config: Config
    tree: Any
    precision: Precision | None


def read(folder: str | Path) -> Checkpoint:
    """The checkpoint in `folder`.

    Raises FileNotFoundError when a file is not there, and ValueError for an unsupported model or option, a corrupt file,
    or weights that do not fit the config: every missing, unexpected, mis-shaped or not finite tensor in one message.
    """
    folder = Path(folder)
    path = folder / "config.json"
    options = read_json(path)
    try:
        model = models.find(str(options.get("model_type")))
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    tensors = _tensors(folder)
    prepared = options.get("xformer")
    if prepared is None:
        tensors = _normalised(tensors, model, tied=options.get("tie_word_embeddings", True))
        present = {field: name in tensors for field, name in model.OPTIONAL.items()}
        precision, table = None, model.NAMES
        config = _config(path, options, model, present, len(tensors))
        spec = model.spec(config)
    else:
        (precision, present), table = _prepared(prepared, model, path), None
        config = _config(path, options, model, present, len(tensors))
        spec = model.prepare(model.spec(config), precision.stored)
    tree, problems = names.gather(tensors, spec, table, exact=table is None)
    if problems:
        raise ValueError(f"{folder}: {len(problems)} tensors do not fit the config:\n  " + "\n  ".join(problems))
    return Checkpoint(config, tree, precision)


def write(folder: str | Path, checkpoint: Checkpoint, extra: Mapping[str, str] | None = None) -> None:
    """Write `checkpoint`, and the texts `extra` by file name, into `folder`. A write that fails leaves the old files whole.

    Raises ValueError when the folder holds another model: its other files would be taken for parts of this one.
    """
    folder, config = Path(folder), checkpoint.config
    folder.mkdir(parents=True, exist_ok=True)
    model = models.find(config.model_type)
    options: dict[str, Any] = {"model_type": config.model_type, "architectures": [model.architecture(config)], "dtype": "float32"}
    options |= {key[0]: getattr(config, field) for field, key in model.CONFIG.items()}
    _refuse_another(folder, options)
    table = model.NAMES
    if checkpoint.precision not in (None, FP32):
        present = {field: getattr(config, field) for field in model.OPTIONAL}
        options["xformer"] = {"format": FORMAT, "precision": checkpoint.precision.name, **present}
        table = None
    tree = checkpoint.tree if table is None or not config.tied else _untied(checkpoint.tree, model.spec(config))
    tensors = names.scatter(tree, table)
    if not config.tied:
        tensors |= {name: tensors[other] for name, other in model.UNTIED.items() if other in tensors}
    texts = {"config.json": json.dumps(options, indent=2) + "\n", **(extra or {})}
    with storage.replacing(folder / WEIGHTS, *(folder / name for name in texts)) as (weights, *rest):
        for path, text in zip(rest, texts.values(), strict=True):
            path.write_text(text, encoding="utf-8")
        storage.write(weights, tensors, {"format": "pt"})


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file. Raises FileNotFoundError, or ValueError when it is not one."""
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file")
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}: not JSON ({error})") from error
    if not isinstance(value, dict):
        raise ValueError(f"{path}: expected a JSON object, got {type(value).__name__}")
    return value


def _refuse_another(folder: Path, options: dict[str, Any]) -> None:
    """Raise ValueError when a model of other sizes is there."""
    there = read_json(folder / "config.json") if (folder / "config.json").is_file() else options
    sizes = [key for key, value in options.items() if key == "model_type" or type(value) is int]
    for key in sizes:
        if key in there and there[key] not in (options[key], None):
            raise ValueError(f"{folder} holds another model, with {key} = {there[key]!r} and not {options[key]!r}: save to another folder")


def _config(path: Path, options, model, present, tensors: int) -> Config:
    for key, allowed in model.ONLY.items():
        if key in options and options[key] not in allowed:
            raise ValueError(f"{path}: {key} = {options[key]!r} is not supported; supported: {', '.join(map(repr, allowed))}")
    fields = {}
    for field, (key, *default) in model.CONFIG.items():
        if key not in options and not default:
            raise ValueError(f"{path}: {key} is missing")
        fields[field] = options.get(key, *default)
    if fields["ffn"] is None and type(fields["width"]) is int:
        fields["ffn"] = 4 * fields["width"]
    if isinstance(fields.get("eos_token"), list):
        raise ValueError(f"{path}: eos_token_id = {fields['eos_token']!r} is not supported; supported: one integer or null")
    try:
        config = Config(options["model_type"], **fields, **present)
    except ValueError as error:
        named = [f"{field} is {key}" for field, (key, *_) in model.CONFIG.items() if field in str(error).split()]
        raise ValueError(f"{path}: {str(error).removeprefix('config: ')} ({', '.join(named)})") from error
    if config.layers > tensors:  # before a tree of that many layers is made
        raise ValueError(f"{path}: {model.CONFIG['layers'][0]} = {config.layers}, but there are only {tensors} tensors")
    return config


def _prepared(entry, model, path: Path) -> tuple[Precision, dict[str, bool]]:
    if not isinstance(entry, dict) or entry.get("format") != FORMAT or str(entry.get("precision")) not in PRECISIONS:
        known = f"format {FORMAT}, precision {', '.join(PRECISIONS)}"
        raise ValueError(f"{path}: prepared weights of an unknown kind: {entry}; known: {known}")
    return PRECISIONS[entry["precision"]], {field: bool(entry.get(field)) for field in model.OPTIONAL}


def _normalised(tensors, model, tied) -> dict[str, np.ndarray]:
    """Without prefixes, old names, buffers, and the second copy of a tied table."""
    result = {}
    for name, tensor in tensors.items():
        name = name.removeprefix(model.PREFIX)
        for old, new in model.RENAMED.items():
            name = name.removesuffix(old) + new if name.endswith(old) else name
        if any(fnmatch.fnmatchcase(name, pattern) for pattern in model.IGNORED) or (tied and name in (model.TIED, *model.UNTIED)):
            continue
        result[name] = tensor
    for name, other in model.UNTIED.items():
        if name in result:
            result[other] = result.pop(name)
    return result


def _untied(tree, spec):
    """Without the table's second place in the tree, where the spec has none."""
    wanted = params.leaves(spec)
    return params.map(lambda path, leaf: leaf if path in wanted else None, tree)


def _tensors(folder: Path) -> dict[str, np.ndarray]:
    if (folder / WEIGHTS).is_file():
        return storage.read(folder / WEIGHTS)
    if (folder / INDEX).is_file():
        return _sharded(folder)
    if (folder / PICKLED).is_file():
        return _unpickled(folder / PICKLED)
    raise FileNotFoundError(f"{folder}: none of {WEIGHTS}, {INDEX}, {PICKLED}")


def _sharded(folder: Path) -> dict[str, np.ndarray]:
    """Each tensor out of the shard that the index names for it; the index must name every one, and no other."""
    places = read_json(folder / INDEX).get("weight_map")
    if not isinstance(places, dict) or not all(isinstance(shard, str) for shard in places.values()):
        raise ValueError(f"{folder / INDEX}: weight_map must be an object of names of files")
    shards = {}
    for shard in sorted(set(places.values())):
        if Path(shard).name != shard:
            raise ValueError(f"{folder / INDEX}: {shard!r} is not the name of a file in this folder")
        if not (folder / shard).is_file():
            raise FileNotFoundError(f"{folder / shard}: no such file, but {INDEX} names it")
        shards[shard] = storage.read(folder / shard)
    held = {(name, shard) for shard, tensors in shards.items() for name in tensors}
    if held != places.items():
        name, shard = min(held ^ set(places.items()))
        problem = "holds it too, or alone" if (name, shard) in held else "does not hold it"
        raise ValueError(f"{folder / INDEX}: {name} is in {places.get(name, 'no shard')} by the index, but {shard} {problem}")
    return {name: shards[shard][name] for name, shard in places.items()}


def _unpickled(path: Path) -> dict[str, np.ndarray]:
    """Only as weights: a pickle can run code, and torch's weights-only reader is the one that does not."""
    try:
        import torch
    except ImportError as error:
        raise ImportError(f"{path} needs `pip install torch`; model.safetensors does not") from error
    try:
        tensors = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
        return {name: (tensor.float() if tensor.dtype == torch.bfloat16 else tensor).detach().numpy() for name, tensor in tensors.items()}
    except Exception as error:  # torch raises many kinds, and what it reads may be something else than tensors by name
        raise ValueError(f"{path}: not a file of weights alone ({' '.join(str(error).splitlines()[:1])})") from error
