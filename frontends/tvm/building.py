"""From a function to a program: traced, scheduled, compiled."""

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tvm
from tvm import relax

from xformer.frontends.tvm.program import Program
from xformer.frontends.tvm.runtime import COMPILING
from xformer.frontends.tvm.target import Machine
from xformer.frontends.tvm.tracing import trace
from xformer.frontends.tvm.tuning.records import Records

PASSES = tvm.transform.Sequential(
    [
        relax.transform.ToNonDataflow(),
        relax.transform.RemovePurityChecking(),
        relax.transform.CallTIRRewrite(),
        relax.transform.StaticPlanBlockMemory(),
        relax.transform.LowerAllocTensor(),
        relax.transform.KillAfterLastUse(),
        relax.transform.LowerRuntimeBuiltin(),
        relax.transform.ComputePrimValue(),
        relax.transform.VMShapeLower(),
        relax.transform.AttachGlobalSymbol(),
    ]
)


def build(function: Callable, arguments: tuple, machine: Machine, records: Records | None = None) -> Program:
    """function(*arguments) over trees of Specs, compiled; kernels that have a tuning record are scheduled as it says."""
    with COMPILING:
        traced = trace(function, arguments, machine, records)
        executable = tvm.compile(traced.module, machine.target, relax_pipeline=PASSES)
    return Program(executable.jit(), arguments, traced.inputs, traced.result, lambda path: _link(executable, path))


def _link(executable: Any, path: Path) -> None:
    """Write the shared library. Raises ValueError where no linker is installed."""
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder) / "library.so"  # the suffix chooses what TVM writes
        try:
            executable.export_library(str(library))
        except (RuntimeError, OSError, TypeError) as error:
            known = tvm.support.cc.get_cc()
            raise ValueError(f"a shared library needs a linker: {known or 'install g++ or clang++'} ({error})") from error
        shutil.copyfile(library, path)
