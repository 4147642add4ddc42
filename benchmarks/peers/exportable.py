"""BERT and GPT-2 spelled out for exporters, around the weights of transformers' modules.

The plain spelling traces cleanly, and is the one that the optimisers of ONNX Runtime and OpenVINO recognise.
"""

import math
from typing import Any

import torch
from torch.nn import functional

MASKED = -10000.0  # added to the scores of padding, as ONNX Runtime's fusion expects


class Encoder(torch.nn.Module):
    """(ids, mask, types), each (b, t) -> the hidden states. Attention as one operator where `fused`, else spelled out."""

    def __init__(self, model: Any, fused: bool):
        super().__init__()
        self.embeddings, self.layers = model.embeddings, model.encoder.layer
        self.heads, self.fused = model.config.num_attention_heads, fused

    def forward(self, input_ids, attention_mask, token_type_ids):
        table = self.embeddings
        x = table.word_embeddings(input_ids) + table.token_type_embeddings(token_type_ids)
        x = table.LayerNorm(x + table.position_embeddings(table.position_ids[:, : input_ids.shape[1]]))
        bias = (1.0 - attention_mask.unsqueeze(1).unsqueeze(2).to(torch.float32)) * MASKED
        for layer in self.layers:
            attention, output = layer.attention.self, layer.attention.output
            query, key, value = (split(linear(x), self.heads) for linear in (attention.query, attention.key, attention.value))
            y = self.attend(query, key, value, bias).permute(0, 2, 1, 3).contiguous()
            x = output.LayerNorm(output.dense(y.view(y.shape[0], y.shape[1], -1)) + x)
            hidden = functional.gelu(layer.intermediate.dense(x))
            x = layer.output.LayerNorm(layer.output.dense(hidden) + x)
        return x

    def attend(self, query, key, value, bias):
        if self.fused:
            return functional.scaled_dot_product_attention(query, key, value, bias)
        return (query @ key.transpose(-1, -2) / math.sqrt(query.shape[-1]) + bias).softmax(-1) @ value


class Decoder(torch.nn.Module):
    """(ids, places, order of the rows, keys, values, ..) -> (logits of the last place, keys, values, ..)."""

    def __init__(self, model: Any):
        super().__init__()
        self.body, self.heads = model.transformer, model.config.n_head

    def forward(self, input_ids, position_ids, beam_idx, *past):
        body = self.body
        x = body.wte(input_ids) + body.wpe(position_ids)
        length, before = input_ids.shape[1], past[0].shape[2]
        mask = (torch.arange(before + length)[None, :] <= torch.arange(before, before + length)[:, None])[None, None]
        present = []
        for block, keys, values in zip(body.h, past[::2], past[1::2], strict=True):
            parts = linear(block.attn.c_attn, block.ln_1(x)).chunk(3, -1)
            query, key, value = (split(part, self.heads) for part in parts)
            key = torch.cat([keys.index_select(0, beam_idx), key], 2)
            value = torch.cat([values.index_select(0, beam_idx), value], 2)
            present += [key, value]
            y = functional.scaled_dot_product_attention(query, key, value, mask)
            x = x + linear(block.attn.c_proj, y.transpose(1, 2).reshape(x.shape))
            hidden = functional.gelu(linear(block.mlp.c_fc, block.ln_2(x)), approximate="tanh")
            x = x + linear(block.mlp.c_proj, hidden)
        return (body.ln_f(x[:, -1:]) @ body.wte.weight.t(), *present)


def split(x: torch.Tensor, heads: int) -> torch.Tensor:
    """(b, t, d) -> (b, h, t, e)."""
    return x.view(x.shape[0], x.shape[1], heads, -1).permute(0, 2, 1, 3)


def linear(layer: Any, x: torch.Tensor) -> torch.Tensor:
    """Through one of GPT-2's layers, whose weight is (in, out)."""
    return x @ layer.weight + layer.bias
