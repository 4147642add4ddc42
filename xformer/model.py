"""The user's handle on a model: parameters, precision and namespace bound to the functions of the model's file."""

import functools
import importlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from xformer import backends, cache, checkpoint, checks, models, ops, params
from xformer import generate as generation
from xformer import tokenizer as tokenizers
from xformer.annotations import Array, Float
from xformer.config import Config
from xformer.precision import Precision
from xformer.sampling import Sampling


@dataclass(frozen=True)
class Module:
    """A module, which cannot be pickled, by its name."""

    name: str

    def find(self) -> ModuleType:
        """The module itself."""
        return importlib.import_module(self.name)


def as_it_is(function: Callable) -> Callable:
    """The transform of an eager model."""
    return function


class Model:
    """A model that is ready to run. `xformer.load` and `xformer.init` make one.

    `transform` turns each pure function(params, ...) into what is called: itself by default, its compiled form in a frontend.
    `functions` stands for the model's file where that is not what runs.
    """

    def __init__(
        self,
        config: Config,
        tree: Any,
        precision: Precision,
        xp: ModuleType,
        tokenizer: tokenizers.Tokenizer | None = None,
        device: Any = None,
        transform: Callable[[Callable], Callable] = as_it_is,
        functions: Any = None,
    ):
        self.config, self.params, self.precision, self.xp = config, tree, precision, xp
        self.tokenizer, self.device, self.transform = tokenizer, device, transform
        self.functions = models.find(config.model_type) if functions is None else functions
        self._bound: dict[str, Callable] = {}

    def __repr__(self) -> str:
        c = self.config
        size = f"{c.layers} layers x {c.width}, {params.count(self.functions.spec(c)) / 1e6:.1f} M parameters"
        return f"<{c.model_type}: {size}, {self.precision.name} on {backends.library_of(self.xp)}>"

    def __getstate__(self) -> dict[str, Any]:
        """For pickle and deepcopy: modules by name."""
        state = {name: Module(value.__name__) if isinstance(value, ModuleType) else value for name, value in vars(self).items()}
        return state | {"_bound": {}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update({name: value.find() if isinstance(value, Module) else value for name, value in state.items()})

    # ---------------------------------------------------------------------------------------------------- arrays in and out
    def __call__(self, tokens: Any, mask: Any = None, token_types: Any = None) -> Float[Array, "b t _"]:
        """The hidden states (b, t, d) of an encoder, the logits (b, t, v) of a decoder.

        `tokens` (b, t) and `mask` (True or 1 for real tokens) may be lists or arrays of any namespace. Raises ValueError,
        naming the value and the limit, for ids, lengths and shapes that the model cannot take.
        """
        return self._run("forward", *self._inputs(tokens, mask, token_types))

    def pool(self, tokens: Any, mask: Any = None, token_types: Any = None) -> Float[Array, "b d"]:
        """An encoder's pooled output (b, d). Raises ValueError when the checkpoint has no pooler."""
        if not self.config.pooler:
            raise ValueError(f"this {self.config.model_type} has no pooler")
        inputs = self._inputs(tokens, mask, token_types)
        return self._run("pool", self._run("forward", *inputs), inputs[1])

    def logits(self, tokens: Any, mask: Any = None, token_types: Any = None) -> Float[Array, "b t v"]:
        """Scores over the vocabulary (b, t, v). Raises ValueError for an encoder without a masked-language-model head."""
        if self._decodes:
            return self._run("forward", *self._inputs(tokens, mask, token_types))
        if not self.config.head:
            raise ValueError(f"this {self.config.model_type} has no masked-language-model head")
        return self._run("logits", self._run("forward", *self._inputs(tokens, mask, token_types)))

    # ------------------------------------------------------------------------------------------------------------- encoders
    def embed(
        self,
        texts: str | Sequence[str],
        batch_size: int = 32,
        normalize: bool = False,
        progress: Callable[[int], Any] = lambda count: None,
    ) -> Float[Array, "n d"]:
        """One vector (n, d) a text: the mean of the hidden states of its tokens, of length 1 if `normalize`.

        Texts are cut at the limit that the model's folder states; `progress` is told how many more are done after each
        batch. Raises ValueError for a decoder or an empty batch.
        """
        if self._decodes:
            raise ValueError(f"embed needs an encoder; {self.config.model_type} is a decoder")
        rows = self._tokenizer.encode(checks.texts(texts), truncate=True)
        order = sorted(range(len(rows)), key=lambda index: len(rows[index]))  # alike lengths together: less padding
        size, parts = checks.count(batch_size, "batch_size"), []
        for start in range(0, len(rows), size):
            tokens, mask = tokenizers.pad([rows[index] for index in order[start : start + size]], self._tokenizer.pad_token)
            parts.append(self._run("embed", *self._inputs(tokens, mask, None)))
            progress(len(tokens))
        vectors = self.xp.take(self.xp.concat(parts, axis=0), self._array(np.argsort(order)), axis=0)
        return ops.normalize(vectors) if normalize else vectors

    # ------------------------------------------------------------------------------------------------------------- decoders
    def generate(
        self,
        prompts: Any,
        max_new_tokens: int = 64,
        temperature: float = 0.0,
        top_k: int | None = None,
        top_p: float | None = None,
        seed: int = 0,
        stop: Sequence[int | str] | int | str | None = None,
        mask: Any = None,
    ) -> Any:
        """What follows each prompt: texts for texts, ids for ids; one prompt gives one result, a batch a list.

        A temperature of 0 is greedy; otherwise the same seed draws the same tokens on every namespace. `stop` ends a row
        at any of these ids (kept) or texts (cut); None means the model's end-of-text id, () nothing. Ids are a list of
        lists of any lengths, or an array (b, t) with a `mask`, padded on either side.
        """
        plan = self._plan(prompts, max_new_tokens, Sampling(temperature, top_k, top_p, seed), stop, mask)
        rows = self._rows(plan)
        results = ["".join(row) for row in rows] if plan.given.text else rows
        return results[0] if plan.given.single else results

    def stream(
        self,
        prompts: Any,
        max_new_tokens: int = 64,
        temperature: float = 0.0,
        top_k: int | None = None,
        top_p: float | None = None,
        seed: int = 0,
        stop: Sequence[int | str] | int | str | None = None,
        mask: Any = None,
    ) -> Iterator[Any]:
        """As `generate`, step by step: a piece of text or an id, or for a batch a list of them with None in ended rows."""
        plan = self._plan(prompts, max_new_tokens, Sampling(temperature, top_k, top_p, seed), stop, mask)
        return (step[0] if plan.given.single else step for step in self._steps(plan))

    def _plan(self, prompts, max_new_tokens, sampling, stop, mask) -> generation.Plan:
        """What was asked for, checked before anything runs."""
        if not self._decodes:
            raise ValueError(f"generate needs a decoder; {self.config.model_type} is an encoder")
        ends = generation.Ends.of(stop, self.config)
        given = generation.prompts(prompts, mask, lambda texts: self._tokenizer.encode(texts), self.config)
        count = checks.count(max_new_tokens, "max_new_tokens")
        checks.length(given.tokens.shape[1], self.config, count)
        return generation.Plan(given, count, sampling, ends, self._tokenizer.decode if given.text or ends.texts else None)

    def _rows(self, plan) -> list[list]:
        """Each row's ids, or pieces of text."""
        rows: list[list] = [[] for _ in plan.given.tokens]
        for step in self._steps(plan):
            for row, piece in zip(rows, step, strict=True):
                row += [] if piece is None else [piece]
        return rows

    def _steps(self, plan) -> Iterator[list[Any]]:
        prefill = functools.partial(self._prefill, capacity=plan.given.tokens.shape[1] + plan.count)
        return generation.steps(prefill, self._decode, plan.given, plan.count, plan.sampling, plan.ends, plan.to_text)

    def _prefill(self, tokens, mask, capacity):
        memory = cache.empty(self.xp, self.config, len(tokens), capacity, self.device, self.precision)
        logits, memory = self._run("prefill", self._array(tokens), self._array(mask), memory)
        return backends.to_numpy(logits), memory

    def _decode(self, ids, memory):
        logits, memory = self._run("decode", self._array(ids), memory)
        return backends.to_numpy(logits), memory

    # ---------------------------------------------------------------------------------------------------------------- files
    def save(self, folder: str | Path) -> None:
        """Write a folder that `load` reads: a Hugging Face one in fp32, one of prepared weights in another precision."""
        tree = params.map(lambda path, leaf: backends.to_numpy(leaf), self.params)
        files = {} if self.tokenizer is None else self.tokenizer.files()
        checkpoint.write(folder, checkpoint.Checkpoint(self.config, tree, self.precision), files)

    # -------------------------------------------------------------------------------------------------------------- inside
    @property
    def _decodes(self) -> bool:
        return hasattr(self.functions, "decode")

    @property
    def _tokenizer(self) -> tokenizers.Tokenizer:
        if self.tokenizer is None:
            raise ValueError("this model has no tokenizer: its folder has none, or it was not loaded from one; pass ids")
        return self.tokenizer

    def _inputs(self, tokens, mask, types):
        return tuple(self._array(x) for x in self._checked(tokens, mask, types))

    def _checked(self, tokens, mask, types) -> tuple[np.ndarray, ...]:
        tokens, mask = checks.batch(tokens, mask, self.config)
        if types is None:
            return tokens, mask
        if not self.config.token_types:
            raise ValueError(f"{self.config.model_type} has no token types")
        return tokens, mask, checks.token_types(types, tokens.shape, self.config)

    def _array(self, x):
        return backends.from_numpy(self.xp, x, self.device)

    def _run(self, name, *arguments):
        return self._bind(name)(self.params, *arguments)

    def _bind(self, name):
        if name not in self._bound:
            function = functools.partial(getattr(self.functions, name), config=self.config, precision=self.precision)
            self._bound.setdefault(name, self.transform(function))  # the first of the threads that come at once
        return self._bound[name]
