"""What `xformer.frontends.tvm.compile` does: pack a model's weights, and build programs for shapes."""

import functools
import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from xformer import cache, checks, params
from xformer.config import Config
from xformer.frontends import precision_for
from xformer.frontends.tvm import lengths, packing, runtime, weights
from xformer.frontends.tvm.building import build
from xformer.frontends.tvm.model import CompiledModel
from xformer.frontends.tvm.namespace.manipulation import contiguous
from xformer.frontends.tvm.program import Program
from xformer.frontends.tvm.target import machine
from xformer.frontends.tvm.tuning.records import Records, load
from xformer.model import Model
from xformer.params import Spec
from xformer.precision import Precision

NEW = inspect.signature(Model.generate).parameters["max_new_tokens"].default


def compile(
    model: Model,
    *shapes: tuple[int, ...],
    target: str | Mapping[str, Any] | None,
    precision: str | Precision | None,
    records: Records | None,
) -> CompiledModel:
    """As `xformer.frontends.tvm.compile` says."""
    chosen = precision_for(model, precision)
    wanted = [asked(model.config, *shape) for shape in shapes]
    to = machine(target)
    to.require_programs()
    tree = packing.prepare(model.params, model.config, chosen, to)
    known = load() if records is None else records
    make = functools.partial(build, machine=to, records=known)
    compiled = CompiledModel(model.config, tree, chosen, model.tokenizer, to.processor, make)
    compiled.records = known
    for shape in wanted:
        for name, arguments in functions(model.config, chosen, hasattr(compiled.functions, "decode"), *shape):
            compiled.function(name).program(tree, arguments)
    return compiled


def jit(function: Callable, target: str | Mapping[str, Any] | None) -> Callable:
    """As `xformer.frontends.tvm.jit` says."""
    to = machine(target)
    to.require_programs()
    programs: dict[tuple, Program] = {}

    def whole(*arguments: Any) -> Any:
        return params.map(lambda path, x: contiguous(x), function(*arguments))

    @functools.wraps(function)
    def call(*arguments: Any) -> Any:
        specs = params.map(lambda path, leaf: weights.spec(leaf), arguments)
        key = tuple(params.items(specs))
        with runtime.COMPILING:
            if key not in programs:
                programs[key] = build(whole, specs, to)
        return programs[key](*arguments)

    return call


def asked(config: Config, batch: int, length: int, new: int = NEW) -> tuple[int, int, int]:
    """A shape, checked. Raises ValueError when the model has fewer positions."""
    checks.count(batch, "batch")
    checks.length(checks.count(length, "length"), config)
    return batch, length, min(checks.count(new, "new tokens"), config.positions - length)


def functions(config: Config, precision: Precision, decodes: bool, batch: int, length: int, new: int) -> Iterator[tuple[str, tuple]]:
    """Each of a model's functions that calls of this shape need, by name, with its arguments on the ladder as Specs.

    A decoder's prompts have at most `length` tokens and get at most `new` ones, in a cache of the rung that both need.
    """
    shape = lengths.ladder(lengths.Shape(batch, length), config.positions)
    tokens, mask = (Spec((shape.batch, shape.length), dtype) for dtype in ("int32", "bool"))
    yield "forward", (tokens, mask)
    if not decodes:
        hidden = Spec((shape.batch, shape.length, config.width))
        yield "embed", (tokens, mask)
        if config.pooler:
            yield "pool", (hidden, mask)
        if config.head:
            yield "logits", (hidden,)
        return
    for capacity in lengths.capacities(shape.length, new):
        memory = cache.spec(config, shape.batch, capacity, precision)
        yield "prefill", (tokens, mask, memory)
        yield "decode", (Spec((shape.batch,), "int32"), memory)
