"""llama.cpp: decoders in GGUF files, by its C interface."""

import ctypes
from pathlib import Path
from typing import Any

import llama_cpp
import numpy as np

from benchmarks.peers.loaded import Decoder, Loaded
from benchmarks.peers.points import PROMPT
from benchmarks.workloads import NEW
from xformer import machine

MOST = 8  # rows of a batch


@llama_cpp.llama_log_callback
def _silent(level, text, data):
    """llama.cpp would tell its log at length."""


def convert(role: str, source: Path, folder: Path) -> None:
    """Write a file for each format."""
    from benchmarks.peers import gguf_files, pytorch

    for name in gguf_files.FORMATS:
        gguf_files.write(pytorch.gpt2(source), folder / f"{name}.gguf", name)


def load(library: str, role: str, precision: str, variant: str, source: Path, folder: Path) -> Loaded:
    """The file of that variant."""
    llama_cpp.llama_log_set(_silent, ctypes.c_void_p(0))
    llama_cpp.llama_backend_init()
    settings = llama_cpp.llama_model_default_params()
    settings.n_gpu_layers = 0
    model = llama_cpp.llama_model_load_from_file(str(folder / f"{variant}.gguf").encode(), settings)
    if not model:
        raise RuntimeError(f"llama.cpp cannot load {variant}.gguf")
    session = Session(model)
    return Decoder(session.generate, session.first)


class Session:
    """A model with a context for each size of a batch."""

    def __init__(self, model: Any):
        self.model, self.contexts = model, dict[int, tuple[Any, Any]]()
        self.size = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(model))

    def generate(self, ids: np.ndarray, count: int) -> np.ndarray:
        """Greedily."""
        found = [self.first(ids).argmax(-1)]
        for index in range(count - 1):
            found.append(self.step(found[-1][:, None], ids.shape[1] + index).argmax(-1))
        return np.stack(found, 1)

    def first(self, ids: np.ndarray) -> np.ndarray:
        """Logits (b, v) after a prompt, with nothing remembered from before."""
        llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(self.context(len(ids))[0]), True)
        return self.step(ids, 0)

    def step(self, ids: np.ndarray, start: int) -> np.ndarray:
        """Logits (b, v) after `ids`, whose first stand at place `start`."""
        context, batch = self.context(len(ids))
        rows, length = ids.shape
        batch.n_tokens = ids.size
        for index, (row, column) in enumerate(np.ndindex(rows, length)):
            batch.token[index], batch.pos[index] = int(ids[row, column]), start + column
            batch.n_seq_id[index], batch.seq_id[index][0] = 1, row
            batch.logits[index] = column == length - 1
        if llama_cpp.llama_decode(context, batch):
            raise RuntimeError("llama_decode failed")
        scores = (llama_cpp.llama_get_logits_ith(context, row * length + length - 1) for row in range(rows))
        return np.stack([np.ctypeslib.as_array(row, (self.size,)) for row in scores])

    def context(self, rows: int) -> tuple[Any, Any]:
        """A context for that many rows, and the batch that it is fed with."""
        if rows not in self.contexts:
            settings = llama_cpp.llama_context_default_params()
            settings.n_ctx, settings.n_seq_max = rows * 2 * (PROMPT + NEW), rows
            settings.n_batch, settings.n_ubatch = MOST * PROMPT, 512
            settings.n_threads = settings.n_threads_batch = machine.cores()["usable"]
            batch = llama_cpp.llama_batch_init(MOST * PROMPT, 0, rows)
            self.contexts[rows] = llama_cpp.llama_init_from_model(self.model, settings), batch
        return self.contexts[rows]
