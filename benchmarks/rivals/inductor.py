"""The models of transformers under torch.compile, from a folder that `Model.save` wrote."""

import functools
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
import torch._inductor.config
from transformers import BertModel, GPT2LMHeadModel, StaticCache

torch._inductor.config.freezing = True  # weights are constants, packed once: what a deployment would choose
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


def bert(folder: Path, precision: str) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
    """(ids, mask) -> the hidden states."""
    model = BertModel.from_pretrained(folder, add_pooling_layer=False, attn_implementation="sdpa").eval().to(DTYPES[precision])
    fast = torch.compile(model, dynamic=False)

    def run(ids: np.ndarray, mask: np.ndarray) -> np.ndarray:
        with torch.no_grad():  # freezing takes no inference_mode
            return fast(input_ids=torch.from_numpy(ids), attention_mask=torch.from_numpy(mask)).last_hidden_state.float().numpy()

    return run


def gpt2(folder: Path, precision: str, capacity: int) -> Callable[[np.ndarray, int], np.ndarray]:
    """(ids, count) -> the most likely ids that follow: a compiled step over a cache of fixed capacity."""
    model = GPT2LMHeadModel.from_pretrained(folder).eval().to(DTYPES[precision])

    @functools.cache
    def prepared(rows):  # a cache keeps the size of its first batch
        cache = StaticCache(config=model.config, max_cache_len=capacity)

        def step(tokens, places):
            result = model(tokens, position_ids=places, cache=cache, use_cache=True, logits_to_keep=1)
            return result.logits[:, -1].argmax(-1, keepdim=True)

        return cache, step, torch.compile(step, dynamic=False)

    def run(ids: np.ndarray, count: int) -> np.ndarray:
        rows, length = ids.shape
        cache, step, fast = prepared(rows)
        cache.reset()
        with torch.no_grad():
            found = [step(torch.from_numpy(ids), torch.arange(length)[None])]
            for index in range(count - 1):
                found.append(fast(found[-1], torch.full((1, 1), length + index)))
        return torch.cat(found, 1).numpy()

    return run
