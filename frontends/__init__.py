"""Compilers for models written with xformer. Each is imported by name and may import xformer, never the reverse.

A compiled model has the same face as the eager one: a frontend's `compile(model)` returns a `Model` whose functions are
compiled, so that calling, `embed`, `generate` and `stream` need no second description. Its `save` writes the programs too,
and the frontend's `load` runs them without the code that they were made from.
"""

from pathlib import Path
from typing import Any, Protocol

from xformer import precision as precisions
from xformer.model import Model
from xformer.precision import FP32, Precision

SAVED = {"tvm": "manifest.json", "jax": "exported.safetensors"}  # by frontend, the file by which a folder of its is known


class Compiler(Protocol):
    """What every frontend module offers."""

    def compile(self, model: Model, *shapes: tuple[int, ...], precision: str | Precision | None = None, **options: Any) -> Model:
        """The same model, compiled. `model` stays usable; options are the frontend's own.

        Programs for `shapes` are compiled now, others at their first call: (batch, length), of a decoder
        (batch, length of the prompt, new tokens).
        """

    def load(self, folder: str | Path) -> Model:
        """The compiled model that its `save` wrote to `folder`."""


def precision_for(model: Model, asked: str | Precision | None) -> Precision:
    """The precision to compile a model in: its own unless another is asked for.

    Raises ValueError when its weights are prepared for another one already.
    """
    chosen = precisions.find(asked or model.precision)
    if model.precision not in (chosen, FP32):
        raise ValueError(f"the model's weights are prepared for {model.precision.name}; {chosen.name} was asked for")
    return chosen
