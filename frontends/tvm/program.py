"""One compiled function: from a traced module to something that is called with trees of arrays."""

from collections.abc import Callable
from typing import Any

import tvm
from tvm import relax

from xformer import params
from xformer.frontends.tvm import runtime
from xformer.frontends.tvm.target import Machine
from xformer.frontends.tvm.tracing import Output, Traced, trace

PASSES = tvm.transform.Sequential(
    [
        relax.transform.ToNonDataflow(),
        relax.transform.RemovePurityChecking(),
        relax.transform.CallTIRRewrite(),
        relax.transform.StaticPlanBlockMemory(),
        relax.transform.LowerAllocTensor(),
        relax.transform.KillAfterLastUse(),
        relax.transform.LowerRuntimeBuiltin(),
        relax.transform.ComputePrimValue(),
        relax.transform.VMShapeLower(),
        relax.transform.AttachGlobalSymbol(),
    ]
)


class Program:
    """A function compiled for the shapes of its arguments, which it is then called with."""

    def __init__(self, function: Callable, arguments: tuple, machine: Machine):
        self.traced: Traced = trace(function, arguments, machine)
        executable = tvm.compile(self.traced.module, machine.target, relax_pipeline=PASSES)
        self.main = relax.VirtualMachine(executable, tvm.cpu())["main"]

    def __call__(self, *arguments: Any) -> Any:
        """The result with NumPy arrays, except for those deeper in a tree (a cache), which are only ever handed in again."""
        return params.map(lambda path, x: x if "." in path else runtime.to_numpy(x), self.tensors(*arguments))

    def tensors(self, *arguments: Any) -> Any:
        """The result as a tree of the runtime's tensors. Arguments that are written into are part of it."""
        leaves = params.leaves(arguments)
        given = {path: runtime.tensor(leaves[path]) for path in self.traced.inputs}
        with runtime.threads():
            returned = self.main(*given.values())

        def fetch(path: str, leaf: Output) -> Any:
            x = given[leaf.argument] if leaf.place is None else returned[leaf.place]
            return x if tuple(x.shape) == leaf.shape else x._create_view(leaf.shape)

        return params.map(fetch, self.traced.result)
