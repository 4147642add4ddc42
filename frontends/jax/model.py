"""The model whose functions XLA compiles: a few shapes serve every length, and greedy generation stays on the device."""

import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from xformer import backends, checks, models, sampling
from xformer.frontends import precision_for
from xformer.frontends.jax import ahead, loop, trees
from xformer.generate import Plan, Transcript
from xformer.model import Model
from xformer.precision import Precision

LENGTHS = (16, 32, 64, 96, 128, 192, 256, 384, 512, 768, 1024)


def compile(
    model: Model,
    *shapes: tuple[int, ...],
    precision: str | Precision | None = None,
    device: Any = None,
    lengths: Sequence[int] = LENGTHS,
) -> "Compiled":
    """`model` compiled by XLA for `device` (its own, or the first), its parameters moved there if they live elsewhere.

    Texts and caches are padded to the next of `lengths`, and each function is compiled at its first call with a new batch
    or one of these; () compiles every length as it comes. `shapes` are compiled now: (batch, length), or for generation
    (batch, length of the prompt, new tokens). Padding changes results by rounding only.

    Raises ValueError when the model's weights are prepared for another precision than is asked for.
    """
    chosen = precision_for(model, precision)
    own = model.device if model.xp is jnp else None
    where = own if device is None else backends.find_device(jnp, device)
    tree = trees.place(model.params, where)
    if model.precision != chosen:
        tree = models.find(model.config.model_type).prepare(tree, chosen.prepare)
    placed = Model(model.config, tree, chosen, jnp, model.tokenizer, where, functions=model.functions)
    compiled = Compiled(placed, sorted(lengths))
    for shape in shapes:
        compiled.compile_for(*shape)
    return compiled


def jit(function: Callable) -> Callable:
    """A model's function, alone or bound to its config and precision by `functools.partial`, under `jax.jit`."""
    if isinstance(function, functools.partial):
        return functools.partial(ahead.jitted(function.func), **function.keywords)
    return ahead.jitted(function)


class Compiled(Model):
    """What `compile` returns."""

    def __init__(self, model: Model, lengths: Sequence[int]):
        tree = trees.place(model.params, model.device)
        super().__init__(model.config, tree, model.precision, jnp, model.tokenizer, model.device, jit, model.functions)
        self.lengths = lengths

    def __call__(self, tokens: Any, mask: Any = None, token_types: Any = None) -> jax.Array:
        return super().__call__(tokens, mask, token_types)[:, : np.shape(tokens)[1]]

    def logits(self, tokens: Any, mask: Any = None, token_types: Any = None) -> jax.Array:
        return super().logits(tokens, mask, token_types)[:, : np.shape(tokens)[1]]

    __call__.__doc__, logits.__doc__ = Model.__call__.__doc__, Model.logits.__doc__

    def save(self, folder: str | Path) -> None:
        """Write a folder that `xformer.frontends.jax.load` reads: programs for CPU, CUDA and TPU, of any batch and length.

        Raises ValueError for INT32, whose operands' range depends on the length.
        """
        from xformer.frontends.jax import export

        export.save(self, folder)

    def compile_for(self, batch: int, length: int, new: int = 0) -> None:
        """Compile for `batch` rows of at most `length` tokens and, where `new` is given, as many new ones."""
        checks.length(checks.count(length, "length"), self.config, new)
        if new:
            length, capacity = self._room(length, new)
            names = ["prefill", "decode", "greedy"]
        else:
            length, capacity = self._rung(length), None
            names = [name for name in ("forward", "embed") if hasattr(self.functions, name)]
        where = None if self.device is None else jax.sharding.SingleDeviceSharding(self.device)
        for name in names:
            tree = trees.shapes(self.params)
            ahead.lower(name, self.config, self.precision, batch, length, capacity, tree, lambda argument: where).compile()

    # -------------------------------------------------------------------------------------------------------------- inside
    def _rung(self, length: int) -> int:
        """The next of the lengths that things are compiled for."""
        return min(next((rung for rung in self.lengths if rung >= length), length), self.config.positions)

    def _room(self, length: int, new: int) -> tuple[int, int]:
        """The length that a prompt is padded to, and the cache's capacity; a prompt without room for padding stays as it is."""
        padded = self._rung(length)
        padded = padded if padded + new <= self.config.positions else length
        return padded, self._rung(padded + new)

    def _checked(self, tokens, mask, types):
        arrays = super()._checked(tokens, mask, types)
        more = self._rung(arrays[0].shape[1]) - arrays[0].shape[1]
        return tuple(np.pad(array, ((0, 0), (0, more))) for array in arrays)

    def _rows(self, plan: Plan) -> list[list]:
        """On the device where it can stay there: greedy, and ended by ids alone."""
        if plan.sampling.temperature or plan.ends.texts:
            return super()._rows(plan)
        tokens, mask, capacity = self._padded(plan.given.tokens, plan.given.mask, plan.count)
        ending = np.zeros(self.config.vocab_size, bool)
        ending[list(plan.ends.ids)] = True
        arrays = (self._array(x) for x in (tokens, mask, ending, np.int32(plan.count)))
        chosen, failed, steps = self._greedy(*arrays, capacity=capacity)
        sampling.refuse(backends.to_numpy(failed), int(steps) - 1)
        rows = [[int(token) for token in row if token >= 0] for row in backends.to_numpy(chosen)]
        return [_pieces(Transcript(plan.to_text), row) for row in rows] if plan.given.text and plan.to_text else rows

    def _greedy(self, *arrays, capacity):
        return loop.jitted(self.params, *arrays, capacity=capacity, config=self.config, precision=self.precision)

    def _prefill(self, tokens, mask, capacity):
        return super()._prefill(*self._padded(tokens, mask, capacity - tokens.shape[1]))

    def _padded(self, tokens, mask, new):
        length, capacity = self._room(tokens.shape[1], new)
        tokens, mask = (np.pad(x, ((0, 0), (length - x.shape[1], 0))) for x in (tokens, mask))
        return tokens, mask, capacity


def _pieces(transcript: Transcript, ids: list[int]) -> list[str]:
    return [*(transcript.push(token) for token in ids), transcript.flush()]
