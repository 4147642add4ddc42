"""One file a model, found by its name (the `model_type` of a Hugging Face config).

A model's file has: `spec(config)`, the parameter tree as shapes; its functions over that tree; `prepare(p, precision)`;
and what `xformer.checkpoint` reads: `architecture` and the tables CONFIG, ONLY, OPTIONAL, PREFIX, RENAMED, IGNORED, TIED, UNTIED, NAMES.
"""

import importlib
import pkgutil
from types import ModuleType


def available() -> list[str]:
    """The models there are."""
    return sorted(module.name for module in pkgutil.iter_modules(__path__))


def find(model_type: str) -> ModuleType:
    """The module of a model. Raises ValueError naming the models there are."""
    if model_type not in available():
        raise ValueError(f"unsupported model_type {model_type!r}; supported: {', '.join(available())}")
    return importlib.import_module(f"{__name__}.{model_type}")
