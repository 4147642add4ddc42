"""BERT (Devlin et al. 2018, arXiv:1810.04805): an encoder with an optional pooler and masked-language-model head."""

import dataclasses
from typing import Any

from xformer import blocks, ops, padding
from xformer.annotations import Array, Bool, Float, Int
from xformer.blocks import Linear, Norm
from xformer.config import Config
from xformer.params import Spec, node
from xformer.precision import Precision


@node
class Embedding:
    """The three tables whose rows are added, and the norm that follows."""

    token: Float[Array, "v d"]
    position: Float[Array, "positions d"]
    token_type: Float[Array, "token_types d"]
    norm: Norm


@node
class MaskedHead:
    """Scores over the vocabulary: dense, activation, norm, then the token table (or a table of its own) and a bias."""

    dense: Linear
    norm: Norm
    output: Linear


@node
class Bert:
    """The parameters of a BERT."""

    embedding: Embedding
    layers: blocks.Layers
    pooler: Linear | None
    head: MaskedHead | None


def spec(config: Config) -> Bert:
    """The shapes of all parameters."""
    d, v = config.width, config.vocab_size
    embedding = Embedding(Spec((v, d)), Spec((config.positions, d)), Spec((config.token_types, d)), blocks.norm_spec(d))
    output = Linear(None if config.tied else Spec((v, d)), Spec((v,)))
    head = MaskedHead(blocks.linear_spec(d, d), blocks.norm_spec(d), output) if config.head else None
    layers = tuple(blocks.block_spec(config) for _ in range(config.layers))
    return Bert(embedding, layers, blocks.linear_spec(d, d) if config.pooler else None, head)


def prepare(p: Bert, narrow: Any) -> Bert:
    """The parameters with narrowed weights; a tied head gets a narrow copy of the table."""
    if p.head is not None:
        p = dataclasses.replace(p, head=dataclasses.replace(p.head, output=blocks.tied(p.head.output, p.embedding.token)))
    return blocks.prepare(p, narrow)


def forward(
    p: Bert,
    tokens: Int[Array, "b t"],
    mask: Bool[Array, "b t"],
    token_types: Int[Array, "b t"] | None = None,
    *,
    config: Config,
    precision: Precision,
) -> Float[Array, "b t d"]:
    """The hidden states after the last layer, zeros for padding. Positions count from each row's first real token."""
    xp, found = ops.namespace(tokens), padding.places(mask)
    positions = xp.clip(ops.count(tokens.shape[1], tokens)[None, :] - ops.first(mask)[:, None], 0, None)
    x = blocks.embed(p.embedding.token, tokens) + blocks.embed(p.embedding.position, positions)
    x = x + (p.embedding.token_type[0, :] if token_types is None else blocks.embed(p.embedding.token_type, token_types))
    x = padding.unpad(blocks.norm(x, p.embedding.norm, config), found)
    keys = mask[:, None, None, :]

    def step(x, layer, _):
        return blocks.encoder(x, keys, layer, config, precision, found), None

    x, _ = ops.loop(step, x, p.layers, (None,) * config.layers)
    return xp.where(mask[:, :, None], padding.pad(x, found), 0.0)


def embed(
    p: Bert,
    tokens: Int[Array, "b t"],
    mask: Bool[Array, "b t"],
    token_types: Int[Array, "b t"] | None = None,
    *,
    config: Config,
    precision: Precision,
) -> Float[Array, "b d"]:
    """The mean of each row's hidden states over its real tokens."""
    return ops.mean(forward(p, tokens, mask, token_types, config=config, precision=precision), mask)


def pool(p: Bert, hidden: Float[Array, "b t d"], mask: Bool[Array, "b t"], *, config: Config, precision: Precision) -> Float[Array, "b d"]:
    """The pooler: tanh of a projection of each row's first real token."""
    return ops.tanh(precision.project(ops.pick(hidden, ops.first(mask)), p.pooler))


def logits(p: Bert, hidden: Float[Array, "b t d"], *, config: Config, precision: Precision) -> Float[Array, "b t v"]:
    """The masked-language-model head over hidden states."""
    head: Any = p.head  # there, where config.head is
    x = ops.ACTIVATIONS[config.activation](precision.project(hidden, head.dense))
    return precision.project(blocks.norm(x, head.norm, config), blocks.tied(head.output, p.embedding.token))


# ------------------------------------------------------------------------------------------------ Hugging Face checkpoints
def architecture(config: Config) -> str:
    """The class of transformers that reads this checkpoint."""
    return "BertForMaskedLM" if config.head else "BertModel"


CONFIG = {  # field: (key, default); no default: the key must be there
    "vocab_size": ("vocab_size",),
    "positions": ("max_position_embeddings",),
    "width": ("hidden_size",),
    "layers": ("num_hidden_layers",),
    "heads": ("num_attention_heads",),
    "ffn": ("intermediate_size",),
    "activation": ("hidden_act", "gelu"),
    "eps": ("layer_norm_eps", 1e-12),
    "token_types": ("type_vocab_size", 2),
    "tied": ("tie_word_embeddings", True),
    "pad_token": ("pad_token_id", 0),
}
ONLY = {"position_embedding_type": ("absolute",), "is_decoder": (False,), "add_cross_attention": (False,)}
OPTIONAL = {"pooler": "pooler.dense.weight", "head": "cls.predictions.transform.dense.weight"}
PREFIX = "bert."
RENAMED = {".gamma": ".weight", ".beta": ".bias"}  # norms in checkpoints that came from TensorFlow
IGNORED = ("embeddings.position_ids", "cls.seq_relationship.weight", "cls.seq_relationship.bias")
TIED = "cls.predictions.decoder.weight"  # ignored where the config ties it
UNTIED = {"cls.predictions.decoder.bias": "cls.predictions.bias"}  # where it does not, the first is what is read
NAMES = {
    "embedding.token": "embeddings.word_embeddings.weight",
    "embedding.position": "embeddings.position_embeddings.weight",
    "embedding.token_type": "embeddings.token_type_embeddings.weight",
    "embedding.norm.scale": "embeddings.LayerNorm.weight",
    "embedding.norm.bias": "embeddings.LayerNorm.bias",
    "layers.*.attention.query.weight": "encoder.layer.*.attention.self.query.weight",
    "layers.*.attention.query.bias": "encoder.layer.*.attention.self.query.bias",
    "layers.*.attention.key.weight": "encoder.layer.*.attention.self.key.weight",
    "layers.*.attention.key.bias": "encoder.layer.*.attention.self.key.bias",
    "layers.*.attention.value.weight": "encoder.layer.*.attention.self.value.weight",
    "layers.*.attention.value.bias": "encoder.layer.*.attention.self.value.bias",
    "layers.*.attention.output.weight": "encoder.layer.*.attention.output.dense.weight",
    "layers.*.attention.output.bias": "encoder.layer.*.attention.output.dense.bias",
    "layers.*.attention_norm.scale": "encoder.layer.*.attention.output.LayerNorm.weight",
    "layers.*.attention_norm.bias": "encoder.layer.*.attention.output.LayerNorm.bias",
    "layers.*.up.weight": "encoder.layer.*.intermediate.dense.weight",
    "layers.*.up.bias": "encoder.layer.*.intermediate.dense.bias",
    "layers.*.down.weight": "encoder.layer.*.output.dense.weight",
    "layers.*.down.bias": "encoder.layer.*.output.dense.bias",
    "layers.*.ffn_norm.scale": "encoder.layer.*.output.LayerNorm.weight",
    "layers.*.ffn_norm.bias": "encoder.layer.*.output.LayerNorm.bias",
    "pooler.weight": "pooler.dense.weight",
    "pooler.bias": "pooler.dense.bias",
    "head.dense.weight": "cls.predictions.transform.dense.weight",
    "head.dense.bias": "cls.predictions.transform.dense.bias",
    "head.norm.scale": "cls.predictions.transform.LayerNorm.weight",
    "head.norm.bias": "cls.predictions.transform.LayerNorm.bias",
    "head.output.weight": TIED,
    "head.output.bias": "cls.predictions.bias",
}
