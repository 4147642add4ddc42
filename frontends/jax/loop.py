"""Greedy generation as one program: the prompt, every step and the stops stay on the device."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from xformer import cache, models
from xformer.annotations import Array, Bool, Int
from xformer.cache import Cache
from xformer.config import Config
from xformer.precision import Precision


class State(NamedTuple):
    """What goes from step to step. `chosen` holds -1 where a row has ended."""

    step: Int[Array, ""]
    ids: Int[Array, " b"]
    running: Bool[Array, " b"]
    failed: Bool[Array, " b"]  # whether the logits hold NaN
    chosen: Int[Array, "b s"]
    memory: Cache


def greedy(
    p,
    tokens: Int[Array, "b t"],
    mask: Bool[Array, "b t"],
    ending: Bool[Array, " v"],
    count: Int[Array, ""],
    *,
    capacity: int,
    config: Config,
    precision: Precision,
) -> tuple[Int[Array, "b s"], Bool[Array, " b"], Int[Array, ""]]:
    """At most `count` most likely ids a row, up to one that is `ending`; -1 fills what follows.

    Returns them with the rows whose last logits hold NaN, which end the loop, and how many steps ran. Only `capacity` is
    static: the same program serves any `count` and any stops.
    """
    functions, batch = models.find(config.model_type), tokens.shape[0]

    def record(state: State, logits, memory: Cache) -> State:
        ids = jnp.argmax(logits, axis=-1).astype(jnp.int32)
        column = jnp.where(state.running, ids, -1)[:, None]
        chosen = lax.dynamic_update_slice(state.chosen, column, (0, state.step))
        failed = jnp.isnan(logits).any(axis=-1)
        return State(state.step + 1, ids, state.running & ~ending[ids], failed, chosen, memory)

    def goes_on(state: State):
        return (state.step < count) & state.running.any() & ~state.failed.any()

    def advance(state: State) -> State:
        # Bound to the step, or XLA widens narrow weights once before the loop, and every step reads them wide.
        held, _ = lax.optimization_barrier((p, state.step))
        return record(state, *functions.decode(held, state.ids, state.memory, config=config, precision=precision))

    memory = cache.empty(jnp, config, batch, capacity, precision=precision)
    logits, memory = functions.prefill(p, tokens, mask, memory, config=config, precision=precision)
    rows = jnp.zeros(batch, jnp.int32)
    start = State(jnp.int32(0), rows, rows == 0, rows != 0, jnp.full((batch, capacity), -1, jnp.int32), memory)
    end = lax.while_loop(goes_on, advance, record(start, logits, memory))
    return end.chosen, end.failed, end.step


jitted = jax.jit(greedy, static_argnames=("capacity", "config", "precision"))
