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
from xformer.cli import terminal
from xformer.config import Config
from xformer.frontends import tvm
from xformer.model import Model

LENGTH = 128  # where none is asked for


def is_compiled(folder: Path) -> bool:
    """Whether a folder holds a compiled model."""
    return (folder / tvm.MANIFEST).is_file()


def load(folder: Path, asked: dict[str, Any]) -> Model:
    """A compiled model. Raises ValueError for options that ask for another namespace, precision or device than it has."""
    model = tvm.load(folder)
    for name, own in {"namespace": "numpy", "precision": model.precision.name, "device": None}.items():
        if asked[name] not in (None, own):
            raise ValueError(f"--{name} {asked[name]}: {folder} is compiled, for {model.processor.name} in {model.precision.name}")
    return model


def ready(model: Model) -> Model:
    """The model as it runs best without being asked: under JAX compiled, since eagerly each operation is, for each length."""
    if backends.library_of(model.xp) != "jax":
        return model
    from xformer.frontends.jax import compile

    return compile(model)


def compiled(
    folder: Path, output: Path, batches: Sequence[int], lengths: Sequence[int], new: int, precision: str | None, target: str | None
) -> str:
    """Compile the model in `folder` for every batch with every length, and save it to `output`; say what was written."""
    if output.exists() and not is_compiled(output) and (not output.is_dir() or any(output.iterdir())):
        raise ValueError(f"{output} is there already, and is no compiled model")
    with terminal.progress("compiling", None):
        model = xformer.load(folder)
        shapes = itertools.product(batches or [1], lengths or [usual_length(model.config)], [new])
        result = tvm.compile(model, *shapes, target=target, precision=precision)
        result.save(output)
    libraries, weights = (sum(path.stat().st_size for path in output.glob(f"*.{kind}")) / 1e6 for kind in ("so", "safetensors"))
    programs = sum(len(function.programs) for function in result.compiled.values())
    what = f"{result.precision.name} for {result.processor.name}"
    return f"{output}: {what}, {programs} programs in {libraries:.1f} MB, {weights:.1f} MB of weights"


def explained(name: str, layers: int | None, batch: int, length: int | None, precision: str, target: str | None) -> list[Any]:
    """The distinct kernels of a model in a folder or of a preset, with another number of layers where one is given."""
    config = checkpoint.read(name).config if Path(name).is_dir() else presets.find(name)
    config = config if layers is None else dataclasses.replace(config, layers=layers)
    with terminal.progress("tracing", None):
        return tvm.explain(config, (batch, length or usual_length(config)), precision=precision, target=target)


def usual_length(config: Config) -> int:
    """LENGTH, or what the model has."""
    return min(LENGTH, config.positions)


def show(kernels: list[Any], name: str | None, as_json: bool) -> None:
    """The kernels as a table, or one of them with its TE and its schedule. Raises ValueError when there is none of that name."""
    chosen = [kernel for kernel in kernels if name in (None, kernel.name)]
    if not chosen:
        raise ValueError(f"no kernel {name!r}; there are: {', '.join(kernel.name for kernel in kernels)}")
    if as_json:
        fields = ("name", "rule", "calls", "result", "te", "tir")
        print(json.dumps([{field: getattr(kernel, field) for field in fields} for kernel in chosen], indent=2))
    elif name is None:
        terminal.kernels(chosen)
    else:
        (kernel,) = chosen
        written = kernel.te or "# a loop: TE has no result in its argument's memory"
        print(f"# {kernel.name}: rule {kernel.rule}, called {kernel.calls} times\n\n# TE\n{written}\n\n# scheduled TIR\n{kernel.tir}")
