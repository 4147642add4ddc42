"""A model over several devices: a mesh, and one table that says which axis of a parameter goes along which axis of it.

    mesh = sharding.mesh(data=2, tensor=4)
    model = sharding.spread(xformer.load("folder", "jax"), mesh)

The model is unchanged: XLA derives the rest from where parameters and inputs are. Data parallelism splits the batch.
Tensor parallelism (Shoeybi et al. 2019, arXiv:1909.08053) splits heads and the feed-forward width: two all-reduces a layer.
Sequence parallelism (Li et al. 2021, arXiv:2105.13120) splits the tokens: each device computes its own and keeps their keys
and values. XLA gathers the queries, takes softmax with two small all-reduces and adds the results up with a third.

Devices may be those of several hosts. The same program runs on each of them, and first of all says so:

    jax.distributed.initialize("host-0:8476", num_processes=2, process_id=0)  # 1 on the other; on a TPU pod no arguments

Every process then calls the same functions with the same inputs in the same order, and gets the same tokens. Arrays of
hidden states stay spread over the hosts; `gather` fetches one whole.
"""

import fnmatch
import math
import re
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from xformer import backends, params
from xformer.frontends.jax.model import LENGTHS, Compiled
from xformer.model import Model

TABLE = {  # path of a parameter: the mesh axis of each of its axes; all others are whole on every device
    "layers.*.attention.query.*": ("tensor",),
    "layers.*.attention.key.*": ("tensor",),
    "layers.*.attention.value.*": ("tensor",),
    "layers.*.attention.output.weight*": (None, "tensor"),
    "layers.*.up.*": ("tensor",),
    "layers.*.down.weight*": (None, "tensor"),
}
AXES = ("data", "sequence", "tensor")  # of a mesh
COLLECTIVES = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute")


def mesh(data: int = 1, tensor: int = 1, sequence: int = 1, devices: Any = None) -> Mesh:
    """A mesh of data x sequence x tensor devices, by default the first ones there are, neighbours along the tensor axis.

    Raises ValueError when there are too few.
    """
    devices = jax.devices() if devices is None else devices
    shape = (data, sequence, tensor)
    if len(devices) < math.prod(shape):
        raise ValueError(f"a mesh of {' x '.join(map(str, shape))} devices: there are {len(devices)}")
    return jax.make_mesh(shape, AXES, (AxisType.Auto,) * len(AXES), devices=devices[: math.prod(shape)])


def shardings(tree: Any, on: Mesh, table: Mapping[str, tuple] = TABLE) -> Any:
    """A sharding for each leaf (an array, a spec) of a parameter tree.

    Raises ValueError, naming all of them, for axes that the mesh does not divide.
    """
    problems: list[str] = []

    def place(path, leaf):
        wanted = next((axes for pattern, axes in table.items() if fnmatch.fnmatchcase(path, pattern)), ())
        axes = [axis if size > 1 else None for axis, size in zip(wanted, leaf.shape, strict=False)]  # a scale's axis of 1 is whole
        problems.extend(
            f"{path} {tuple(leaf.shape)}: axis {index} is not a multiple of the mesh's {axis} = {on.shape[axis]}"
            for index, axis in enumerate(axes)
            if axis and leaf.shape[index] % on.shape[axis]
        )
        return NamedSharding(on, PartitionSpec(*axes))

    result = params.map(place, tree)
    if problems:
        raise ValueError("the mesh does not divide the model:\n  " + "\n  ".join(problems))
    return result


def spread(model: Model, on: Mesh, table: Mapping[str, tuple] = TABLE) -> "Spread":
    """`model` over the devices of a mesh. Raises ValueError when the mesh does not divide its heads or widths."""
    if model.config.heads % on.shape["tensor"]:
        raise ValueError(f"the mesh does not divide the model: {model.config.heads} heads, tensor = {on.shape['tensor']}")
    host = params.map(lambda path, leaf: backends.to_numpy(leaf), model.params)
    tree = jax.tree.map(jax.device_put, host, shardings(host, on, table))
    return Spread(model, tree, on)


def collectives(compiled: jax.stages.Compiled) -> dict[str, int]:
    """How many of each collective operation stand in a compiled program; one inside a loop counts once."""
    found = re.findall(rf" ({'|'.join(COLLECTIVES)})(?:-start)?\(", compiled.as_text() or "")
    return {name: found.count(name) for name in COLLECTIVES if name in found}


def gather(x: jax.Array) -> np.ndarray:
    """An array that may be spread over several hosts, whole; every process must ask for it."""
    if isinstance(x.sharding, NamedSharding) and not x.is_fully_addressable:
        x = jax.device_put(x, NamedSharding(x.sharding.mesh, PartitionSpec()))
    return np.asarray(x)


class Spread(Compiled):
    """What `spread` returns: batches that the mesh divides are split along it, others are whole everywhere."""

    def __init__(self, model: Model, tree: Any, on: Mesh):
        super().__init__(Model(model.config, tree, model.precision, jnp, model.tokenizer), LENGTHS)
        self.mesh = on

    def compile_for(self, batch: int, length: int, new: int = 0) -> None:
        """As `Compiled.compile_for`, by running once."""
        tokens = np.zeros((batch, length), np.int32)
        self.generate(tokens, new, mask=np.ones_like(tokens)) if new else self(tokens, np.ones_like(tokens))

    def _array(self, x):
        axes = ("data", "sequence") if np.ndim(x) == 2 else ()
        divided = (axis if size % self.mesh.shape[axis] == 0 else None for axis, size in zip(axes, np.shape(x), strict=False))
        return jax.device_put(x, NamedSharding(self.mesh, PartitionSpec(*divided)))

    def _greedy(self, *arrays, capacity):
        return tuple(gather(part) for part in super()._greedy(*arrays, capacity=capacity))

    def _run(self, name, *arguments):
        result = super()._run(name, *arguments)
        return (gather(result[0]), result[1]) if name in ("prefill", "decode") else result
