"""CTranslate2: its own format; padding is dropped before anything is computed."""

import os
from pathlib import Path
from typing import Any

import ctranslate2
import numpy as np

from benchmarks.peers.loaded import Decoder, Encoder, Loaded
from xformer import machine

FORMATS = {"fp32": "float32", "bf16": "bfloat16", "int8": "int8"}  # as CTranslate2 calls them
MKL = "oneMKL"  # instead of oneDNN


def convert(role: str, source: Path, folder: Path) -> None:
    """Write a model in each precision."""
    for precision in FORMATS:
        specification = {"encoder": _bert, "decoder": _gpt2}[role](source)
        specification.validate()
        specification.optimize(quantization=None if precision == "fp32" else FORMATS[precision])
        (folder / precision).mkdir()
        specification.save(str(folder / precision))


def _bert(source: Path) -> Any:
    from ctranslate2.converters.transformers import BertLoader
    from transformers import BertModel

    model = BertModel.from_pretrained(source, add_pooling_layer=True)  # the loader wants a pooler; its output is not asked for
    model.config.position_embedding_type = "absolute"  # gone from transformers 5, read by the loader
    specification = BertLoader().get_model_spec(model)
    specification.config.layer_norm_epsilon = model.config.layer_norm_eps
    return _spelled(specification, model.config.vocab_size, "unk_token")


def _gpt2(source: Path) -> Any:
    from ctranslate2.converters.transformers import GPT2Loader

    from benchmarks.peers import pytorch

    model = pytorch.gpt2(source)
    return _spelled(GPT2Loader().get_model_spec(model), model.config.vocab_size, "bos_token", "eos_token", "unk_token")


def _spelled(specification: Any, size: int, *special: str) -> Any:
    """With a vocabulary: id 7 is spelled "7"."""
    specification.register_vocabulary([str(index) for index in range(size)])
    for name in special:
        setattr(specification.config, name, str(size - 1))
    return specification


def load(library: str, role: str, precision: str, variant: str, source: Path, folder: Path) -> Loaded:
    """The model, on all cores. Raises NotImplementedError where the CPU has no such contractions."""
    if variant == MKL:
        os.environ["CT2_USE_MKL"] = "1"  # which CTranslate2 leaves alone on CPUs that are not Intel's; read at its first contraction
    if FORMATS[precision] not in (known := ctranslate2.get_supported_compute_types("cpu")):
        raise NotImplementedError(f"CTranslate2 computes in {', '.join(sorted(known))} on this CPU")
    settings = {"device": "cpu", "compute_type": FORMATS[precision], "inter_threads": 1, "intra_threads": machine.cores()["usable"]}
    if role == "encoder":
        return _encoder(ctranslate2.Encoder(str(folder / precision), **settings))
    return _decoder(ctranslate2.Generator(str(folder / precision), **settings))


def _encoder(model: ctranslate2.Encoder) -> Encoder:
    def bind(ids, mask):
        tokens, lengths = (ctranslate2.StorageView.from_array(x.astype(np.int32)) for x in (ids, mask.sum(1)))
        return lambda: np.array(model.forward_batch(tokens, lengths).last_hidden_state)

    return Encoder(bind)


def _decoder(model: ctranslate2.Generator) -> Decoder:
    def generate(ids: np.ndarray, count: int) -> np.ndarray:
        prompts = [[str(token) for token in row] for row in ids]
        limits = {"max_length": count, "min_length": count, "sampling_topk": 1, "beam_size": 1, "include_prompt_in_result": False}
        return np.array([result.sequences_ids[0] for result in model.generate_batch(prompts, **limits)])

    return Decoder(generate, lambda ids: np.array(model.forward_batch(ids.tolist()))[:, -1])
