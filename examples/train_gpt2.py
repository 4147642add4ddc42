"""Train a tiny GPT-2 on the characters of Python's standard library.

    python examples/train_gpt2.py --steps 300 --checkpoint gpt2.ckpt

Weights are fp32; contractions run in bf16, or in int8 with straight-through gradients; each layer is computed again for
the gradient rather than kept.
"""

from pathlib import Path
from typing import Annotated

import jax
import jax.numpy as jnp
import loop
import numpy as np
import text
import typer

import xformer
from xformer.config import PRESETS, replace
from xformer.frontends.jax import recompute, training
from xformer.models import gpt2
from xformer.precision import BF16, FP32, INT8, Precision

CONFIG = replace(PRESETS["gpt2-tiny"], vocab_size=256, positions=128, width=128, ffn=512, eos_token=None)
PRECISIONS: dict[str, Precision] = {"fp32": FP32, "bf16": BF16, "int8": training.straight_through(INT8)}


def loss(precision: Precision):
    """The mean cross-entropy, in nats a character, of each character after those before it."""

    def mean(params, tokens):
        logits = gpt2.forward(recompute(params), tokens[:, :-1], jnp.ones_like(tokens[:, :-1], bool), config=CONFIG, precision=precision)
        chosen = jnp.take_along_axis(jax.nn.log_softmax(logits), tokens[:, 1:, None], axis=-1)
        return -chosen.mean()

    return mean


def batches(characters: np.ndarray, size: int, length: int):
    """batch(number): rows of length + 1 characters from random places, the same for a number every time."""

    def batch(number: int) -> tuple[np.ndarray]:
        starts = np.random.default_rng([7, number]).integers(0, len(characters) - length - 1, size)
        return (characters[starts[:, None] + np.arange(length + 1)].astype(np.int32),)

    return batch


def main(
    steps: int = 300,
    batch_size: int = 16,
    length: int = 127,
    rate: float = 3e-3,
    precision: Annotated[str, typer.Option(help=", ".join(PRECISIONS))] = "bf16",
    checkpoint: Path | None = None,
    modules: Annotated[int | None, typer.Option(help="only so many of the library's modules")] = None,
) -> None:
    """Train; the loss on modules that are not trained on is said before, meanwhile and after."""
    mean, rule = loss(PRECISIONS[precision]), loop.optimiser(rate, steps)
    (others,) = batches(text.characters(True, modules), 32, length)(0)
    compiled = jax.jit(mean)
    start = loop.begin(training.parameters(xformer.init(CONFIG, 0, "jax")), rule)
    batch = batches(text.characters(False, modules), batch_size, length)
    loop.train(start, loop.stepper(mean, rule), batch, lambda params: f"{compiled(params, others):.3f} nats a character", steps, checkpoint)


if __name__ == "__main__":
    typer.run(main)
