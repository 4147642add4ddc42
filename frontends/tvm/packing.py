"""Weights in the layout that kernels read: narrowed and packed once, by compiled code, one after the other."""

from typing import Any

import tvm

import xformer
from xformer import backends, models, params
from xformer.config import Config
from xformer.frontends.tvm import runtime
from xformer.frontends.tvm.array import Array
from xformer.frontends.tvm.building import build
from xformer.frontends.tvm.contraction import Pack
from xformer.frontends.tvm.program import Program
from xformer.frontends.tvm.target import Machine, machine
from xformer.frontends.tvm.weights import Layout, PackedSpec, PackedWeight
from xformer.params import Spec
from xformer.precision import FP32, Precision, Quantized


def prepare(tree: Any, config: Config, precision: Precision, target: Machine) -> Any:
    """The tree in the runtime's memory, its projections' weights narrowed and packed; a leaf in two places is kept once.

    The layout is the target's; the code that packs is this machine's.
    """
    packer = Packer(precision, target)
    packed = models.find(config.model_type).prepare(tree, packer.weight)
    return params.map(lambda path, leaf: packer.place(leaf), packed)


def specs(config: Config, precision: Precision, target: Machine) -> Any:
    """What `prepare` makes, as shapes: no memory, whatever the size."""
    plain, model = xformer.spec(config), models.find(config.model_type)
    packed: dict[int, PackedSpec] = {}

    def narrow(weight: Spec) -> Any:
        stored = precision.stored(weight)
        values = getattr(stored, "values", stored)
        layout = target.layout(values.dtype)
        packed[id(weight)] = PackedSpec(values.shape, layout.stored(values.dtype), layout=layout)
        return Quantized(packed[id(weight)], stored.scale) if isinstance(stored, Quantized) else packed[id(weight)]

    tree = model.prepare(plain, narrow)
    shared = {id(plain.embedding.token)} if config.tied and precision == FP32 else set()
    return params.map(lambda path, leaf: packed.get(id(leaf), leaf) if id(leaf) in shared else leaf, tree)


class Packer:
    """Packs and moves leaves; keeps one program for each shape, and the result for each leaf."""

    def __init__(self, precision: Precision, target: Machine):
        self.precision, self.target, self.own = precision, target, machine()
        self.programs: dict[tuple, Program] = {}
        self.weights: dict[int, tuple[Any, Any]] = {}  # with the leaf itself, so that its id stays its own
        self.placed: dict[int, tuple[Any, Any]] = {}

    def weight(self, weight: Any) -> Any:
        """The narrowed and packed form of a weight as it comes from a model, in fp32 or prepared."""
        key = id(getattr(weight, "values", weight))
        if key not in self.weights:
            self.weights[key] = weight, self._prepared(weight)
        return self.weights[key][1]

    def _prepared(self, weight: Any) -> Any:
        arrays = params.map(lambda path, x: backends.to_numpy(x), weight)
        specs, layout = params.spec(arrays), self.target.layout(self.precision.operand)
        key = tuple(params.items(specs))
        if key not in self.programs:
            self.programs[key] = build(lambda x: _packed(self.precision.prepare(x), layout), (specs,), self.own)
        result = self.programs[key].tensors(arrays)
        shape = getattr(arrays, "values", arrays).shape
        if isinstance(result, Quantized):
            return Quantized(PackedWeight(result.values, shape, layout), result.scale)
        return PackedWeight(result, shape, layout)

    def place(self, leaf: Any) -> Any:
        """A leaf that is read as it is: moved, or packed where it is a weight as well and is packed in its own dtype."""
        if isinstance(leaf, PackedWeight | tvm.runtime.Tensor):
            return leaf
        packed = self.weights.get(id(leaf), (None, None))[1]
        if isinstance(packed, PackedWeight) and self.precision == FP32:
            return packed
        if id(leaf) not in self.placed:
            self.placed[id(leaf)] = leaf, runtime.tensor(backends.to_numpy(leaf))
        return self.placed[id(leaf)][1]


def _packed(weight: Any, layout: Layout) -> Any:
    if isinstance(weight, Quantized):
        return Quantized(_packed(weight.values, layout), weight.scale)
    node = Pack(weight, layout)
    return Array(node, node.shape)
