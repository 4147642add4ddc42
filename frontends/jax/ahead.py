"""Ahead of time: programs from shapes alone, without weights and without the hardware they are for, and kept on disk."""

import functools
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental.compilation_cache import compilation_cache

from xformer import cache, models
from xformer.config import Config
from xformer.frontends.jax import loop, trees
from xformer.precision import Precision


@functools.cache
def jitted(function: Callable) -> Any:
    """One compiled function for all models of the same file: those of equal sizes share what XLA made of it.

    An argument called `memory` is donated.
    """
    donated = [name for name in inspect.signature(function).parameters if name == "memory"]
    return jax.jit(function, static_argnames=("config", "precision"), donate_argnames=donated)


def lower(
    name: str,
    config: Config,
    precision: Precision,
    batch: int,
    length: int,
    capacity: int | None = None,
    tree: Any = None,
    place: Callable[[str], Any] = lambda argument: None,
) -> jax.stages.Lowered:
    """One of a model's functions, or "greedy", lowered for a batch of `length` tokens; call its `compile()`.

    `tree` are the shapes of the parameters, by default those of an unplaced model; `place(argument)` gives the sharding of
    "tokens" and of "memory". `capacity` is the cache's, for decoders. What was compiled here, a call with arguments of
    these shapes finds again.
    """
    tree = trees.prepared(config, precision) if tree is None else tree
    arguments = _arguments(config, precision, batch, length, capacity, place)
    if name == "greedy":
        chosen = (arguments["tokens"], arguments["mask"], arguments["ending"], arguments["count"])
        return loop.jitted.lower(tree, *chosen, capacity=capacity, config=config, precision=precision)
    function = getattr(models.find(config.model_type), name)
    if name == "decode":
        arguments["tokens"] = _shape((batch,), jnp.int32, place("tokens"))
    wanted = [arguments[key] for key in inspect.signature(function).parameters if key in arguments]
    return jitted(function).lower(tree, *wanted, config=config, precision=precision)


def keep_compiled(folder: str | Path) -> None:
    """Keep compiled programs in `folder`, for this process and those that follow: a program is compiled once a machine.

    This is a setting of JAX, for everything that the process compiles.
    """
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", 0)
    compilation_cache.reset_cache()  # or a process that compiled something before would go on without


def _arguments(config, precision, batch, length, capacity, place) -> dict[str, Any]:
    tokens = _shape((batch, length), jnp.int32, place("tokens"))
    found = {"tokens": tokens, "mask": _shape((batch, length), jnp.bool, place("tokens"))}
    found |= {"ending": _shape((config.vocab_size,), jnp.bool, None), "count": _shape((), jnp.int32, None)}
    if capacity is not None:
        empty = jax.eval_shape(lambda: cache.empty(jnp, config, batch, capacity, precision=precision))
        found["memory"] = jax.tree.map(lambda leaf: _shape(leaf.shape, leaf.dtype, place("memory") if leaf.ndim else None), empty)
    return found


def _shape(shape, dtype, sharding):
    return jax.ShapeDtypeStruct(shape, dtype, sharding=sharding)
