"""A model as an `equinox.Module`, for programs that are written with those. The parameter trees alone need no wrapper:
`equinox.filter_jit`, `filter_grad`, `tree_at` and `tree_serialise_leaves` work on them as they are.
"""

from typing import Any

import equinox
import jax

from xformer import models
from xformer.config import Config
from xformer.frontends.jax import trees
from xformer.model import Model
from xformer.precision import Precision


class Module(equinox.Module):
    """Parameters with the sizes and the precision that the functions of the model's file need.

    As any module: an argument of the transforms, and a tree whose arrays are its parameters.
    """

    params: Any
    config: Config = equinox.field(static=True)
    precision: Precision = equinox.field(static=True)

    def __call__(self, tokens: jax.Array, mask: jax.Array, *rest: Any, function: str = "forward") -> Any:
        """The result of one of the model's functions: "forward", "embed", "prefill" .. Nothing is checked: inputs may be tracers."""
        run = getattr(models.find(self.config.model_type), function)
        return run(self.params, tokens, mask, *rest, config=self.config, precision=self.precision)


def module(model: Model) -> Module:
    """`model` as a module, its parameters moved to JAX if they live elsewhere."""
    return Module(trees.place(model.params, model.device), model.config, model.precision)
