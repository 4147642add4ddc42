"""From a function and the shapes of its arguments to a Relax module of kernels, each with its schedule."""

import dataclasses
from collections.abc import Callable
from typing import Any

import tvm
from tvm import relax, te

from xformer import params
from xformer.frontends.tvm import fusion, namespace, schedules  # noqa: F401  the namespace gives arrays their operators
from xformer.frontends.tvm.array import Array
from xformer.frontends.tvm.contraction import Packed
from xformer.frontends.tvm.fusion import Kernel
from xformer.frontends.tvm.nodes import Input, Write
from xformer.frontends.tvm.program import Output
from xformer.frontends.tvm.target import Machine
from xformer.frontends.tvm.weights import PackedSpec
from xformer.frontends.tvm.writing import write_function


@dataclasses.dataclass(frozen=True)
class Traced:
    """A function as kernels: which arguments it reads, in order, and the tree that it returns."""

    module: tvm.IRModule
    inputs: tuple[str, ...]  # paths in the tuple of arguments
    result: Any  # the returned tree, with an Output for each array
    rules: dict[str, str]  # kernel: rule


def trace(function: Callable, arguments: tuple, machine: Machine) -> Traced:
    """function(*arguments) over trees of Specs, as a module with one function "main" and one for each distinct kernel."""
    symbols = params.map(lambda path, leaf: _symbol(path, leaf), arguments)
    result = function(*symbols)
    outputs = [leaf for _, leaf in params.items((result,)) if leaf is not None]
    nodes = fusion.reachable(outputs)
    stand_in = fusion.deduplicate(nodes)
    for x in outputs:
        x.node = stand_in[x.node]
    nodes = fusion.reachable(outputs)
    inputs = tuple(node for node in nodes if isinstance(node, Input))
    groups = fusion.kernels(nodes, [x.node for x in outputs])
    returned = list(dict.fromkeys(x.node for x in outputs if not isinstance(x.node, Write | Input)))
    module, rules = _module(inputs, groups, returned, machine)

    def output(path: str, x: Array) -> Output:
        if isinstance(x.node, Write | Input):
            source = x.node.operands[0].node if isinstance(x.node, Write) else x.node
            return Output(x.shape, None, source.name)
        if not x.contiguous:
            raise ValueError(f"the result {path or 'itself'} is a view; a function must return whole arrays")
        return Output(x.shape, returned.index(x.node))

    return Traced(module, tuple(node.name for node in inputs), params.map(output, (result,))[0], rules)


def _symbol(path: str, leaf: Any) -> Array:
    if isinstance(leaf, PackedSpec):
        return Packed(Input(path, leaf.layout.shape(*leaf.shape), leaf.dtype), leaf.shape, leaf.layout)
    return Array(Input(path, leaf.shape, leaf.dtype), leaf.shape)


def _module(inputs, groups, returned, machine) -> tuple[tvm.IRModule, dict[str, str]]:
    """Relax glue around the kernels; kernels that are the same are one function."""
    builder = relax.BlockBuilder()
    variables = {node: relax.Var(f"x{place}", _type(node)) for place, node in enumerate(inputs)}
    arguments = list(variables.values())
    rules: dict[str, str] = {}
    with builder.function("main", arguments):
        with builder.dataflow():
            for kernel in groups:
                _emit(builder, kernel, variables, machine, rules)
            # A function that only writes into its arguments still has to return them.
            ends = [variables[node] for node in returned] or [variables[kernel.nodes[-1]] for kernel in groups[-1:]]
            ends += [variables[node] for kernel in groups for node in kernel.nodes if isinstance(node, Write)]
            result = builder.emit_output(relax.Tuple(ends))
        builder.emit_func_output(result)
    return builder.get(), rules


def _emit(builder, kernel: Kernel, variables, machine, rules) -> None:
    if isinstance(kernel.nodes[0], Write):
        (node,) = kernel.nodes
        function = builder.add_func(write_function(node), "write")
        operands = [variables[x.node] for x in node.operands]
        variables[node] = builder.emit(relax.op.call_tir_inplace(function, operands, 0, _type(node)))
        return
    rule = schedules.rule(kernel)
    function = builder.add_func(scheduled(kernel, machine), f"{rule}_{kernel.nodes[-1].name}")
    rules[function.name_hint] = rule
    types = [_type(node) for node in kernel.results]
    call = builder.emit(relax.call_tir(function, [variables[node] for node in kernel.arguments], types if len(types) > 1 else types[0]))
    for place, node in enumerate(kernel.results):
        variables[node] = builder.emit(relax.TupleGetItem(call, place)) if len(types) > 1 else call


def scheduled(kernel: Kernel, machine: Machine) -> Any:
    """The kernel's TE computes as one function, scheduled by its rule."""
    arguments = [te.placeholder(node.shape, node.dtype, name=f"x{place}") for place, node in enumerate(kernel.arguments)]
    tensors = dict(zip(kernel.arguments, arguments, strict=True))
    for node in kernel.nodes:
        tensors[node] = node.stage([tensors[x.node] for x in node.operands], machine)
    function = te.create_prim_func([*arguments, *(tensors[node] for node in kernel.results)])
    return schedules.apply(kernel, function.with_attr("target", machine.target), machine).without_attr("global_symbol")


def _type(node) -> Any:
    return relax.TensorType(node.shape, node.dtype)
