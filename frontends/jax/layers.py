"""Other ways through a model's layers, chosen by what stands in the tree: the model's function stays as it is."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from xformer import ops
from xformer.params import node


@node
class Stacked:
    """Equal layers, each leaf with an axis for the layer in front: one `lax.scan`, so that depth costs no compile time."""

    block: Any

    def loop(self, step: Callable, x: jax.Array, states: tuple) -> tuple[jax.Array, tuple]:
        """As `ops.loop`."""
        x, results = lax.scan(lambda x, layer: step(x, *layer), x, (self.block, _stack(states)))
        return x, _split(results, len(states))


@node
class Recomputed:
    """Layers, as a tuple or stacked, whose inner values are computed again for the gradient rather than kept for it."""

    layers: Any

    def loop(self, step: Callable, x: jax.Array, states: tuple) -> tuple[jax.Array, tuple]:
        """As `ops.loop`."""
        return ops.loop(jax.checkpoint(step), x, self.layers, states)


def stack(p: Any) -> Any:
    """A model's parameters with `p.layers` stacked. They are copied: keep the one or the other."""
    return dataclasses.replace(p, layers=Stacked(_stack(p.layers)))


def unstack(p: Any) -> Any:
    """The inverse of `stack`."""
    depth = jax.tree.leaves(p.layers)[0].shape[0]
    return dataclasses.replace(p, layers=_split(p.layers.block, depth))


def recompute(p: Any) -> Any:
    """A model's parameters, stacked or not, with each layer checkpointed: memory for the gradient grows by one residual a layer."""
    return dataclasses.replace(p, layers=Recomputed(p.layers))


def _stack(trees):
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *trees)


def _split(tree, depth):
    leaves, structure = jax.tree.flatten(tree)
    return tuple(jax.tree.unflatten(structure, [leaf[index] for leaf in leaves]) for index in range(depth))
