"""A compiled model: the handle of an eager one, with each function compiled for the shapes that it is called with."""

from collections.abc import Callable, Mapping
from typing import Any

import array_api_compat.numpy
import numpy as np

from xformer import models, params
from xformer import precision as precisions
from xformer.config import Config
from xformer.frontends.tvm import lengths, packing
from xformer.frontends.tvm.program import Program
from xformer.frontends.tvm.target import Machine, machine
from xformer.model import Model
from xformer.precision import FP32, Precision


def compile(
    model: Model, *shapes: tuple[int, int], target: str | Mapping[str, Any] | None = None, precision: str | Precision | None = None
) -> "CompiledModel":
    """`model` with its functions compiled for `target`: None for this CPU, an x86 `mcpu`, or a dict as TVM takes it.

    Programs for the (batch, length) in `shapes` are compiled now, others at their first call, on a ladder of lengths.
    Raises ValueError when the model's weights are prepared for another precision than is asked for.
    """
    tree, chosen = model.params, precisions.find(precision or model.precision)
    if chosen is not model.precision:
        if model.precision is not FP32:
            raise ValueError(f"the model's weights are prepared for {model.precision.name}; {chosen.name} was asked for")
        tree = models.find(model.config.model_type).prepare(tree, chosen.prepare)
    compiled = CompiledModel(model, tree, chosen, machine(target))
    for batch, length in shapes:
        compiled.warm(batch, length)
    return compiled


class CompiledModel(Model):
    """A model whose functions are compiled; its parameters are packed for the target."""

    def __init__(self, model: Model, tree: Any, precision: Precision, target: Machine):
        self.machine = target
        self.compiled: dict[str, CompiledFunction] = {}
        packed = packing.prepare(tree, target)
        super().__init__(model.config, packed, precision, array_api_compat.numpy, model.tokenizer, None, self._compiled)

    def __repr__(self) -> str:
        return f"{super().__repr__()[:-1]}, compiled for {self.machine.name}>"

    def _compiled(self, function: Callable) -> "CompiledFunction":
        """The hook of `Model`: each of the model's functions comes here once."""
        name = function.func.__name__
        self.compiled[name] = CompiledFunction(name, function, self.config, self.machine)
        return self.compiled[name]

    def warm(self, batch: int, length: int) -> None:
        """Compile, by running it once on padding, what calls with `batch` rows of `length` tokens need."""
        tokens = np.zeros((batch, length), np.int32)
        if self._decodes:
            self.generate(tokens, max_new_tokens=2, stop=(), mask=np.ones_like(tokens))
        else:
            self._run("embed", tokens, tokens == 0)

    def save(self, folder: Any) -> None:
        """Not there: packed weights belong to one target. Save the model that this one was compiled from."""
        raise ValueError("a compiled model holds weights packed for one target: save the model that it was compiled from")


class CompiledFunction:
    """One function of a model, with a program for each shape on the ladder that was called for."""

    def __init__(self, name: str, function: Callable, config: Config, target: Machine):
        self.name, self.function, self.config, self.machine = name, function, config, target
        self.programs: dict[tuple, Program] = {}

    def __call__(self, tree: Any, *arguments: Any) -> Any:
        arguments, wanted = lengths.fit(self.name, arguments, self.config.positions)
        result = self.program(tree, arguments)(tree, *arguments)
        return (result[0][wanted], result[1]) if isinstance(result, tuple) else result[wanted]

    def program(self, tree: Any, arguments: tuple) -> Program:
        """The program for the arguments' shapes, compiled if it is the first call with them."""
        specs = params.map(lambda path, leaf: packing.spec(leaf), arguments)
        key = tuple(leaf for _, leaf in params.items(specs))
        if key not in self.programs:
            given = (params.map(lambda path, leaf: packing.spec(leaf), tree), *specs)
            self.programs[key] = Program(self.function, given, self.machine)
        return self.programs[key]
