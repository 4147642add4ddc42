"""A compiled model: the handle of an eager one, whose functions are programs for the shapes that they are called with."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import array_api_compat.numpy
import numpy as np

from xformer import params
from xformer.config import Config
from xformer.frontends.tvm import lengths, runtime, weights
from xformer.frontends.tvm.lengths import Shape
from xformer.frontends.tvm.processor import Processor
from xformer.frontends.tvm.program import Program
from xformer.frontends.tvm.tuning.records import Records
from xformer.model import Model
from xformer.precision import Precision
from xformer.tokenizer import Tokenizer

Build = Callable[[Callable, tuple], Program]  # of a function over its parameters and arguments, given as Specs


class CompiledModel(Model):
    """A model whose functions are compiled; its parameters are packed for a processor.

    With `build` functions are compiled as they are called, on a ladder of shapes; without it there are only `programs`.
    """

    def __init__(
        self,
        config: Config,
        tree: Any,
        precision: Precision,
        tokenizer: Tokenizer | None,
        processor: Processor,
        build: Build | None,
        programs: Iterable[tuple[str, Program]] = (),
    ):
        self.processor, self.build = processor, build
        self.records = Records()  # those that its programs were compiled with
        self.compiled: dict[str, CompiledFunction] = {}
        super().__init__(config, tree, precision, array_api_compat.numpy, tokenizer, None, self._compiled)
        for name, program in programs:
            self.function(name).add(program)

    def __repr__(self) -> str:
        return f"{super().__repr__()[:-1]}, compiled for {self.processor.name}>"

    def function(self, name: str) -> "CompiledFunction":
        """One of the model's functions: forward, embed, .. as its file calls them."""
        self._bind(name)
        return self.compiled[name]

    @property
    def most_prompts(self) -> int | None:
        """How many prompts a call of `generate` may have at once; None: any number."""
        shapes = [lengths.shape(program.arguments[1:]) for program in self.function("prefill").programs.values()]
        return None if self.build else max((shape.batch for shape in shapes), default=1)

    def _compiled(self, function: Any) -> "CompiledFunction":
        """The hook of `Model`: each of the model's functions comes here at its first call."""
        name = function.func.__name__
        return self.compiled.setdefault(name, CompiledFunction(name, function, self.config, self.build))  # two threads may come at once

    def save(self, folder: str | Path) -> None:
        """Write the programs that are compiled so far, with all that they need, to a folder that `load` reads.

        Raises ValueError when nothing is compiled yet, or where no linker is installed.
        """
        from xformer.frontends.tvm import artifact

        artifact.save(self, folder)


class CompiledFunction:
    """One function of a model, with a program for each shape that was called for."""

    def __init__(self, name: str, function: Callable, config: Config, build: Build | None):
        self.name, self.function, self.config, self.build = name, function, config, build
        self.programs: dict[tuple, Program] = {}

    def __call__(self, tree: Any, *arguments: Any) -> Any:
        asked = lengths.shape(arguments)
        wanted = lengths.ladder(asked, self.config.positions) if self.build else self._nearest(asked, len(arguments))
        rows = len(arguments[0])
        if wanted.batch < rows:  # only without a cache
            parts = [self(tree, *(x[start : start + wanted.batch] for x in arguments)) for start in range(0, rows, wanted.batch)]
            return np.concatenate(parts)
        arguments = lengths.fit(arguments, wanted)
        result = self.program(tree, arguments)(tree, *arguments)
        if isinstance(result, tuple):
            return result[0][:rows], result[1]
        return result[:rows, : asked.length] if result.ndim == 3 else result[:rows]

    def add(self, program: Program) -> Program:
        """Take in a program for the shapes that it was compiled for."""
        return self.programs.setdefault(_key(program.arguments[1:]), program)

    def program(self, tree: Any, arguments: tuple) -> Program:
        """The program for the shapes of `arguments`, arrays or Specs; compiled if it is the first time."""
        specs = params.map(lambda path, leaf: weights.spec(leaf), arguments)
        found = self.programs.get(_key(specs))
        if found is None and self.build:
            with runtime.COMPILING:  # whoever waited finds what another thread has compiled
                found = self.programs.get(_key(specs))
                if found is None:
                    found = self.add(self.build(self.function, (params.map(lambda path, leaf: weights.spec(leaf), tree), *specs)))
        if found is None:
            raise ValueError(
                f"there is no program for {self.name} with arguments of the shapes {', '.join(str(s.shape) for s in _key(specs))}"
            )
        return found

    def _nearest(self, asked: Shape, count: int) -> Shape:
        """The smallest shape that there is a program for and that holds what is asked for, or some rows of it at a time."""
        shapes = [lengths.shape(program.arguments[1:]) for program in self.programs.values() if len(program.arguments) == count + 1]
        fitting = [shape for shape in shapes if shape.holds(asked)]
        if not fitting and not asked.capacity:
            most = max((shape.batch for shape in shapes if shape.length >= asked.length), default=asked.batch)
            fitting = [shape for shape in shapes if shape.holds(Shape(most, asked.length))]
        if not fitting:
            there = "; ".join(map(str, shapes)) or "none"
            raise ValueError(f"this artifact has no program of {self.name} for {asked}; it has: {there}")
        return min(fitting, key=lambda shape: shape.size)


def _key(specs: tuple) -> tuple:
    return tuple(leaf for _, leaf in params.items(specs))
