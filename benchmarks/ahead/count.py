"""Our own count of the arithmetic and of the least memory traffic of a workload, and the time that a chip needs at the least."""

import functools
from collections import Counter
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import jaxprs_in_params

from benchmarks.ahead.chips import Chip
from benchmarks.workloads import NEW, Workload, weights
from xformer import cache, models
from xformer.config import Config, replace
from xformer.frontends.jax import trees
from xformer.precision import Precision

LETTERS = {"float32": "f32", "bfloat16": "bf16", "int8": "s8", "int32": "s32"}  # as compiled programs call them


@dataclass(frozen=True)
class Work:
    """`operations` by the type of the operands, and `bytes` of memory traffic."""

    operations: dict[str, float]
    bytes: float

    def __sub__(self, other: "Work") -> "Work":
        return Work({name: count - other.operations.get(name, 0) for name, count in self.operations.items()}, self.bytes - other.bytes)

    def times(self, factor: float) -> "Work":
        """This much work `factor` times."""
        return Work({name: count * factor for name, count in self.operations.items()}, self.bytes * factor)


def work(workload: Workload, precision: Precision, devices: int = 1) -> Work:
    """The work of one device of `devices` that share the layers and each hold the rest whole.

    A decode is the tokens after the first, as where it is measured.
    """
    config = workload.subject.config
    whole, one, two = (_work(workload, precision, replace(config, layers=layers)) for layers in (config.layers, 1, 2))
    layers = (two - one).times(config.layers)
    alone = whole - layers
    split = layers.times(1 / devices)
    return Work({name: alone.operations[name] + split.operations.get(name, 0) for name in alone.operations}, alone.bytes + split.bytes)


def seconds(work: Work, chip: Chip) -> float:
    """The roofline (Williams et al. 2009, doi:10.1145/1498765.1498785): the longer of arithmetic at its peak and traffic at its bandwidth.

    Operands without a published peak are left out of the arithmetic.
    """
    arithmetic = sum(count / chip.peaks[name] for name, count in work.operations.items() if name in chip.peaks)
    return max(arithmetic, work.bytes / chip.bandwidth)


def _work(workload: Workload, precision: Precision, config: Config) -> Work:
    """What the traced program contracts; and each weight read once a pass, the cache once a step, the result written."""
    function, arguments, moved = _program(workload, precision, config)
    tree = trees.prepared(config, precision)
    bound = functools.partial(function, config=config, precision=precision)
    operations = contractions(jax.make_jaxpr(bound)(tree, *arguments).jaxpr)
    return Work(dict(operations), weights(config, precision) + moved).times(workload.passes)


def _program(workload: Workload, precision: Precision, config: Config) -> tuple[Any, list, float]:
    """What function, of which arguments, and how many bytes a pass moves beside the weights."""
    functions, batch, length = models.find(config.model_type), workload.batch, workload.length
    tokens, mask = jax.ShapeDtypeStruct((batch, length), jnp.int32), jax.ShapeDtypeStruct((batch, length), jnp.bool)
    if workload.kind == "encode":
        return functions.forward, [tokens, mask], 4 * batch * length * config.width
    capacity = length + (NEW if workload.kind == "decode" else 0)
    memory = jax.eval_shape(lambda: cache.empty(jnp, config, batch, capacity, precision=precision))
    moved = 4 * batch * config.vocab_size + sum(_bytes(leaf) for leaf in jax.tree.leaves((memory.keys, memory.values)))
    if workload.kind == "prefill":
        return functions.prefill, [tokens, mask, memory], moved
    return functions.decode, [jax.ShapeDtypeStruct((batch,), jnp.int32), memory], moved


def _bytes(leaf) -> int:
    return leaf.size * leaf.dtype.itemsize


def contractions(jaxpr: Any) -> Counter:
    """Multiplications and additions in the contractions of a traced program, by the type of their operands."""
    total: Counter = Counter()
    for equation in jaxpr.eqns:
        if equation.primitive.name == "dot_general":
            ((contracted, _), _), operand = equation.params["dimension_numbers"], equation.invars[0].aval
            terms = 1
            for axis in contracted:
                terms *= operand.shape[axis]
            total[LETTERS[str(operand.dtype)]] += 2 * equation.outvars[0].aval.size * terms
        for inner in jaxprs_in_params(equation.params):
            times = equation.params.get("length", 1) if equation.primitive.name == "scan" else 1
            total.update({name: count * times for name, count in contractions(inner).items()})
    return total
