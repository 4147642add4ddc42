"""How a model comes to be: from a folder, from a seed, or as shapes alone."""

from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from xformer import backends, checkpoint, models, params, sampling
from xformer import config as presets
from xformer import precision as precisions
from xformer import tokenizer as tokenizers
from xformer.config import Config
from xformer.model import Model
from xformer.precision import FP32, Precision


def load(path: str | Path, namespace: str | ModuleType = "numpy", precision: str | Precision | None = None, device: Any = None) -> Model:
    """The model in a Hugging Face folder or in one that `Model.save` wrote, with its tokenizer.

    `precision` is "fp32" unless the folder holds weights prepared for another one; `device` is a name that
    `xformer doctor` lists, or a device of the library. Weights may be views of the mapped file, which must stay as it is
    for as long as the model is used. Raises FileNotFoundError or ValueError as `checkpoint.read` does, and for a folder
    whose texts are not pooled by their mean; ImportError when the namespace's library is not installed.
    """
    xp = backends.find(namespace)
    device = backends.find_device(xp, device)
    wanted = None if precision is None else precisions.find(precision)
    found = checkpoint.read(path)
    chosen = found.precision or wanted or FP32
    if wanted not in (None, chosen):
        raise ValueError(f"{path} holds weights prepared for {chosen.name}; {precision} was asked for")
    tokenizer = tokenizers.load(path, found.config.positions)
    tokenizers.check_pooling(path)
    return Model(found.config, _placed(found.config, found.tree, chosen, xp, device), chosen, xp, tokenizer, device)


def init(
    config: str | Config, seed: int = 0, namespace: str | ModuleType = "numpy", precision: str | Precision = "fp32", device: Any = None
) -> Model:
    """A model of a preset's sizes (or any Config) with random weights: the same for a seed in [0, 2^64) on every namespace."""
    sampling.check_seed(seed)
    config, chosen, xp = presets.find(config), precisions.find(precision), backends.find(namespace)
    device = backends.find_device(xp, device)
    paths = list(params.leaves(spec(config)))

    def draw(path, leaf):
        if path.endswith((".scale", ".bias")):
            return np.full(leaf.shape, 1 if path.endswith(".scale") else 0, np.float32)
        generator = np.random.Generator(np.random.Philox(key=np.array([seed, paths.index(path)], np.uint64)))
        return generator.standard_normal(leaf.shape, np.float32) * np.float32(0.02)

    return Model(config, _placed(config, params.map(draw, spec(config)), chosen, xp, device), chosen, xp, None, device)


def spec(config: str | Config) -> Any:
    """The parameter tree of a preset (or any Config) as shapes and dtypes: no memory, whatever the size."""
    config = presets.find(config)
    return models.find(config.model_type).spec(config)


def _placed(config, tree, precision, xp, device):
    """The tree of NumPy arrays in `xp`, weights prepared one by one; a leaf in two places is moved once."""
    moved: dict[int, Any] = {}

    def place(leaf):
        if not isinstance(leaf, np.ndarray):
            return leaf
        if id(leaf) not in moved:
            moved[id(leaf)] = backends.from_numpy(xp, leaf, device)
        return moved[id(leaf)]

    prepared = models.find(config.model_type).prepare(tree, lambda weight: precision.prepare(place(weight)))
    return params.map(lambda path, leaf: place(leaf), prepared)
