"""One compiled function: called with trees of arrays, made by `building` or read from a shared library."""

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tvm

from xformer import params
from xformer.frontends.tvm import runtime

_POOLED = 2  # of the virtual machine's allocators the one that keeps memory for the next call


@dataclass(frozen=True)
class Output:
    """An array of the result: the place of a returned tensor, or the path of the argument that it was written into."""

    shape: tuple[int, ...]
    place: int | None
    argument: str | None = None


class Program:
    """A function compiled for the shapes of its arguments, which it is then called with.

    `arguments` is the tree of their Specs, `inputs` the paths of those that are read, `result` a tree of Outputs;
    `export(path)` writes the shared library.
    """

    def __init__(self, module: Any, arguments: tuple, inputs: Sequence[str], result: Any, export: Callable[[Path], Any]):
        self.arguments, self.inputs, self.result, self.export = arguments, tuple(inputs), result, export
        self.machine = module["vm_load_executable"]()
        self.machine["vm_initialization"](tvm.cpu().dlpack_device_type(), 0, _POOLED)
        self.main = self.machine["main"]

    @classmethod
    def load(cls, library: Path, arguments: tuple, inputs: Sequence[str], result: Any) -> "Program":
        """The program in a shared library."""
        return cls(tvm.runtime.load_module(str(library)), arguments, inputs, result, lambda path: shutil.copyfile(library, path))

    def __call__(self, *arguments: Any) -> Any:
        """The result with NumPy arrays, except for those deeper in a tree (a cache), which are only ever handed in again."""
        return params.map(lambda path, x: x if "." in path else runtime.to_numpy(x), self.tensors(*arguments))

    def tensors(self, *arguments: Any) -> Any:
        """The result as a tree of the runtime's tensors. Arguments that are written into are part of it."""
        leaves = params.leaves(arguments)
        given = {path: runtime.tensor(leaves[path]) for path in self.inputs}
        with runtime.threads():
            returned = self.main(*given.values())

        def fetch(path: str, leaf: Output) -> Any:
            x = returned[leaf.place] if leaf.argument is None else given[leaf.argument]
            return x if tuple(x.shape) == leaf.shape else x._create_view(leaf.shape)

        return params.map(fetch, self.result)
