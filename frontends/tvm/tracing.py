"""From a function and the shapes of its arguments to a Relax module of kernels, each with its schedule."""

import dataclasses
import math
import warnings
from collections.abc import Callable
from typing import Any

import tvm
from tvm import relax

from xformer import params
from xformer.frontends.tvm import fusion, namespace, schedules  # noqa: F401  the namespace gives arrays their operators
from xformer.frontends.tvm.array import Array
from xformer.frontends.tvm.contraction import Contract, Packed
from xformer.frontends.tvm.fusion import Kernel
from xformer.frontends.tvm.nodes import Input, Write
from xformer.frontends.tvm.padding import Scan
from xformer.frontends.tvm.program import Output
from xformer.frontends.tvm.schedules import contraction
from xformer.frontends.tvm.target import Machine
from xformer.frontends.tvm.tiling import Tiling
from xformer.frontends.tvm.tuning.records import Records
from xformer.frontends.tvm.weights import PackedSpec
from xformer.frontends.tvm.writing import write_function


@dataclasses.dataclass(frozen=True)
class Traced:
    """A function as kernels: which arguments it reads, in order, and the tree that it returns."""

    module: tvm.IRModule
    inputs: tuple[str, ...]  # paths in the tuple of arguments
    result: Any  # the returned tree, with an Output for each array
    kernels: dict[str, "Distinct"]  # by the name of its function in the module

    @property
    def rules(self) -> list[str]:
        """The rule of each distinct kernel that was scheduled."""
        return [kernel.rule for kernel in self.kernels.values() if kernel.computes]


@dataclasses.dataclass
class Distinct:
    """A kernel that is called once or more: the rule that scheduled it, its TE as a function (None: TE cannot express it).

    `tiling` is what a tuning record chose of it, None where there is no record.
    """

    rule: str
    kernel: Kernel
    computes: Any
    tiling: Tiling | None = None
    calls: int = 0


def trace(function: Callable, arguments: tuple, machine: Machine, records: Records | None = None) -> Traced:
    """function(*arguments) over trees of Specs, as a module with one function "main" and one for each distinct kernel.

    Kernels that have a tuning record among `records` are scheduled as it says.
    """
    symbols = params.map(lambda path, leaf: _symbol(path, leaf), arguments)
    result = function(*symbols)
    outputs = [leaf for _, leaf in params.items((result,)) if leaf is not None]
    for node in fusion.reachable(outputs):
        if not node.given and not math.prod(node.shape):  # nothing to compute
            node.tensor, node.operands = tvm.runtime.empty(node.shape, node.dtype), ()
        elif isinstance(node, Contract):
            node.settle_for(machine)
    nodes = fusion.reachable(outputs)
    stand_in = fusion.deduplicate(nodes)
    for x in outputs:
        x.node = stand_in[x.node]
    nodes = fusion.reachable(outputs)
    inputs = tuple(node for node in nodes if isinstance(node, Input))
    groups = fusion.kernels(nodes, [x.node for x in outputs])
    groups = [kernel.whole for kernel in groups] if machine.gpu else groups
    returned = list(dict.fromkeys(x.node for x in outputs if not isinstance(x.node, Write | Input)))
    module, distinct = _module(inputs, groups, returned, _Functions(machine, records or Records()))

    def output(path: str, x: Array) -> Output:
        if isinstance(x.node, Write | Input):
            source = x.node.operands[0].node if isinstance(x.node, Write) else x.node
            return Output(x.shape, None, source.name)
        if not x.contiguous:
            raise ValueError(f"the result {path or 'itself'} is a view; a function must return whole arrays")
        return Output(x.shape, returned.index(x.node))

    return Traced(module, tuple(node.name for node in inputs), params.map(output, (result,))[0], distinct)


def _symbol(path: str, leaf: Any) -> Array:
    if isinstance(leaf, PackedSpec):
        return Packed(Input(path, leaf.layout.shape(*leaf.shape), leaf.dtype), leaf.shape, leaf.layout)
    return Array(Input(path, leaf.shape, leaf.dtype), leaf.shape)


def _module(inputs, groups, returned, functions) -> tuple[tvm.IRModule, dict[str, Distinct]]:
    """Relax glue around the kernels; kernels that are the same are one function."""
    builder = functions.builder
    variables: dict[Any, Any] = {node: relax.Var(f"x{place}", _type(node)) for place, node in enumerate(inputs)}
    arguments = list(variables.values())
    read = dict.fromkeys([*(node for kernel in groups for node in kernel.arguments), *returned])
    variables |= {node: relax.const(node.tensor) for node in read if node.tensor is not None and math.prod(node.shape)}
    with builder.function("main", arguments):
        with builder.dataflow():
            for node in read:  # a constant without elements cannot be stored
                if node.tensor is not None and node not in variables:
                    variables[node] = builder.emit(relax.op.builtin.alloc_tensor(relax.ShapeExpr(node.shape), node.dtype, 0))
            for kernel in groups:
                _emit(builder, kernel, variables, functions.find(kernel))
            # A function that only writes into its arguments still has to return them.
            ends = [variables[node] for node in returned] or [variables[kernel.nodes[-1]] for kernel in groups[-1:]]
            ends += [variables[node] for kernel in groups for node in kernel.nodes if isinstance(node, Write)]
            result = builder.emit_output(relax.Tuple(ends))
        builder.emit_func_output(result)
    return builder.get(), functions.distinct


class _Functions:
    """The functions of the distinct kernels: each is scheduled once, however many layers call it."""

    def __init__(self, machine: Machine, records: Records):
        self.builder, self.machine, self.records = relax.BlockBuilder(), machine, records
        self.found: dict[tuple, Any] = {}
        self.distinct: dict[str, Distinct] = {}

    def find(self, kernel: Kernel) -> Any:
        """The kernel's function, made at its first call."""
        key = kernel.key
        if key not in self.found:
            self.found[key] = self._made(kernel)
        self.distinct[self.found[key].name_hint].calls += 1
        return self.found[key]

    def _made(self, kernel: Kernel) -> Any:
        rule, computes, tiling = "write", None, None
        if isinstance(kernel.seed, Write):
            function = write_function(kernel.seed, self.machine.gpu)
        elif isinstance(kernel.seed, Scan):
            rule, function = "scan", kernel.seed.function(self.machine.gpu)
        else:
            rule, computes, machine = schedules.rule(kernel), kernel.unscheduled(self.machine), self.machine
            tiling = self._tiling(kernel, computes)
            if tiling:
                machine = dataclasses.replace(machine, tiling=tiling)
                computes = kernel.unscheduled(machine)
            function = schedules.apply(kernel, computes, machine).without_attr("global_symbol")
        variable = self.builder.add_func(function, rule if rule == "write" else f"{rule}_{kernel.nodes[-1].name}")
        self.distinct.setdefault(variable.name_hint, Distinct(rule, kernel, computes, tiling))
        return variable

    def _tiling(self, kernel: Kernel, computes: Any) -> Tiling | None:
        """What a record chose; one that cannot be this kernel's is refused."""
        found = self.records.tiling(computes, self.machine) if schedules.tunable(kernel) else None
        if found and found not in contraction.tilings(kernel, self.machine):
            name = kernel.nodes[-1].name
            warnings.warn(f"{self.records.path}: the record of {name} is refused: it cannot have {found}", stacklevel=2)
            return None
        return found


def _emit(builder, kernel: Kernel, variables, function: Any) -> None:
    if isinstance(kernel.seed, Write):
        (node,) = kernel.nodes
        variables[node] = builder.emit(relax.op.call_tir_inplace(function, [variables[x.node] for x in node.operands], 0, _type(node)))
        return
    types = [_type(node) for node in kernel.results]
    call = builder.emit(relax.call_tir(function, [variables[node] for node in kernel.arguments], types if len(types) > 1 else types[0]))
    for place, node in enumerate(kernel.results):
        variables[node] = builder.emit(relax.TupleGetItem(call, place)) if len(types) > 1 else call


def _type(node) -> Any:
    return relax.TensorType(node.shape, node.dtype)
