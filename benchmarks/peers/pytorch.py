"""PyTorch: the models of transformers as they are, quantised dynamically, or under torch.compile."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from transformers import BertModel, DynamicCache, GPT2LMHeadModel
from transformers.pytorch_utils import Conv1D

from benchmarks.peers.loaded import Decoder, Encoder, Loaded
from benchmarks.peers.points import PROMPT
from benchmarks.rivals import inductor
from benchmarks.workloads import NEW
from xformer import machine

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "int8": torch.float32}  # of what is not quantised


def load(library: str, role: str, precision: str, variant: str, source: Path, folder: Path) -> Loaded:
    """The folder's model; in int8 its linear layers quantise their inputs as they come."""
    torch.set_num_threads(machine.cores()["usable"])
    if role == "encoder":
        if library == "torch.compile":
            fast = inductor.bert(source, precision)
            return Encoder(lambda ids, mask: lambda: fast(ids, mask))
        return _encoder(_quantised(bert(source), precision))
    model = gpt2(source)
    eager = _quantised(model, precision)
    generate = inductor.gpt2(source, precision, PROMPT + NEW) if library == "torch.compile" else _greedy(eager)
    return Decoder(generate, lambda ids: _logits(eager, ids))


def bert(source: Path) -> BertModel:
    """The encoder in fp32."""
    return BertModel.from_pretrained(source, add_pooling_layer=False, attn_implementation="sdpa").eval()


def gpt2(source: Path) -> GPT2LMHeadModel:
    """The decoder in fp32."""
    return GPT2LMHeadModel.from_pretrained(source).eval()


def _quantised(model: torch.nn.Module, precision: str) -> torch.nn.Module:
    if precision != "int8":
        return model.to(DTYPES[precision])
    return torch.ao.quantization.quantize_dynamic(_with_linear(model), {torch.nn.Linear}, dtype=torch.qint8)


def _with_linear(model: torch.nn.Module) -> torch.nn.Module:
    """GPT-2's Conv1D layers as nn.Linear, which is what dynamic quantisation looks for."""
    for parent in list(model.modules()):
        for name, layer in list(parent.named_children()):
            if isinstance(layer, Conv1D):
                linear = torch.nn.Linear(*layer.weight.shape)
                linear.weight.data, linear.bias.data = layer.weight.data.t().contiguous(), layer.bias.data
                setattr(parent, name, linear)
    return model


def _encoder(model: torch.nn.Module) -> Encoder:
    def bind(ids: np.ndarray, mask: np.ndarray) -> Callable[[], np.ndarray]:
        inputs = {"input_ids": torch.from_numpy(ids), "attention_mask": torch.from_numpy(mask)}

        @torch.inference_mode()
        def run() -> np.ndarray:
            return model(**inputs).last_hidden_state.float().numpy()

        return run

    return Encoder(bind)


def _greedy(model: torch.nn.Module) -> Callable[[np.ndarray, int], np.ndarray]:
    """A plain loop, which costs less than `model.generate`."""

    @torch.inference_mode()
    def generate(ids: np.ndarray, count: int) -> np.ndarray:
        tokens, found, cache = torch.from_numpy(ids), [], DynamicCache(config=model.config)
        for _ in range(count):
            logits = model(tokens, past_key_values=cache, use_cache=True, logits_to_keep=1).logits
            tokens = logits[:, -1].argmax(-1, keepdim=True)
            found.append(tokens)
        return torch.cat(found, 1).numpy()

    return generate


@torch.inference_mode()
def _logits(model: torch.nn.Module, ids: np.ndarray) -> np.ndarray:
    return model(torch.from_numpy(ids), logits_to_keep=1).logits[:, -1].float().numpy()
