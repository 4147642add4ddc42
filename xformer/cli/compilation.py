"""What the command line does with `xformer.frontends`: compile a model, now or to a folder, and explain what its functions become."""

import dataclasses
import itertools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import xformer
from xformer import backends, checkpoint
from xformer import config as presets
from xformer import precision as precisions
from xformer.cli import terminal
from xformer.config import Config
from xformer.frontends import SAVED, tvm
from xformer.model import Model

LENGTH = 128  # where none is asked for


def frontend_of(folder: Path) -> str | None:
    """Which frontend compiled the model in a folder; None where it is not a compiled one."""
    return next((frontend for frontend, name in SAVED.items() if (folder / name).is_file()), None)


def load(folder: Path, asked: dict[str, Any]) -> Model:
    """A compiled model. Raises ValueError for options that ask for another namespace, precision or device than it has."""
    if frontend_of(folder) == "jax":
        from xformer.frontends import jax

        model: Model = jax.load(folder, asked["device"])
        own, made_for = {"namespace": "jax", "device": asked["device"]}, "JAX"
    else:
        model = compiled_model = tvm.load(folder)
        own, made_for = {"namespace": "numpy", "device": None}, compiled_model.processor.name
    for name, value in {**own, "precision": model.precision.name}.items():
        if asked[name] not in (None, value):
            raise ValueError(f"--{name} {asked[name]}: {folder} is compiled, for {made_for} in {model.precision.name}")
    return model


def ready(model: Model) -> Model:
    """The model as it runs best without being asked: under JAX compiled, since eagerly each operation is, for each length."""
    if backends.library_of(model.xp) != "jax":
        return model
    from xformer.frontends.jax import compile

    return compile(model)


def exported(folder: Path, output: Path, precision: str | None) -> str:
    """Compile the model in `folder` through JAX, for any batch and length, and save it to `output`; say what was written."""
    from xformer.frontends import jax

    _check_output(output, "jax")
    with terminal.progress("compiling", None):
        result = jax.compile(xformer.load(folder), precision=precision)
        result.save(output)
    return f"{output}: {result.precision.name} for CPU, CUDA and TPU, {(output / SAVED['jax']).stat().st_size / 1e6:.1f} MB"


def compiled(
    folder: Path, output: Path, batches: Sequence[int], lengths: Sequence[int], new: int, precision: str | None, target: str | None
) -> str:
    """Compile the model in `folder` through TVM, for every batch with every length, and save it to `output`; say what was written."""
    _check_output(output, "tvm")
    with terminal.progress("compiling", None):
        model = xformer.load(folder)
        shapes = itertools.product(batches or [1], lengths or [usual_length(model.config)], [new])
        result = tvm.compile(model, *shapes, target=target, precision=precision)
        result.save(output)
    libraries, weights = (sum(path.stat().st_size for path in output.glob(f"*.{kind}")) / 1e6 for kind in ("so", "safetensors"))
    programs = sum(len(function.programs) for function in result.compiled.values())
    what = f"{result.precision.name} for {result.processor.name}"
    tuned = f"tuning records for {result.records.hits} of {result.records.hits + result.records.misses} contractions"
    return f"{output}: {what}, {programs} programs in {libraries:.1f} MB, {weights:.1f} MB of weights, {tuned}"


def _check_output(output, frontend):
    """Only a folder of the same frontend is replaced, or an empty one."""
    if output.exists() and frontend_of(output) != frontend and (not output.is_dir() or any(output.iterdir())):
        raise ValueError(f"{output} is there already, and is no model compiled through {frontend.upper()}")


def explained(name: str, layers: int | None, batch: int, length: int | None, precision: str, target: str | None) -> list[Any]:
    """The distinct kernels of a model in a folder or of a preset, with another number of layers where one is given."""
    config = checkpoint.read(name).config if Path(name).is_dir() else presets.find(name)
    config = config if layers is None else dataclasses.replace(config, layers=layers)
    with terminal.progress("tracing", None):
        return tvm.explain(config, (batch, length or usual_length(config)), precision=precision, target=target)


def usual_length(config: Config) -> int:
    """LENGTH, or what the model has."""
    return min(LENGTH, config.positions)


def show_times(kernels: list[Any], precision: str) -> None:
    """How long each kernel takes, most of all first, beside what this machine does at most."""
    from xformer.frontends.tvm import timing

    chosen = precisions.find(precision)
    kernels[0].machine.require_programs()
    with terminal.progress("timing", len(kernels)) as advance:
        peaks = timing.peaks(kernels[0].machine, chosen.operand, chosen.accumulator)
        found = []
        for kernel in kernels:
            found += timing.timings([kernel])
            advance(1)
    terminal.times(found, peaks)


def show(kernels: list[Any], name: str | None, as_json: bool, forms: Sequence[str] = ("te", "tir")) -> None:
    """The kernels as a table, or one of them in each of the forms. Raises ValueError when there is none of that name."""
    chosen = [kernel for kernel in kernels if name in (None, kernel.name)]
    if not chosen:
        raise ValueError(f"no kernel {name!r}; there are: {', '.join(kernel.name for kernel in kernels)}")
    if as_json:
        fields = ("name", "rule", "calls", "result", *forms)
        print(json.dumps([{field: getattr(kernel, field) for field in fields} for kernel in chosen], indent=2))
    elif name is None:
        terminal.kernels(chosen)
    else:
        (kernel,) = chosen
        print(f"# {kernel.name}: rule {kernel.rule}, called {kernel.calls} times")
        for form in forms:
            print(f"\n# {TITLES[form]}\n{getattr(kernel, form) or '# a loop: TE has no result in the memory of its argument'}")


TITLES = {"te": "TE", "tir": "scheduled TIR", "code": "code"}
