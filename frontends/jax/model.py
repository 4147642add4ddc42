"""JAX: parameter trees are pytrees once this module is imported, and `compile` puts a model's functions under `jax.jit`.

model = xformer.frontends.jax.compile(xformer.load("folder", precision="int8"))
model.embed(["one text", "another"])
"""

import dataclasses
import functools
import inspect
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from xformer import backends, params
from xformer.model import Model

_registered: set[type] = set()


def _register(cls: type) -> None:
    if cls not in _registered:
        names = [field.name for field in dataclasses.fields(cls)]
        jax.tree_util.register_dataclass(cls, data_fields=names, meta_fields=[])
        _registered.add(cls)


params.on_node(_register)


def compile(model: Model) -> Model:
    """`model` with its functions compiled by XLA, its parameters moved to JAX if they live elsewhere.

    Each function is compiled at its first call with new shapes. The cache that `generate` hands on is donated.
    """
    tree = jax.tree.map(functools.partial(_placed, device=model.device), model.params)
    return Model(model.config, tree, model.precision, jnp, model.tokenizer, model.device, jit)


def jit(function: Callable) -> Callable:
    """A model's function, bound to its config and precision, under `jax.jit`; an argument called `memory` is donated."""
    return functools.partial(_jitted(function.func), **function.keywords) if isinstance(function, functools.partial) else _jitted(function)


@functools.cache
def _jitted(function: Callable) -> Callable:
    """One compiled function for all models of the same file: those of equal sizes share what XLA made of it."""
    donated = [name for name in inspect.signature(function).parameters if name == "memory"]
    return jax.jit(function, static_argnames=("config", "precision"), donate_argnames=donated)


def _placed(leaf: Any, device: Any) -> jax.Array:
    if isinstance(leaf, jax.Array):
        return leaf
    return backends.from_numpy(jnp, leaf if isinstance(leaf, np.ndarray) else backends.to_numpy(leaf), device)
