"""Compiled models as folders: shared libraries, packed weights, tokenizer, and a manifest that all of it is checked against.

Loading needs TVM's runtime and no compiler. Weights are mapped into memory: programs read them where they lie.
"""

import contextlib
import dataclasses
import hashlib
import importlib.metadata
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import xformer
from xformer import cache, checkpoint, models, params, storage
from xformer import tokenizer as tokenizers
from xformer.config import Config
from xformer.frontends.tvm import MANIFEST, processor, runtime, weights
from xformer.frontends.tvm.model import CompiledModel
from xformer.frontends.tvm.processor import Processor
from xformer.frontends.tvm.program import Output, Program
from xformer.frontends.tvm.weights import Layout, PackedWeight
from xformer.params import Spec
from xformer.precision import PRECISIONS, Precision

FORMAT = 2  # 1: caches were fp32 in every precision
WEIGHTS = "weights.safetensors"


# -------------------------------------------------------------------------------------------------------------------- out
def save(model: CompiledModel, folder: str | Path) -> None:
    """Write a compiled model's programs with all that they need. An artifact that is there already is replaced."""
    folder = Path(folder)
    programs = {
        f"{name}-{place}.so": (name, program)
        for name, function in model.compiled.items()
        for place, program in enumerate(function.programs.values())
    }
    if not programs:
        raise ValueError("nothing is compiled yet: name the shapes to compile for, or call the model first")
    stored, parameters = _parameters(model.params)
    texts = {} if model.tokenizer is None else model.tokenizer.files()
    former = _named(folder)
    folder.mkdir(parents=True, exist_ok=True)
    names = [*programs, *texts, WEIGHTS, MANIFEST]  # the manifest last: until it is there, the folder is not taken for whole
    with storage.replacing(*(folder / name for name in names)) as paths:
        files = dict(zip(names, paths, strict=True))
        for name, (_, program) in programs.items():
            program.export(files[name])
        for name, text in texts.items():
            files[name].write_text(text, encoding="utf-8")
        weights.write(files[WEIGHTS], stored)
        manifest = {
            "format": FORMAT,
            "versions": {"xformer": xformer.__version__, "apache-tvm": importlib.metadata.version("apache-tvm")},
            "config": dataclasses.asdict(model.config),
            "precision": model.precision.name,
            "processor": dataclasses.asdict(model.processor),
            "parameters": parameters,
            "programs": [{"function": name, "library": file, **_described(program)} for file, (name, program) in programs.items()],
            "files": {name: _facts(path) for name, path in files.items() if name != MANIFEST},
        }
        files[MANIFEST].write_text(json.dumps({**manifest, "digest": _digest(manifest)}, indent=1) + "\n", encoding="utf-8")
    for name in former - set(names):
        (folder / name).unlink(missing_ok=True)


def _parameters(tree: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """What is to be stored, each tensor once under its first path, and for each path of the tree where it is stored."""
    first: dict[int, str] = {}
    stored, parameters = {}, {}
    for path, leaf in params.items(tree):
        packed = isinstance(leaf, PackedWeight)
        tensor = leaf.tensor if packed else leaf
        name = first.setdefault(id(tensor), path)
        stored[name] = runtime.to_numpy(tensor)
        parameters[path] = {"stored": name, **({"shape": leaf.shape, "layout": dataclasses.astuple(leaf.layout)} if packed else {})}
    return stored, parameters


def _described(program: Program) -> dict[str, Any]:
    """A program's arguments (after the parameters), inputs and result, as JSON has them."""
    arguments = {path: (spec.shape, spec.dtype) for path, spec in params.items(program.arguments[1:])}
    result = {path: dataclasses.astuple(output) for path, output in params.items(program.result)}
    return {"arguments": arguments, "inputs": program.inputs, "result": result}


def _named(folder: Path) -> set[str]:
    """The files of an artifact that is in the folder already: none where its manifest cannot be read."""
    try:
        return set(_manifest(folder)["files"])
    except (ValueError, OSError):
        return set()


# --------------------------------------------------------------------------------------------------------------------- in
def load(folder: str | Path) -> CompiledModel:
    """As `xformer.frontends.tvm.load` says."""
    folder = Path(folder)
    with _naming(folder):
        manifest = _manifest(folder)
        for name, facts in manifest["files"].items():
            _check(folder, name, facts)
        for name in (WEIGHTS, *(entry["library"] for entry in manifest["programs"])):  # nothing is loaded that was not checked
            if name not in manifest["files"]:
                raise ValueError(f"{name!r} is used, but is none of its files")
        made_for = Processor(**{**manifest["processor"], "features": tuple(manifest["processor"]["features"])})
        processor.require(made_for, str(folder))
        config, precision = Config(**manifest["config"]), PRECISIONS[manifest["precision"]]
        tokenizer = tokenizers.load(folder, config.positions) if tokenizers.FILE in manifest["files"] else None
        tree = _tree(folder, manifest["parameters"], config, precision)
        specs = params.map(lambda path, leaf: weights.spec(leaf), tree)
        programs = [(entry["function"], _program(folder, entry, specs, config, precision)) for entry in manifest["programs"]]
        return CompiledModel(config, tree, precision, tokenizer, made_for, None, programs)


@contextlib.contextmanager
def _naming(folder: Path) -> Iterator[None]:
    """Raise ValueError, naming the manifest, for all that a manifest may lack or have of another kind, its digest being right."""
    try:
        yield
    except (FileNotFoundError, PermissionError):
        raise
    except (ArithmeticError, AttributeError, LookupError, OSError, RuntimeError, TypeError, ValueError) as error:
        if isinstance(error, ValueError) and str(folder) in str(error):
            raise
        kind = "" if isinstance(error, ValueError) else f"{type(error).__name__}: "
        raise ValueError(f"{folder / MANIFEST}: not a manifest of this format ({kind}{error})") from error


def _manifest(folder: Path) -> dict[str, Any]:
    """A manifest that is as it was written, for the TVM that is installed."""
    manifest = checkpoint.read_json(folder / MANIFEST)
    if manifest.get("format") != FORMAT:
        raise ValueError(f"{folder / MANIFEST}: a compiled model of format {manifest.get('format')!r}; known: {FORMAT}")
    if manifest.pop("digest", None) != _digest(manifest):
        raise ValueError(f"{folder / MANIFEST} is not as it was written: its digest differs")
    made, here = manifest["versions"]["apache-tvm"], importlib.metadata.version("apache-tvm")
    if made != here:
        raise ValueError(f"{folder} was compiled by apache-tvm {made}; {here} is installed: compile it again")
    return manifest


def _check(folder: Path, name: str, facts: dict[str, Any]) -> None:
    path = folder / name
    if Path(name).name != name:
        raise ValueError(f"{folder / MANIFEST} names {name!r}, which is not a file of its folder")
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file, but {MANIFEST} names it")
    if path.stat().st_size != facts["bytes"]:
        raise ValueError(f"{path} has {path.stat().st_size} bytes; {MANIFEST} says {facts['bytes']}")
    if _facts(path) != facts:
        raise ValueError(f"{path} is not as it was written: its hash differs from the one in {MANIFEST}")


def _tree(folder: Path, parameters: dict[str, Any], config: Config, precision: Precision) -> Any:
    """The parameters as tensors over the mapped file; one that stands in two places is one tensor."""
    if config.layers > len(parameters):  # before a tree of that many layers is made
        raise ValueError(f"{config.layers} layers, but only {len(parameters)} parameters")
    tensors = {name: runtime.tensor(array) for name, array in storage.read(folder / WEIGHTS, private=True).items()}

    def leaf(path: str, wanted: Spec) -> Any:
        entry = parameters[path]
        tensor = tensors[entry["stored"]]
        if "layout" not in entry:
            _fit(path, tensor, wanted.shape or (1,), wanted.dtype)
            return tensor
        layout = Layout(*entry["layout"])
        _fit(path, tensor, layout.shape(*wanted.shape), layout.stored(wanted.dtype))
        return PackedWeight(tensor, wanted.shape, layout)

    return params.map(leaf, models.find(config.model_type).prepare(xformer.spec(config), precision.stored))


def _fit(path: str, tensor: Any, shape: tuple[int, ...], dtype: str) -> None:
    found, stored = tuple(int(extent) for extent in tensor.shape), str(tensor.dtype)
    if (found, stored) != (shape, dtype):
        raise ValueError(f"{path} is {stored} of shape {found}; the config asks for {dtype} of shape {shape}")


def _program(folder: Path, entry: dict[str, Any], specs: Any, config: Config, precision: Precision) -> Program:
    arguments = {path: Spec(tuple(shape), dtype) for path, (shape, dtype) in entry["arguments"].items()}
    result = {path: Output(tuple(shape), place, argument) for path, (shape, place, argument) in entry["result"].items()}
    given = (specs, *_assembled(arguments, config, precision))
    return Program.load(folder / entry["library"], given, entry["inputs"], _assembled(result, config, precision))


def _assembled(leaves: dict[str, Any], config: Config, precision: Precision) -> Any:
    """The tree of these leaves: one alone, or a tuple of leaves and caches."""
    if "" in leaves:
        return leaves[""]
    places = dict.fromkeys(path.split(".")[0] for path in leaves)
    memory = cache.spec(config, 1, 1, precision)
    return params.map(lambda path, _: leaves[path], tuple(Spec(()) if place in leaves else memory for place in places))


def _facts(path: Path) -> dict[str, Any]:
    with path.open("rb") as file:
        return {"bytes": path.stat().st_size, "sha256": hashlib.file_digest(file, "sha256").hexdigest()}


def _digest(manifest: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()
