"""The user's handle on a model: parameters, precision and namespace bound to the functions of the model's file."""

import functools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from xformer import backends, cache, checkpoint, checks, models, ops, params
from xformer import config as presets
from xformer import generate as generation
from xformer import precision as precisions
from xformer import tokenizer as tokenizers
from xformer.annotations import Array, Float
from xformer.config import Config
from xformer.precision import FP32, Precision


class Model:
    """A model that is ready to run. `load` and `init` make one.

    `transform` turns each pure function(params, ...) into what is called: itself by default, its compiled form in a frontend.
    """

    def __init__(
        self,
        config: Config,
        tree: Any,
        precision: Precision,
        xp: ModuleType,
        tokenizer: tokenizers.Tokenizer | None = None,
        device: Any = None,
        transform: Callable[[Callable], Callable] = lambda function: function,
    ):
        self.config, self.params, self.precision, self.xp = config, tree, precision, xp
        self.tokenizer, self.device, self.transform = tokenizer, device, transform
        self.functions = models.find(config.model_type)
        self._bound: dict[str, Callable] = {}

    def __repr__(self) -> str:
        c = self.config
        size = f"{c.layers} layers x {c.width}, {params.count(self.params) / 1e6:.1f} M numbers"
        return f"<{c.model_type}: {size}, {self.precision.name} on {backends.library_of(self.xp)}>"

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
        hidden = self(tokens, mask, token_types)
        if self._decodes:
            return hidden
        if not self.config.head:
            raise ValueError(f"this {self.config.model_type} has no masked-language-model head")
        return self._run("logits", hidden)

    # ------------------------------------------------------------------------------------------------------------- encoders
    def embed(self, texts: str | Sequence[str], batch_size: int = 32, normalize: bool = False) -> Float[Array, "n d"]:
        """One vector (n, d) a text: the mean of the hidden states of its tokens, of length 1 if `normalize`.

        Texts are cut at the limit that the model's folder states. Raises ValueError for a decoder or an empty batch.
        """
        if self._decodes:
            raise ValueError(f"embed needs an encoder; {self.config.model_type} is a decoder")
        rows = self._tokenizer.encode(checks.texts(texts), truncate=True)
        order = sorted(range(len(rows)), key=lambda index: len(rows[index]))  # alike lengths together: less padding
        size, parts = checks.count(batch_size, "batch_size"), []
        for start in range(0, len(rows), size):
            tokens, mask = tokenizers.pad([rows[index] for index in order[start : start + size]], self._tokenizer.pad_token)
            parts.append(self._run("embed", *self._inputs(tokens, mask, None)))
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
        pieces = self.stream(prompts, max_new_tokens, temperature, top_k, top_p, seed, stop, mask)
        if isinstance(prompts, str):
            return "".join(pieces)
        steps = list(pieces)
        if _is_one(prompts):
            return steps
        rows = [[piece for piece in row if piece is not None] for row in zip(*steps, strict=True)]
        return ["".join(row) for row in rows] if _is_text(prompts) else rows

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
        """As `generate`, step by step: each step's piece of text or id, or for a batch a list of them, None in ended rows."""
        if not self._decodes:
            raise ValueError(f"generate needs a decoder; {self.config.model_type} is an encoder")
        sampling = generation.Sampling(temperature, top_k, top_p, seed)
        ids, stop_texts = generation.check_stop(stop, self.config.eos_token)
        tokens, real = self._prompts(prompts, mask)
        steps = checks.count(max_new_tokens, "max_new_tokens")
        checks.length(tokens.shape[1], self.config, steps)
        return self._stream(tokens, real, steps, sampling, ids, stop_texts, _is_text(prompts), _is_one(prompts))

    def _stream(self, tokens, mask, steps, sampling, stop_ids, stop_texts, as_text, one):
        decode = self._tokenizer.decode if as_text or stop_texts else lambda ids: ""
        rows = [generation.Transcript(decode, stop_texts) for _ in tokens]
        pieces: list[str | None] = []

        def stopped(row, token):
            return token in stop_ids or rows[row].stopped

        prefill = functools.partial(self._prefill, capacity=tokens.shape[1] + steps)
        for step in generation.loop(prefill, self._decode, tokens, mask, steps, sampling, stopped):
            pieces = [None if token is None else row.push(token) for row, token in zip(rows, step, strict=True)]
            result = pieces if as_text else step
            yield result[0] if one else result
        if as_text:
            held = [row.flush() for row in rows]
            if any(held):
                yield held[0] if one else held

    def _prefill(self, tokens, mask, capacity):
        memory = cache.empty(self.xp, self.config, len(tokens), capacity, self.device)
        logits, memory = self._run("prefill", self._array(tokens), self._array(mask), memory)
        return backends.to_numpy(logits), memory

    def _decode(self, ids, memory):
        logits, memory = self._run("decode", self._array(ids), memory)
        return backends.to_numpy(logits), memory

    def _prompts(self, prompts, mask):
        if _is_text(prompts):
            if mask is not None:
                raise ValueError("a mask goes with ids, not with texts")
            prompts = self._tokenizer.encode(checks.texts(prompts))
        elif _is_one(prompts):
            prompts = [prompts]
        if isinstance(prompts, Sequence) and mask is None:
            empty = [index for index, row in enumerate(prompts) if len(row) == 0]
            if empty or not prompts:
                raise ValueError(f"prompt {empty[0]} is empty" if empty else "no prompts: the batch is empty")
            for row in prompts:
                checks.ids([row], self.config)
            prompts, mask = tokenizers.pad(prompts, left=True)
        return checks.batch(prompts, mask, self.config)

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
        tokens, mask = checks.batch(tokens, mask, self.config)
        if types is None:
            return self._array(tokens), self._array(mask)
        if not self.config.token_types:
            raise ValueError(f"{self.config.model_type} has no token types")
        return self._array(tokens), self._array(mask), self._array(checks.token_types(types, tokens.shape, self.config))

    def _array(self, x):
        return backends.from_numpy(self.xp, x, self.device)

    def _run(self, name, *arguments):
        if name not in self._bound:
            function = functools.partial(getattr(self.functions, name), config=self.config, precision=self.precision)
            self._bound[name] = self.transform(function)
        return self._bound[name](self.params, *arguments)


def load(path: str | Path, namespace: str | ModuleType = "numpy", precision: str | Precision | None = None, device: Any = None) -> Model:
    """The model in a Hugging Face folder or in one that `Model.save` wrote, with its tokenizer.

    `precision` is "fp32" unless the folder holds weights prepared for another one. Raises FileNotFoundError or ValueError
    as `checkpoint.read` does, ImportError when the namespace's library is not installed.
    """
    xp = backends.find(namespace)
    wanted = None if precision is None else precisions.find(precision)
    found = checkpoint.read(path)
    if found.precision not in (None, wanted or found.precision):
        raise ValueError(f"{path} holds weights prepared for {found.precision.name}; {wanted.name} was asked for")
    tokenizer = tokenizers.load(path, found.config.positions)
    chosen = found.precision or wanted or FP32
    return Model(found.config, _placed(found.config, found.tree, chosen, xp, device), chosen, xp, tokenizer, device)


def init(
    config: str | Config, seed: int = 0, namespace: str | ModuleType = "numpy", precision: str | Precision = "fp32", device: Any = None
) -> Model:
    """A model of a preset's sizes (or any Config) with random weights: the same for a seed on every namespace."""
    config, chosen, xp = presets.find(config), precisions.find(precision), backends.find(namespace)
    paths = list(params.leaves(spec(config)))

    def draw(path, leaf):
        if path.endswith((".scale", ".bias")):
            return np.full(leaf.shape, 1 if path.endswith(".scale") else 0, np.float32)
        generator = np.random.Generator(np.random.Philox(key=[seed, paths.index(path)]))
        return generator.standard_normal(leaf.shape, np.float32) * np.float32(0.02)

    return Model(config, _placed(config, params.map(draw, spec(config)), chosen, xp, device), chosen, xp, None, device)


def spec(config: str | Config) -> Any:
    """The parameter tree of a preset (or any Config) as shapes and dtypes: no memory, whatever the size."""
    config = presets.find(config)
    return models.find(config.model_type).spec(config)


def _placed(config, tree, precision, xp, device):
    """The tree of NumPy arrays in `xp`, weights prepared one by one; a leaf in two places is moved once."""
    moved: dict[int, Any] = {}

    def place(leaf):
        if not isinstance(leaf, np.ndarray):
            return leaf
        if id(leaf) not in moved:
            moved[id(leaf)] = backends.from_numpy(xp, leaf, device)
        return moved[id(leaf)]

    prepared = models.find(config.model_type).prepare(tree, lambda weight: precision.prepare(place(weight)))
    return params.map(lambda path, leaf: place(leaf), prepared)


def _is_text(prompts) -> bool:
    return isinstance(prompts, str) or (isinstance(prompts, Sequence) and len(prompts) > 0 and isinstance(prompts[0], str))


def _is_one(prompts) -> bool:
    """One prompt rather than a batch: a text, or a flat list of ids."""
    return isinstance(prompts, str) or (isinstance(prompts, Sequence) and len(prompts) > 0 and isinstance(prompts[0], int | np.integer))
