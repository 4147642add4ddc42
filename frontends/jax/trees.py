"""Every node class of a parameter tree as a JAX pytree, those that are defined later included."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from xformer import backends, models, params
from xformer.config import Config
from xformer.params import Spec
from xformer.precision import Precision

_registered: set[type] = set()


def register(cls: type) -> None:
    """Make the dataclass `cls` a pytree with all of its fields as children; a second time does nothing."""
    if cls not in _registered:
        names = [field.name for field in dataclasses.fields(cls)]
        jax.tree_util.register_dataclass(cls, data_fields=names, meta_fields=[])
        _registered.add(cls)


params.on_node(register)


def place(tree: Any, device: Any = None) -> Any:
    """The tree with its leaves, which may be arrays of any namespace, in JAX; a leaf in two places is moved once.

    Without a `device`, arrays of JAX stay where they are.
    """
    moved: dict[int, jax.Array] = {}

    def move(leaf):
        if isinstance(leaf, jax.Array) and (device is None or leaf.devices() == {device}):
            return leaf
        if id(leaf) not in moved:
            moved[id(leaf)] = _moved(leaf, device)
        return moved[id(leaf)]

    return jax.tree.map(move, tree)


def _moved(leaf, device):
    if isinstance(leaf, jax.Array):
        return jax.device_put(leaf, device)
    return backends.from_numpy(jnp, leaf if isinstance(leaf, np.ndarray) else backends.to_numpy(leaf), device)


def shapes(tree: Any) -> Any:
    """What a compiler needs to know of the arrays, or `Spec`s, of a tree: shape, dtype and, where one was chosen, the device."""

    def shape(leaf):
        if isinstance(leaf, Spec):
            return jax.ShapeDtypeStruct(leaf.shape, jnp.dtype(leaf.dtype))
        return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=leaf.sharding if leaf.committed else None)

    return jax.tree.map(shape, tree)


def prepared(config: Config, precision: Precision) -> Any:
    """The shapes of a model's parameters as `precision` prepares them: no memory, whatever the size."""
    functions = models.find(config.model_type)
    return shapes(functions.prepare(functions.spec(config), precision.stored))
