"""One compiled function: called with trees of arrays, made by `building` or read from a shared library."""

import shutil
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tvm

from xformer import params
from xformer.frontends.tvm import runtime
from xformer.frontends.tvm.weights import PackedWeight

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
        self._known: weakref.WeakKeyDictionary[Any, Mapping[str, Any]] = weakref.WeakKeyDictionary()

    @classmethod
    def load(cls, library: Path, arguments: tuple, inputs: Sequence[str], result: Any) -> "Program":
        """The program in a shared library."""
        return cls(tvm.runtime.load_module(str(library)), arguments, inputs, result, lambda path: shutil.copyfile(library, path))

    def __call__(self, *arguments: Any) -> Any:
        """The result with NumPy arrays, except for those deeper in a tree (a cache), which are only ever handed in again."""
        return params.map(lambda path, x: x if "." in path else runtime.to_numpy(x), self.tensors(*arguments))

    def tensors(self, *arguments: Any) -> Any:
        """The result as a tree of the runtime's tensors. Arguments that are written into are part of it."""
        given = self._given(arguments)
        with runtime.threads():
            returned = self.main(*given.values())

        def fetch(path: str, leaf: Output) -> Any:
            x = returned[leaf.place] if leaf.argument is None else given[leaf.argument]
            return x if tuple(x.shape) == leaf.shape else x._create_view(leaf.shape)

        return params.map(fetch, self.result)

    def _given(self, arguments: tuple) -> dict[str, Any]:
        """The tensors of the inputs, by path."""
        first, *others = arguments or (None,)
        ready, leaves = self._parameters(first)
        for place, argument in enumerate(others, 1):
            leaves.update(params.items(argument, str(place)))
        return {path: ready[path] if path in ready else runtime.tensor(leaves[path]) for path in self.inputs}

    def _parameters(self, tree: Any) -> tuple[Mapping[str, Any], dict[str, Any]]:
        """Of the first argument the tensors that the runtime has already, and the other leaves.

        Where it is a frozen tree of such tensors, as a compiled model's parameters are, they are found once: to walk those
        of GPT-2 takes as long as a layer of a step of decoding does.
        """
        frozen = type(tree) in params.NODES
        if frozen and tree in self._known:
            return self._known[tree], {}
        leaves = dict(params.items(tree, "0"))
        ready = {path: runtime.tensor(leaf) for path, leaf in leaves.items() if isinstance(leaf, tvm.runtime.Tensor | PackedWeight)}
        if frozen and len(ready) == len(leaves):
            self._known[tree] = ready
        return ready, leaves
