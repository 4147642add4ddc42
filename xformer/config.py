"""The sizes of a model and the presets; nothing here knows a model's structure or a file's names."""

from dataclasses import dataclass, replace

from xformer.ops import ACTIVATIONS


@dataclass(frozen=True)
class Config:
    """Sizes and options of one model. Hashable, so that a compiler may treat it as a constant."""

    model_type: str  # the file under xformer/models/
    vocab_size: int
    positions: int  # the longest sequence
    width: int  # of the residual stream
    layers: int
    heads: int
    ffn: int  # width of the feed-forward layer
    activation: str  # a key of ops.ACTIVATIONS
    eps: float  # added to the variance in norms
    token_types: int = 0
    pooler: bool = False
    head: bool = False  # an encoder's output layer over the vocabulary; a decoder always has one
    tied: bool = True  # that output layer is the token table again
    pad_token: int | None = None
    eos_token: int | None = None

    def __post_init__(self):
        for name in ("vocab_size", "positions", "width", "layers", "heads", "ffn"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ValueError(f"config: {name} must be a positive integer, got {value!r}")
        if type(self.token_types) is not int or self.token_types < 0:
            raise ValueError(f"config: token_types must be an integer of at least 0, got {self.token_types!r}")
        if self.width % self.heads:
            raise ValueError(f"config: width {self.width} is not a multiple of heads {self.heads}")
        if not isinstance(self.activation, str) or self.activation not in ACTIVATIONS:
            raise ValueError(f"config: unknown activation {self.activation!r}; known: {', '.join(ACTIVATIONS)}")
        if not (isinstance(self.eps, float) and 0 < self.eps < 1):
            raise ValueError(f"config: eps must be a number between 0 and 1, got {self.eps!r}")
        for name in ("pad_token", "eos_token"):
            value = getattr(self, name)
            if value is not None and not (type(value) is int and 0 <= value < self.vocab_size):
                raise ValueError(f"config: {name} must be an id in [0, {self.vocab_size}) or None, got {value!r}")
        for name in ("pooler", "head", "tied"):
            if not isinstance(getattr(self, name), bool):
                raise ValueError(f"config: {name} must be True or False, got {getattr(self, name)!r}")


def _bert(layers: int, width: int, **changes) -> Config:
    base = Config("bert", 30522, 512, width, layers, width // 64, 4 * width, "gelu", 1e-12, 2, pooler=True, pad_token=0)
    return replace(base, **changes)


def _gpt2(layers: int, width: int, heads: int, **changes) -> Config:
    base = Config("gpt2", 50257, 1024, width, layers, heads, 4 * width, "gelu_new", 1e-5, eos_token=50256)
    return replace(base, **changes)


PRESETS = {
    "bert-base": _bert(12, 768),
    "bert-large": _bert(24, 1024),
    "gpt2": _gpt2(12, 768, 12),
    "gpt2-medium": _gpt2(24, 1024, 16),
    "gpt2-large": _gpt2(36, 1280, 20),
    "gpt2-xl": _gpt2(48, 1600, 25),
    "bert-tiny": _bert(2, 64, vocab_size=512, positions=128, heads=4),
    "gpt2-tiny": _gpt2(2, 64, 4, vocab_size=512, positions=128, eos_token=511),
}


def find(config: str | Config) -> Config:
    """The preset called `config`, or `config` itself. Raises ValueError naming the presets."""
    if isinstance(config, Config):
        return config
    if not isinstance(config, str) or config not in PRESETS:
        raise ValueError(f"unknown preset {config!r}; known: {', '.join(PRESETS)}")
    return PRESETS[config]
