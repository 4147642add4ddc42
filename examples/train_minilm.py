"""Fine-tune MiniLM to find a function of Python's standard library by what is said of it.

    python examples/train_minilm.py --steps 60 --checkpoint minilm.ckpt

A name and the first sentence of its documentation are a pair; the other sentences of a batch are what it is not (van den
Oord et al. 2018, arXiv:1807.03748). Weights are fp32, contractions run in bf16 or in int8 with straight-through gradients.
"""

from pathlib import Path
from typing import Annotated, Any

import jax
import jax.numpy as jnp
import loop
import numpy as np
import text
import typer

import xformer
from xformer import ops, tokenizer
from xformer.config import Config
from xformer.frontends.jax import recompute, training
from xformer.models import bert
from xformer.precision import BF16, FP32, INT8, Precision

PRECISIONS: dict[str, Precision] = {"fp32": FP32, "bf16": BF16, "int8": training.straight_through(INT8)}
TEMPERATURE, LENGTH = 0.05, 32


def similarities(params: Any, names: tuple, sentences: tuple, config: Config, precision: Precision) -> jax.Array:
    """The cosine of each name with each sentence, over the temperature."""
    sides = (bert.embed(params, *side, config=config, precision=precision) for side in (names, sentences))
    a, b = (ops.normalize(side) for side in sides)
    return a @ b.T / TEMPERATURE


def loss(config: Config, precision: Precision):
    """The mean cross-entropy of each name's own sentence among all in the batch."""

    def mean(params, names, sentences):
        return -jnp.diagonal(jax.nn.log_softmax(similarities(recompute(params), names, sentences, config, precision))).mean()

    return mean


def arrays(pairs: list[tuple[str, str]], encode: tokenizer.Tokenizer) -> tuple[tuple, tuple]:
    """Tokens and masks of the names, and of the sentences, all of one length."""

    def side(texts):
        tokens, mask = np.full((len(texts), LENGTH), encode.pad_token, np.int32), np.zeros((len(texts), LENGTH), bool)
        for row, ids in enumerate(encode.encode(texts, truncate=True)):
            tokens[row, : len(ids[:LENGTH])], mask[row, : len(ids[:LENGTH])] = ids[:LENGTH], True
        return tokens, mask

    names, sentences = zip(*pairs, strict=True)
    return side(names), side(sentences)


def found(kept: tuple[tuple, tuple], config: Config, precision: Precision):
    """What is said of parameters: how many names find their own sentence first among all that are held out, and the loss."""
    compiled = jax.jit(lambda params, names, sentences: similarities(params, names, sentences, config, precision))

    def said(params) -> str:
        scores = np.asarray(compiled(params, *kept))
        own = np.diagonal(scores)
        first = np.mean((scores > own[:, None]).sum(axis=1) == 0)
        return f"{first:.1%} of {len(own)} found first, loss {np.mean(np.log(np.exp(scores).sum(axis=1)) - own):.3f}"

    return said


def main(
    folder: Annotated[Path, typer.Argument(help="a Hugging Face folder of an encoder with its tokenizer")],
    steps: int = 60,
    batch_size: int = 16,
    rate: float = 5e-5,
    precision: Annotated[str, typer.Option(help=", ".join(PRECISIONS))] = "bf16",
    checkpoint: Path | None = None,
    modules: Annotated[int | None, typer.Option(help="only so many of the library's modules")] = None,
) -> None:
    """Train; how many held-out names find their sentence first is said before, meanwhile and after."""
    model = xformer.load(folder, "jax")
    pairs = text.described(False, modules)
    kept = arrays(text.described(True, modules)[:256], model.tokenizer)

    def batch(number):
        chosen = np.random.default_rng([7, number]).choice(len(pairs), batch_size, replace=False)
        return arrays([pairs[index] for index in chosen], model.tokenizer)

    rule = loop.optimiser(rate, steps)
    start = loop.begin(training.parameters(model), rule)
    step = loop.stepper(loss(model.config, PRECISIONS[precision]), rule)
    loop.train(start, step, batch, found(kept, model.config, PRECISIONS[precision]), steps, checkpoint)


if __name__ == "__main__":
    typer.run(main)
