"""Compilers for models written with xformer. Each is imported by name and may import xformer, never the reverse.

A compiled model has the same face as the eager one: a frontend's `compile(model)` returns a `Model` whose functions are
compiled, so that calling, `embed`, `generate`, `stream` and `save` need no second description.
"""

from typing import Any, Protocol

from xformer.model import Model


class Compiler(Protocol):
    """What every frontend module offers."""

    def compile(self, model: Model, **options: Any) -> Model:
        """The same model, compiled. `model` stays usable; options are the frontend's own."""
