"""Running compiled functions: NumPy arrays in and out, one thread on each CPU that this process may use. No compiler."""

import contextlib
import os
import threading
from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np
import tvm

from xformer.frontends.tvm.processor import cpus
from xformer.frontends.tvm.weights import ALIGNMENT

COMPILING = threading.RLock()  # TVM builds one module at a time: what it is building is kept in one place of the process
_RUNNING = threading.Lock()  # a program's state is one thread's; and each uses all cores: two at once would only spin beside each other
_own = threading.local()
_ONE_CORE_EACH = -2  # tvm::runtime::threading::ThreadGroup::AffinityMode::kSpecifyOneCorePerThread


def tensor(array: Any) -> tvm.runtime.Tensor:
    """A tensor of the runtime: `array` itself where it is one, its memory where that is aligned and may be written, else a copy."""
    if isinstance(array, tvm.runtime.Tensor):
        return array if array.shape else array._create_view((1,))
    if hasattr(array, "tensor"):  # a packed weight
        return array.tensor
    array = np.atleast_1d(np.ascontiguousarray(array))
    if not array.flags.writeable or array.ctypes.data % ALIGNMENT:
        return tvm.runtime.tensor(array)
    if array.dtype == ml_dtypes.bfloat16:  # NumPy hands on no dtype but its own
        return tvm.runtime.from_dlpack(array.view(np.uint16))._create_view(array.shape, "bfloat16")
    return tvm.runtime.from_dlpack(array)


def numpy_dtype(name: str) -> np.dtype:
    """A dtype as NumPy has it, by TVM's name."""
    return np.dtype(ml_dtypes.bfloat16) if name == "bfloat16" else np.dtype(name)


def to_numpy(x: tvm.runtime.Tensor) -> np.ndarray:
    """The tensor's memory as a NumPy array."""
    if x.dtype == "bfloat16":
        return np.from_dlpack(x._create_view(x.shape, "uint16")).view(ml_dtypes.bfloat16)
    return np.from_dlpack(x)


def _pool() -> list[int]:
    """Start this thread's pool, once: TVM's own default takes half of the CPUs. TVM_NUM_THREADS, where set, limits it."""
    if not hasattr(_own, "cpus"):
        _own.cpus = cpus()[: int(os.environ.get("TVM_NUM_THREADS", 0)) or None]
        tvm.get_global_func("runtime.config_threadpool")(_ONE_CORE_EACH, len(_own.cpus), [str(cpu) for cpu in _own.cpus])
    return _own.cpus


@contextlib.contextmanager
def threads() -> Iterator[None]:
    """The one that runs kernels now, on the first CPU: on a worker's CPU it would halve the speed."""
    with _RUNNING:
        pool = _pool()
        if len(pool) == 1 or not hasattr(os, "sched_setaffinity"):
            yield
            return
        before = os.sched_getaffinity(0)
        os.sched_setaffinity(0, {pool[0]})
        try:
            yield
        finally:
            os.sched_setaffinity(0, before)
