"""One kernel with one tiling: built, compared with what its TE computes unscheduled, and timed. Needs the compiler."""

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import tvm

from xformer.frontends.tvm import runtime, schedules
from xformer.frontends.tvm.fusion import Kernel
from xformer.frontends.tvm.nodes import Node
from xformer.frontends.tvm.padding import Scan
from xformer.frontends.tvm.target import Machine
from xformer.frontends.tvm.tiling import Tiling

SECONDS, MOST = 0.05, 40  # a measurement takes so long, with so many runs at the most
ROUNDING = 2e-5  # of the largest number of a row: sums in another order


class Bench:
    """A kernel on the bench: its arguments, and what it is to give."""

    def __init__(self, kernel: Kernel, machine: Machine):
        self.kernel, self.machine = kernel.whole, machine
        draw = np.random.default_rng(0)
        self.arguments = [argument(draw, node) for node in self.kernel.arguments]
        self.wanted = [x.copy() for x in self.run(build(kernel.unscheduled(machine), machine))]

    def build(self, chosen: Tiling) -> Any:
        """The kernel with a tiling, compiled."""
        machine = replace(self.machine, tiling=chosen)
        return build(schedules.apply(self.kernel, self.kernel.unscheduled(machine), machine), machine)

    def run(self, function: Any) -> list[np.ndarray]:
        """Its results."""
        results = [runtime.tensor(np.zeros(node.shape, runtime.numpy_dtype(node.dtype))) for node in self.kernel.results]
        with runtime.threads():
            function(*self.arguments, *results)
        return [runtime.to_numpy(x) for x in results]

    def check(self, function: Any) -> str:
        """How the results differ from those of the unscheduled TE; "" where they do not."""
        for got, wanted in zip(self.run(function), self.wanted, strict=True):
            if wanted.dtype.kind in "iub":
                if (wrong := int((got != wanted).sum())) > 0:
                    return f"{wrong} of {wanted.size} integers differ"
                continue
            a, b = got.astype(np.float64), wanted.astype(np.float64)
            if not np.array_equal(np.isfinite(a), np.isfinite(b)):
                return "what is not finite differs"
            scale = np.max(np.abs(b), axis=-1, keepdims=True, initial=1e-30, where=np.isfinite(b))
            apart = np.max(np.abs(a - b) / scale, initial=0.0, where=np.isfinite(b))
            most = ROUNDING if wanted.dtype == np.float32 else 2**-7
            if apart > most:
                return f"apart by {apart:.1e} of the largest number of a row; the limit is {most:.0e}"
        return ""

    def times(self, functions: list[Any]) -> list[float]:
        """Seconds of each, the fastest of runs in turn: what else the machine does slows one as much as the other."""
        results = [runtime.tensor(np.zeros(node.shape, runtime.numpy_dtype(node.dtype))) for node in self.kernel.results]
        fastest = [float("inf")] * len(functions)
        with runtime.threads():
            for _ in _turns():
                for place, function in enumerate(functions):
                    start = time.perf_counter()
                    function(*self.arguments, *results)
                    fastest[place] = min(fastest[place], time.perf_counter() - start)
        return fastest


def _turns() -> Iterator[int]:
    start = time.perf_counter()
    for turn in range(MOST):
        if turn > 3 and time.perf_counter() - start > 2 * SECONDS:
            return
        yield turn


def build(function: Any, machine: Machine) -> Any:
    """A scheduled function, compiled alone."""
    module = tvm.IRModule({"main": function.with_attr("global_symbol", "main")})
    return tvm.compile(module, machine.target)["main"]


def argument(draw: np.random.Generator, node: Node, indices: bool = False) -> Any:
    """A tensor for an argument of a kernel: what a scan finds where there is no padding, else `values`."""
    found = node.of_whole() if isinstance(node, Scan) else values(draw, node.shape, node.dtype, indices)
    return runtime.tensor(found)


def values(draw: np.random.Generator, shape: tuple[int, ...], dtype: str, indices: bool = False) -> np.ndarray:
    """Arguments: real numbers of all magnitudes, a row of zeros among them; the whole range of narrow integers, some of wide ones.

    Where wide integers may be `indices`, they are 0 and 1.
    """
    if dtype == "bool":
        return draw.random(shape) < 0.8
    if dtype in ("int8", "uint8"):
        return draw.integers(-127 if dtype == "int8" else 0, 128, shape).astype(dtype)
    if dtype.startswith("int"):
        return draw.integers(*((0, 2) if indices or len(shape) < 2 else (-100, 101)), shape).astype(dtype)
    values = draw.standard_normal(shape, np.float32)
    if len(shape) > 1 and shape[-2] > 1:
        values *= np.float32(10.0) ** draw.integers(-3, 3, (*shape[:-1], 1)).astype(np.float32)
        values[..., 0, :] = 0
    return values.astype(runtime.numpy_dtype(dtype))
