"""Models compiled through Apache TVM: traced by calling them, scheduled by rules, run without Python between kernels.

    model = xformer.frontends.tvm.compile(xformer.load("folder"), (1, 128), precision="int8")
    model.embed(["one text", "another"])
    model.save("compiled")
    xformer.frontends.tvm.load("compiled").embed(["a third"])  # in another process: no compiler there

Importing this package imports nothing of TVM.
"""

import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xformer import config as presets
from xformer import precision as precisions
from xformer.config import Config
from xformer.frontends import SAVED
from xformer.model import Model
from xformer.precision import Precision

if TYPE_CHECKING:
    from xformer.frontends.tvm.explaining import Explanation
    from xformer.frontends.tvm.model import CompiledModel
    from xformer.frontends.tvm.tuning.records import Record, Records

__all__ = ["MANIFEST", "compile", "explain", "jit", "load", "tune"]

MANIFEST = SAVED["tvm"]
Target = str | Mapping[str, Any] | None

_RUNTIME_ONLY = "TVM_USE_RUNTIME_LIB"  # with "1" in this variable TVM imports without its compiler


def compile(
    model: Model,
    *shapes: tuple[int, ...],
    target: Target = None,
    precision: str | Precision | None = None,
    records: "Records | None" = None,
) -> "CompiledModel":
    """`model` with its functions compiled for `target`: None for this CPU, an x86 `mcpu`, or a dict as TVM takes it.

    Programs for `shapes` are compiled now, others at their first call, on a ladder of lengths: (batch, length) for an
    encoder, (batch, length of the prompt, new tokens) for a decoder. Kernels that were tuned are scheduled as their
    `records` say, by default this user's and those that come with the package. Raises ValueError when the model's weights
    are prepared for another precision than is asked for, and for a damaged file of records.
    """
    _import_compiler()
    from xformer.frontends.tvm import compiler

    return compiler.compile(model, *shapes, target=target, precision=precision, records=records)


def tune(
    what: str | Config | Callable,
    *shapes: tuple,
    target: Target = None,
    precision: str | Precision = "fp32",
    trials: int = 32,
    minutes: float | None = None,
    records: "Records | None" = None,
    told: Callable[[Any], Any] = lambda event: None,
) -> "list[Record]":
    """Try at most `trials` schedules of each distinct kernel that `compile` would make, and keep how fast each was.

    `what` is a preset's name or a Config, with `shapes` as in `compile`, or a function that can be pickled, with the Specs of
    its arguments. Kernels are built, compared with their unscheduled TE and timed in a process of their own; `told` gets the
    events of `tuning.search`. What was measured is kept at once, in this user's records by default: a run that is stopped,
    after `minutes` or by anything else, goes on where it was. Returns the fastest record of each kernel.
    """
    _import_compiler()
    from xformer.frontends.tvm.tuning import jobs

    return jobs.tune(what, *shapes, target=target, precision=precision, trials=trials, minutes=minutes, known=records, told=told)


def jit(function: Callable, target: Target = None) -> Callable:
    """`function` over NumPy arrays or trees of them, written against the Array API; compiled at its first call with new shapes."""
    _import_compiler()
    from xformer.frontends.tvm import compiler

    return compiler.jit(function, target)


def explain(
    config: str | Config, shape: tuple[int, ...] = (1, 128), target: Target = None, precision: str | Precision = "fp32"
) -> "list[Explanation]":
    """The distinct kernels of each function that `compile` would compile, of a preset's sizes or any Config; no weights needed.

    `target` may be an NVIDIA GPU too, such as "sm_90", whose kernels can be looked at and not be run.
    """
    _import_compiler()
    from xformer.frontends.tvm import explaining

    return explaining.explain(presets.find(config), shape, precisions.find(precision), target)


def load(folder: str | Path) -> "CompiledModel":
    """The compiled model in a folder that `CompiledModel.save` wrote, with the programs that it had; nothing is compiled.

    Where TVM was not imported before, only its runtime is. Raises ValueError or FileNotFoundError, naming what is wrong,
    for a file that is missing, truncated or changed, and for a CPU that lacks an instruction that the programs use.
    """
    _import_runtime()
    from xformer.frontends.tvm import artifact

    return artifact.load(folder)


def _import_compiler() -> None:
    """Raise ImportError when TVM is not there, or not its compiler."""
    try:
        import tvm
    except ImportError as error:
        raise ImportError(f"TVM needs `pip install apache-tvm==0.27.0.post1 apache-tvm-ffi==0.1.14.post1` ({error})") from error
    if not hasattr(tvm, "relax"):
        raise ImportError("TVM was imported without its compiler, to run a saved model: compile in another process, or `import tvm` first")


def _import_runtime() -> None:
    """Import TVM without its compiler, unless it is imported already. Raises ImportError when it is not there."""
    if "tvm" in sys.modules:
        return
    before = os.environ.get(_RUNTIME_ONLY)
    os.environ[_RUNTIME_ONLY] = "1"
    try:
        import tvm  # noqa: F401
    except ImportError as error:
        raise ImportError(f"TVM needs `pip install apache-tvm==0.27.0.post1 apache-tvm-ffi==0.1.14.post1` ({error})") from error
    finally:
        os.environ.pop(_RUNTIME_ONLY) if before is None else os.environ.update({_RUNTIME_ONLY: before})
