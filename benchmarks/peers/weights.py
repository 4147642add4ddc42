"""The models that every library reads: true sizes, random weights from a seed, as Hugging Face folders."""

import functools
from pathlib import Path

import numpy as np

import xformer
from xformer import params
from xformer.model import Model

SPREAD = {"layers": 2.0, "embedding.position": 5.0}  # of a decoder: with plain noise it says one token for ever


def source(folder: Path, name: str) -> Path:
    """The folder of a preset's model, written if it is not there yet."""
    path = folder / name / "source"
    if not path.exists():
        model, draw = xformer.init(name, 0), np.random.default_rng(0)
        tree = params.map(functools.partial(_livelier, draw, model.config.model_type == "gpt2"), model.params)
        made = path.with_name("source.part")
        Model(model.config, tree, model.precision, model.xp).save(made)
        made.rename(path)
    return path


def _livelier(draw: np.random.Generator, decodes: bool, path: str, leaf: np.ndarray) -> np.ndarray:
    """A leaf as in no trained model but less regular than at the start: who drops a bias is caught."""
    if leaf.ndim == 1:
        return leaf + np.float32(0.02) * draw.standard_normal(leaf.shape, np.float32)
    factor = next((factor for start, factor in SPREAD.items() if path.startswith(start)), 1.0) if decodes else 1.0
    return leaf * np.float32(factor)
