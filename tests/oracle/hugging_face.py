"""Models of transformers as the oracle: random ones, and their outputs for padded batches."""

import numpy as np
import torch
from transformers import BertConfig, BertForMaskedLM, BertForPreTraining, BertModel, GPT2Config, GPT2LMHeadModel

# Rows without padding and with padding on the left, on the right, and on both sides.
MASK = np.array([[1] * 10, [0] * 4 + [1] * 6, [1] * 7 + [0] * 3, [0] * 2 + [1] * 3 + [0] * 5], bool)


def randomised(model, seed, spread=0.2):
    """All parameters normal: the usual spread of 0.02 would hide most errors in a layer. Norms around 1; no dropout."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            norm = "norm" in name.lower() or "ln_" in name
            parameter.copy_(spread * torch.randn(parameter.shape, generator=generator) + (1.0 if norm and name.endswith("weight") else 0.0))
    return model.eval()


def random_bert(seed):
    """One of the three classes, with sizes, activation and options drawn from `seed`."""
    draw = np.random.default_rng(seed)
    heads = int(draw.choice([1, 2, 3, 4]))
    config = BertConfig(
        vocab_size=int(draw.integers(20, 90)),
        max_position_embeddings=int(draw.integers(10, 40)),
        hidden_size=heads * int(draw.choice([4, 6, 8])),
        num_hidden_layers=int(draw.integers(1, 4)),
        num_attention_heads=heads,
        intermediate_size=int(draw.integers(5, 50)),
        hidden_act=str(draw.choice(["gelu", "gelu_new", "gelu_pytorch_tanh", "relu", "silu", "quick_gelu", "tanh"])),
        type_vocab_size=int(draw.integers(1, 4)),
        layer_norm_eps=float(draw.choice([1e-12, 1e-5, 1e-2])),
        tie_word_embeddings=bool(draw.integers(0, 2)),
    )
    kind = (BertModel, BertForMaskedLM, BertForPreTraining)[seed % 3]
    options = {"add_pooling_layer": bool(draw.integers(0, 2))} if kind is BertModel else {}
    return randomised(kind(config, **options), seed)


def random_gpt2(seed):
    """Sizes, activation and options drawn from `seed`."""
    draw = np.random.default_rng(seed)
    heads = int(draw.choice([1, 2, 3, 4]))
    config = GPT2Config(
        vocab_size=int(draw.integers(20, 90)),
        n_positions=int(draw.integers(18, 40)),
        n_embd=heads * int(draw.choice([4, 6, 8])),
        n_layer=int(draw.integers(1, 4)),
        n_head=heads,
        n_inner=[None, 37, int(draw.integers(5, 50))][seed % 3],
        activation_function=str(draw.choice(["gelu", "gelu_new", "relu", "silu", "tanh"])),
        layer_norm_epsilon=float(draw.choice([1e-12, 1e-5, 1e-2])),
        tie_word_embeddings=bool(draw.integers(0, 2)),
        bos_token_id=None,
        eos_token_id=None,
    )
    return randomised(GPT2LMHeadModel(config), seed)


def batch(vocabulary, mask=MASK, seed=0):
    """Ids, 0 under padding."""
    return np.random.default_rng(seed).integers(1, vocabulary, mask.shape) * mask


def run(model, tokens, mask, types=None):
    """A model's outputs. Positions count as xformer's do: a decoder's over real tokens, an encoder's from the first of them."""
    if model.config.model_type == "gpt2":
        positions = np.maximum(np.cumsum(mask, axis=1) - 1, 0)
    else:
        positions = np.maximum(np.arange(mask.shape[1]) - mask.argmax(axis=1)[:, None], 0)
    inputs = {"input_ids": tokens, "attention_mask": mask.astype(np.int64), "position_ids": positions}
    inputs |= {} if types is None else {"token_type_ids": types}
    with torch.inference_mode():
        return model(**{name: torch.from_numpy(array) for name, array in inputs.items()}, output_hidden_states=True)


def logits(output):
    """The scores over the vocabulary, or None from a model without a head."""
    return output.get("prediction_logits", output.get("logits"))


def greedy(model, prompts, mask, count):
    """The most likely tokens after left-padded prompts, and by how much the closest choice was won."""
    inputs = {"input_ids": torch.from_numpy(prompts), "attention_mask": torch.from_numpy(mask.astype(np.int64))}
    limits = {"max_new_tokens": count, "do_sample": False, "pad_token_id": 0, "eos_token_id": None}
    output = model.generate(**inputs, **limits, output_logits=True, return_dict_in_generate=True)
    best = torch.stack(output.logits, dim=1).topk(2).values
    return output.sequences[:, prompts.shape[1] :].tolist(), float((best[..., 0] - best[..., 1]).min())
