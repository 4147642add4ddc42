"""The loop of both examples: optax on a parameter tree, and checkpoints that a run resumes from bit for bit."""

import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax

from xformer import storage


class State(NamedTuple):
    """What a run is: everything that the next step depends on, batches being drawn by the number of the step."""

    params: Any
    moments: Any  # of the optimiser
    step: jax.Array


def optimiser(rate: float, steps: int) -> optax.GradientTransformation:
    """AdamW (Loshchilov and Hutter 2017, arXiv:1711.05101) with clipped gradients, a warm-up and a cosine decay to a tenth."""
    schedule = optax.warmup_cosine_decay_schedule(0.0, rate, max(1, steps // 20), steps, rate / 10)
    return optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(schedule, weight_decay=0.01))


def begin(params: Any, rule: optax.GradientTransformation) -> State:
    """The state before the first step. The parameters are copied, as the steps overwrite theirs."""
    params = jax.tree.map(jnp.copy, params)
    return State(params, rule.init(params), jnp.int32(0))


def stepper(loss: Callable, rule: optax.GradientTransformation) -> Callable[..., tuple[State, jax.Array]]:
    """One compiled step: (state, batch) -> the next state, which takes the memory of the last, and loss(params, *batch)."""

    def step(state: State, batch: tuple) -> tuple[State, jax.Array]:
        value, gradient = jax.value_and_grad(loss)(state.params, *batch)
        updates, moments = rule.update(gradient, state.moments, state.params)
        return State(optax.apply_updates(state.params, updates), moments, state.step + 1), value

    return jax.jit(step, donate_argnums=0)


def train(
    state: State,
    step: Callable,
    batch: Callable[[int], tuple],
    held_out: Callable[[Any], str],
    steps: int,
    checkpoint: Path | None = None,
    every: int = 20,
    told: Callable[[str], Any] = print,
) -> State:
    """Go on until `steps` steps are done: `batch(number)` is what a step learns from, `held_out(params)` what is said of progress.

    A checkpoint that is there is where it begins; one is written each `every` steps and at the end.
    """
    if checkpoint is not None and checkpoint.exists():
        state = load(checkpoint, state)
        told(f"resumed from {checkpoint} after step {int(state.step)}")
    told(f"step {int(state.step)}: held out: {held_out(state.params)}")
    losses, times = [], []
    while int(state.step) < steps:
        start = time.perf_counter()
        state, value = step(state, batch(int(state.step)))
        losses.append(float(value))
        times.append(time.perf_counter() - start)
        if int(state.step) % every == 0 or int(state.step) == steps:
            pace = f"{statistics.median(times):.3f} s a step"  # the median: the first step of a process compiles
            told(f"step {int(state.step)}: loss {statistics.mean(losses):.3f}, {pace}; held out: {held_out(state.params)}")
            losses, times = [], []
            if checkpoint is not None:
                save(checkpoint, state)
    return state


def save(path: Path, state: State) -> None:
    """Write a checkpoint; an old one stays whole until the new one is."""
    with storage.replacing(path) as (temporary,), temporary.open("wb") as file:
        eqx.tree_serialise_leaves(file, state)


def load(path: Path, like: State) -> State:
    """The checkpoint at `path`, of a run with the model and the optimiser of `like`."""
    with path.open("rb") as file:
        return eqx.tree_deserialise_leaves(file, like)
