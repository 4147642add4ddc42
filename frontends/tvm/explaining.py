"""What a model's functions become: the distinct kernels, how often each is called, and what it was made of and into."""

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import tvm

from xformer import models
from xformer.config import Config
from xformer.frontends.tvm import compiler, packing
from xformer.frontends.tvm.fusion import Kernel
from xformer.frontends.tvm.target import Machine, machine
from xformer.frontends.tvm.tracing import Distinct, trace
from xformer.frontends.tvm.tuning.records import load
from xformer.precision import Precision


@dataclass(frozen=True)
class Explanation:
    """One distinct kernel of one of a model's functions: its rule and whether a tuning record chose its sizes, calls, results."""

    function: str
    name: str
    rule: str
    calls: int
    result: str
    kernel: Kernel
    computes: Any
    scheduled: Any
    machine: Machine

    @property
    def te(self) -> str:
        """What is computed, as TVMScript; "" for a kernel that is written as a loop."""
        return "" if self.computes is None else _text(self.computes)

    @property
    def tir(self) -> str:
        """How it is computed, as TVMScript."""
        return _text(self.scheduled)

    @property
    def code(self) -> str:
        """What it becomes: assembly, or the source of a CUDA kernel."""
        target = self.machine.target
        built = tvm.tirx.build(
            tvm.IRModule({"main": self.scheduled.with_attr("global_symbol", "main").with_attr("target", target)}), target
        )
        return str(built.imports[0].inspect_source() if self.machine.gpu else built.inspect_source("asm"))


def explain(config: Config, shape: tuple[int, ...], precision: Precision, target: str | Mapping[str, Any] | None) -> list[Explanation]:
    """As `xformer.frontends.tvm.explain` says."""
    to, model = machine(target), models.find(config.model_type)
    tree = packing.specs(config, precision, to)
    wanted = dict(compiler.functions(config, precision, hasattr(model, "decode"), *compiler.asked(config, *shape)))
    found: list[Explanation] = []
    known = load()
    for name, arguments in wanted.items():
        function = functools.partial(getattr(model, name), config=config, precision=precision)
        traced = trace(function, (tree, *arguments), to, known)
        found += [_explained(name, kernel, distinct, traced.module, to) for kernel, distinct in traced.kernels.items()]
    return found


def _explained(function: str, kernel: str, distinct: Distinct, module: tvm.IRModule, to: Machine) -> Explanation:
    rule = distinct.rule if distinct.tiling is None else f"{distinct.rule}, tuned"
    result = ", ".join(f"{node.dtype}[{', '.join(map(str, node.shape))}]" for node in distinct.kernel.results)
    return Explanation(
        function, f"{function}.{kernel}", rule, distinct.calls, result, distinct.kernel, distinct.computes, module[kernel], to
    )


def _text(function: Any) -> str:
    """A function without the attributes and imports that each has."""
    lines = function.without_attr("target").script().splitlines()
    return "\n".join(line for line in lines if line and not line.startswith("# ") and "T.func_attr" not in line)
