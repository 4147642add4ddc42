"""GPT-2 as a GGUF file, which llama.cpp reads."""

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from gguf import GGMLQuantizationType as Stored
from gguf import LlamaFileType as Kind

FORMATS = {"f32": (Stored.F32, Kind.ALL_F32), "bf16": (Stored.BF16, Kind.MOSTLY_BF16), "q8_0": (Stored.Q8_0, Kind.MOSTLY_Q8_0)}
LINEAR = {"attn_qkv": "attn.c_attn", "attn_output": "attn.c_proj", "ffn_up": "mlp.c_fc", "ffn_down": "mlp.c_proj"}  # by GGUF's names
NORMS = {"attn_norm": "ln_1", "ffn_norm": "ln_2"}


def write(model: Any, path: Path, name: str) -> None:
    """Matrices in the format of that name, vectors and positions in fp32."""
    writer = gguf.GGUFWriter(str(path), "gpt2")
    _describe(writer, model.config, FORMATS[name][1])
    for place, weight in _tensors(model.transformer):
        array = np.ascontiguousarray(weight.detach().numpy(), np.float32)
        if weight.ndim == 1 or place.startswith("position"):
            writer.add_tensor(place, array)
        else:
            writer.add_tensor(place, gguf.quants.quantize(array, FORMATS[name][0]), raw_dtype=FORMATS[name][0])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _describe(writer: gguf.GGUFWriter, config: Any, kind: Kind) -> None:
    writer.add_block_count(config.n_layer)
    writer.add_context_length(config.n_positions)
    writer.add_embedding_length(config.n_embd)
    writer.add_feed_forward_length(config.n_inner or 4 * config.n_embd)
    writer.add_head_count(config.n_head)
    writer.add_layer_norm_eps(config.layer_norm_epsilon)
    writer.add_file_type(kind)
    writer.add_vocab_size(config.vocab_size)
    writer.add_tokenizer_model("none")


def _tensors(body: Any) -> list[tuple[str, torch.Tensor]]:
    """By GGUF's names; matrices are (out, in) there and (in, out) in GPT-2's layers."""
    found = [("token_embd.weight", body.wte.weight), ("position_embd.weight", body.wpe.weight)]
    for index, block in enumerate(body.h):
        for name, own in (NORMS | LINEAR).items():
            layer = block.get_submodule(own)
            found.append((f"blk.{index}.{name}.weight", layer.weight.T if name in LINEAR else layer.weight))
            found.append((f"blk.{index}.{name}.bias", layer.bias))
    return [*found, ("output_norm.weight", body.ln_f.weight), ("output_norm.bias", body.ln_f.bias)]
