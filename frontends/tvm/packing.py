"""Weights in the layout that kernels read: packed once, by compiled code, one after the other."""

from dataclasses import dataclass
from typing import Any

import tvm

from xformer import backends, blocks, params
from xformer.frontends.tvm import runtime
from xformer.frontends.tvm.array import Array
from xformer.frontends.tvm.contraction import Pack
from xformer.frontends.tvm.program import Program
from xformer.frontends.tvm.target import Layout, Machine
from xformer.frontends.tvm.tracing import PackedSpec
from xformer.params import Spec
from xformer.precision import Quantized


@dataclass(frozen=True, eq=False)
class PackedWeight:
    """A leaf of a parameter tree: the packed buffer of a weight (n, k)."""

    tensor: tvm.runtime.Tensor
    shape: tuple[int, int]
    layout: Layout

    @property
    def dtype(self) -> str:
        return str(self.tensor.dtype)


def prepare(tree: Any, machine: Machine) -> Any:
    """The tree in the runtime's memory, with the weights of its projections packed; a leaf in two places is kept once."""
    packer = _Packer(machine)
    packed = blocks.prepare(tree, packer.weight)
    return params.map(lambda path, leaf: packer.place(leaf), packed)


def spec(leaf: Any) -> Spec:
    """The shape and dtype of a leaf, packed or not, that a program is compiled for."""
    if isinstance(leaf, PackedWeight):
        return PackedSpec(leaf.shape, leaf.dtype, layout=leaf.layout)
    return Spec(tuple(int(extent) for extent in leaf.shape), str(leaf.dtype))


class _Packer:
    """Packs and moves leaves; keeps one program for each shape, and the result for each leaf."""

    def __init__(self, machine: Machine):
        self.machine = machine
        self.programs: dict[tuple, Program] = {}
        self.done: dict[int, tuple[Any, Any]] = {}  # with the leaf itself, so that its id stays its own

    def weight(self, weight: Any) -> Any:
        if isinstance(weight, Quantized):
            return Quantized(self._packed(weight.values), weight.scale)
        return self._packed(weight)

    def _packed(self, weight: Any) -> PackedWeight:
        if id(weight) not in self.done:
            array = backends.to_numpy(weight)
            layout = self.machine.layout(str(array.dtype))
            key = (array.shape, str(array.dtype))
            if key not in self.programs:
                self.programs[key] = Program(lambda x: _pack(x, layout), (Spec(*key),), self.machine)
            self.done[id(weight)] = weight, PackedWeight(self.programs[key].tensors(array), array.shape, layout)
        return self.done[id(weight)][1]

    def place(self, leaf: Any) -> Any:
        if isinstance(leaf, PackedWeight):
            return leaf
        if id(leaf) not in self.done:
            self.done[id(leaf)] = leaf, runtime.tensor(backends.to_numpy(leaf))
        return self.done[id(leaf)][1]


def _pack(x: Array, layout: Layout) -> Array:
    node = Pack(x, layout)
    return Array(node, node.shape)
