"""JAX: parameter trees are pytrees once this package is imported, and `compile` has XLA compile a model's functions.

from xformer.frontends import jax as frontend

model = frontend.compile(xformer.load("folder"), (8, 128), precision="int8")
model.embed(["one text", "another"])
model.save("exported")
frontend.load("exported").embed(["a third"])  # on a CPU, CUDA or TPU, of any batch and length
"""

from xformer.frontends.jax import trees  # first: whatever else is imported may define nodes
from xformer.frontends.jax.ahead import keep_compiled, lower
from xformer.frontends.jax.export import load
from xformer.frontends.jax.layers import Recomputed, Stacked, recompute, stack, unstack
from xformer.frontends.jax.model import LENGTHS, Compiled, compile, jit

__all__ = [
    "LENGTHS",
    "Compiled",
    "Recomputed",
    "Stacked",
    "compile",
    "jit",
    "keep_compiled",
    "load",
    "lower",
    "recompute",
    "stack",
    "trees",
    "unstack",
]
