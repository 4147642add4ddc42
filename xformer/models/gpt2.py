"""GPT-2 (Radford et al. 2019): a decoder whose output layer is the token table."""

import dataclasses
from typing import Any

from xformer import blocks, cache, ops
from xformer.annotations import Array, Bool, Float, Int
from xformer.blocks import Linear, Norm
from xformer.cache import Cache
from xformer.config import Config
from xformer.names import Stored, conv1d
from xformer.params import Spec, node
from xformer.precision import Precision


@node
class Embedding:
    """The two tables whose rows are added."""

    token: Float[Array, "v d"]
    position: Float[Array, "positions d"]


@node
class Gpt2:
    """The parameters of a GPT-2."""

    embedding: Embedding
    layers: blocks.Layers
    norm: Norm
    head: Linear


def spec(config: Config) -> Gpt2:
    """The shapes of all parameters."""
    table = Spec((config.vocab_size, config.width))
    layers = tuple(blocks.block_spec(config) for _ in range(config.layers))
    embedding = Embedding(table, Spec((config.positions, config.width)))
    return Gpt2(embedding, layers, blocks.norm_spec(config.width), Linear(None if config.tied else table))


def prepare(p: Gpt2, narrow: Any) -> Gpt2:
    """The parameters with narrowed weights; a tied head gets a narrow copy of the table."""
    return blocks.prepare(dataclasses.replace(p, head=blocks.tied(p.head, p.embedding.token)), narrow)


def forward(p: Gpt2, tokens: Int[Array, "b t"], mask: Bool[Array, "b t"], *, config: Config, precision: Precision) -> Float[Array, "b t v"]:
    """The logits after each token. Positions count the real tokens of a row, so padding changes nothing on either side."""
    x, _ = hidden(p, tokens, mask, 0, (None,) * config.layers, config, precision)
    return logits(p, x, precision)


def prefill(
    p: Gpt2, tokens: Int[Array, "b t"], mask: Bool[Array, "b t"], memory: Cache, *, config: Config, precision: Precision
) -> tuple[Float[Array, "b v"], Cache]:
    """The logits after each row's last real token, and the cache with these tokens in it."""
    memory = memory.admit(mask)
    x, layers = hidden(p, tokens, memory.real, memory.position, memory.layers, config, precision)
    return logits(p, ops.pick(x, ops.last(mask)), precision), memory.advance(layers, tokens.shape[1])


def decode(p: Gpt2, tokens: Int[Array, " b"], memory: Cache, *, config: Config, precision: Precision) -> tuple[Float[Array, "b v"], Cache]:
    """The logits after one more token a row, and the cache with it."""
    xp = ops.namespace(tokens)
    return prefill(p, tokens[:, None], xp.ones_like(tokens[:, None], dtype=xp.bool), memory, config=config, precision=precision)


def hidden(
    p: Gpt2, tokens: Int[Array, "b t"], real: Bool[Array, "b s"], position: Any, layers: tuple, config: Config, precision: Precision
) -> tuple[Float[Array, "b t d"], tuple]:
    """The normalised states after the last layer of the tokens that stand at column `position` of the `real` ones.

    `layers` holds each layer's memory, or None where the tokens attend to themselves alone; it is returned with them in it.
    """
    count = tokens.shape[1]
    visible = cache.visible(real, position, count)
    x = blocks.embed(p.embedding.token, tokens) + blocks.embed(p.embedding.position, cache.places(real, position, count))
    x, written = ops.loop(lambda x, block, layer: blocks.decoder(x, visible, block, config, precision, layer), x, p.layers, layers)
    return blocks.norm(x, p.norm, config), written


def logits(p: Gpt2, x: Float[Array, "... d"], precision: Precision) -> Float[Array, "... v"]:
    """Scores over the vocabulary."""
    return precision.project(x, blocks.tied(p.head, p.embedding.token))


# ------------------------------------------------------------------------------------------------ Hugging Face checkpoints
def architecture(config: Config) -> str:
    """The class of transformers that reads this checkpoint."""
    return "GPT2LMHeadModel"


CONFIG = {  # field: (key, default); no default: the key must be there
    "vocab_size": ("vocab_size",),
    "positions": ("n_positions", 1024),
    "width": ("n_embd",),
    "layers": ("n_layer",),
    "heads": ("n_head",),
    "ffn": ("n_inner", None),  # null means four times the width
    "activation": ("activation_function", "gelu_new"),
    "eps": ("layer_norm_epsilon", 1e-5),
    "tied": ("tie_word_embeddings", True),
    "pad_token": ("pad_token_id", None),
    "eos_token": ("eos_token_id", None),
}
ONLY = {"scale_attn_weights": (True,), "scale_attn_by_inverse_layer_idx": (False,), "add_cross_attention": (False,)}
OPTIONAL: dict[str, str] = {}
PREFIX = "transformer."
RENAMED: dict[str, str] = {}
IGNORED = ("h.*.attn.bias", "h.*.attn.masked_bias")  # the causal mask, kept as a buffer by older versions
TIED = "lm_head.weight"  # ignored where the config ties it
UNTIED: dict[str, str] = {}
NAMES = {
    "embedding.token": "wte.weight",
    "embedding.position": "wpe.weight",
    "layers.*.attention.query.weight": conv1d("h.*.attn.c_attn.weight", 0, 3),
    "layers.*.attention.query.bias": Stored("h.*.attn.c_attn.bias", False, 0, 3),
    "layers.*.attention.key.weight": conv1d("h.*.attn.c_attn.weight", 1, 3),
    "layers.*.attention.key.bias": Stored("h.*.attn.c_attn.bias", False, 1, 3),
    "layers.*.attention.value.weight": conv1d("h.*.attn.c_attn.weight", 2, 3),
    "layers.*.attention.value.bias": Stored("h.*.attn.c_attn.bias", False, 2, 3),
    "layers.*.attention.output.weight": conv1d("h.*.attn.c_proj.weight"),
    "layers.*.attention.output.bias": "h.*.attn.c_proj.bias",
    "layers.*.attention_norm.scale": "h.*.ln_1.weight",
    "layers.*.attention_norm.bias": "h.*.ln_1.bias",
    "layers.*.up.weight": conv1d("h.*.mlp.c_fc.weight"),
    "layers.*.up.bias": "h.*.mlp.c_fc.bias",
    "layers.*.down.weight": conv1d("h.*.mlp.c_proj.weight"),
    "layers.*.down.bias": "h.*.mlp.c_proj.bias",
    "layers.*.ffn_norm.scale": "h.*.ln_2.weight",
    "layers.*.ffn_norm.bias": "h.*.ln_2.bias",
    "norm.scale": "ln_f.weight",
    "norm.bias": "ln_f.bias",
    "head.weight": TIED,
}
