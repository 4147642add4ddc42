"""Arrays that hold values: what was built up by calling functions is compiled and run when somebody asks for a number.

The functions are those of tracing. A node keeps its result once it has one; kernels are kept by what they compute, so that
each is compiled once in a process. Small ones are compiled as they stand, which takes milliseconds; large ones are
scheduled by the rules.
"""

import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tvm
from tvm.s_tir import ScheduleError

from xformer.frontends.tvm import dtypes, fusion, runtime, schedules
from xformer.frontends.tvm.array import Array
from xformer.frontends.tvm.contraction import Contract
from xformer.frontends.tvm.fusion import Kernel
from xformer.frontends.tvm.nodes import Data, Input, Node
from xformer.frontends.tvm.target import Machine, machine

LARGE = 1 << 16  # elements, or products, from which on a schedule pays for its compilation
MOST = 4096  # kernels that are kept

PLAIN = {"kind": "llvm", "opt-level": 0}  # code as it stands: a fifth of the time to compile

_kernels: dict[tuple, Any] = {}


@functools.cache
def _machine() -> Machine:
    return machine()


# ------------------------------------------------------------------------------------------------------------ values of arrays
def known(x: Array) -> Array:
    """`x`, computed now. Raises TypeError for an array of a function that is being traced."""
    if x.node.tensor is None:
        with runtime.COMPILING:  # two threads may have built on the same nodes
            _evaluate(x)
    return x


def values(x: Array) -> np.ndarray:
    """A view of the array's memory, computed now."""
    memory = runtime.to_numpy(known(x).node.tensor).reshape(-1)
    if not x.size:
        return np.empty(x.shape, memory.dtype)
    step = memory.itemsize
    return np.lib.stride_tricks.as_strided(memory[x.offset :], x.shape, [stride * step for stride in x.strides], writeable=False)


def item(x: Array) -> Any:
    """The one number of an array, as a Python scalar. Raises TypeError when there are more."""
    if x.size != 1:
        raise TypeError(f"only an array of one element is a Python number, got shape {x.shape}")
    return values(x).reshape(()).item() if x.dtype != "bfloat16" else float(values(x).reshape(()))


def held(array: np.ndarray) -> Array:
    """An array of NumPy's memory, which stays where TVM can read it there."""
    node = Data(runtime.tensor(array) if array.size else _empty(array.shape, array.dtype.name), array.shape)
    return Array(node, array.shape)


def from_host(obj: Any, dtype: str | None, copy: bool | None) -> Array:
    """Python numbers in lists, or another library's array. Raises TypeError for what are no numbers that TVM has."""
    array = np.asarray(obj, runtime.numpy_dtype(dtypes.name_of(dtype))) if dtype else np.asarray(obj)
    dtypes.name_of(array.dtype.name)
    if isinstance(obj, bool | int | float | list | tuple) and not dtype:
        chosen = {"b": "bool", "f": dtypes.DEFAULTS["real floating"]}.get(array.dtype.kind, dtypes.DEFAULTS["integral"])
        if array.dtype.kind == "u" and array.size and int(array.max()) > dtypes.iinfo(chosen).max:
            raise OverflowError(f"{array.max()} does not fit {chosen}")
        array = array.astype(chosen)
    if copy is False:
        raise ValueError("asarray cannot keep Python numbers or another library's memory without a copy")
    return held(np.array(array, order="C"))


def from_dlpack(x: Any, copy: bool | None) -> Array:
    """Another library's memory, copied where TVM asks for another alignment."""
    array = np.from_dlpack(x)
    if copy is False and (not array.flags.writeable or array.ctypes.data % runtime.ALIGNMENT):
        raise ValueError("this memory cannot be taken without a copy")
    return held(np.array(array, order="C") if copy else array)


# ------------------------------------------------------------------------------------------------------------------ computing
def _evaluate(*arrays: Array) -> None:
    nodes = fusion.reachable(arrays)
    if symbols := [node.name for node in nodes if isinstance(node, Input)]:
        raise TypeError(f"an array of a function that is being traced has no values yet; it depends on {', '.join(symbols)}")
    for node in nodes:
        if node.tensor is None and not math.prod(node.shape):
            _keep(node, _empty(node.shape, node.dtype))
    kernels = {kernel: kernel.key for kernel in fusion.kernels(fusion.reachable(arrays), [x.node for x in arrays])}
    if len(_kernels) > MOST:
        _kernels.clear()
    _compile({key: kernel for kernel, key in kernels.items() if key not in _kernels})
    for kernel, key in kernels.items():
        results = [_empty(node.shape, node.dtype) for node in kernel.results]
        with runtime.threads():
            _kernels[key](*(node.tensor for node in kernel.arguments), *results)
        for node, tensor in zip(kernel.results, results, strict=True):
            _keep(node, tensor)


def _keep(node: Node, tensor: Any) -> None:
    node.tensor, node.operands = tensor, ()


def _empty(shape: Sequence[int], dtype: str) -> Any:
    return tvm.runtime.empty(tuple(shape), dtype)


def _compile(kernels: Mapping[tuple, Kernel]) -> None:
    """Each kernel, by its key: the small ones in one module, the large ones in another."""
    plain = {key: kernel for key, kernel in kernels.items() if not _large(kernel)}
    for target, group in ((PLAIN, plain), (_machine().target, {key: kernels[key] for key in kernels.keys() - plain.keys()})):
        names = {f"kernel{place}": key for place, key in enumerate(group)}
        if names:
            functions = {name: _function(group[key], target).with_attr("global_symbol", name) for name, key in names.items()}
            built = tvm.tirx.build(tvm.IRModule(functions), tvm.target.Target(target))
            _kernels.update({key: built[name] for name, key in names.items()})


def _function(kernel: Kernel, target: Any) -> Any:
    plain = kernel.unscheduled(_machine()).with_attr("target", tvm.target.Target(target))
    if target is PLAIN:
        return plain
    try:
        return schedules.apply(kernel, plain, _machine())
    except ScheduleError:  # a structure that no model has
        return plain


def _large(kernel: Kernel) -> bool:
    seed = kernel.seed
    work = math.prod(seed.shape) * (seed.operands[0].shape[-1] if isinstance(seed, Contract) else 1)
    return max(work, *(math.prod(node.shape) for node in kernel.nodes)) >= LARGE


Node.settle = staticmethod(known)  # type: ignore[method-assign]
