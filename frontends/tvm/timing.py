"""Where a compiled model's time goes: every distinct kernel timed alone, on arguments that are not in a cache."""

import itertools
import math
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

from xformer import ops
from xformer.frontends.tvm import runtime
from xformer.frontends.tvm.contraction import Contract
from xformer.frontends.tvm.explaining import Explanation
from xformer.frontends.tvm.fusion import Kernel
from xformer.frontends.tvm.nodes import Indexed, Node, Write
from xformer.frontends.tvm.target import Machine
from xformer.frontends.tvm.tracing import trace
from xformer.frontends.tvm.tuning.trial import argument, build
from xformer.frontends.tvm.weights import PackedSpec
from xformer.params import Spec

CACHE = 64 << 20  # bytes of arguments that no cache holds
SECONDS, LEAST = 0.1, 5  # a kernel is timed so long, and so many times at least
SIZES = (768, 1024, 1536)  # of the contractions whose speed is taken for the machine's; rows of a power of two share cache lines
ROUNDS = 3  # through all sizes: what else a machine does comes and goes


@dataclass(frozen=True)
class Timing:
    """Seconds of one call of a kernel, the median; operations of its contraction and bytes of what it reads and writes."""

    kernel: Explanation
    seconds: float
    operations: int
    bytes: int

    @property
    def total(self) -> float:
        """Seconds of all calls of the function."""
        return self.kernel.calls * self.seconds


@dataclass(frozen=True)
class Peaks:
    """What this machine does at most: operations a second in a large contraction, and bytes a second that it reads."""

    operations: float
    bandwidth: float


def timings(kernels: Sequence[Explanation]) -> list[Timing]:
    """Each kernel, timed on this machine."""
    return [Timing(kernel, _seconds(kernel), _operations(kernel.kernel.seed), _bytes(kernel.kernel)) for kernel in kernels]


def peaks(machine: Machine, operand: str, accumulate: str) -> Peaks:
    """Measured now: contractions of square operands with a packed weight, and arrays that all cores read.

    The best of several sizes and rounds: what else runs on the machine makes a sample slower, never faster.
    """
    programs = [(2 * size**3, *_contraction(machine, operand, accumulate, size)) for size in SIZES]
    samples = [(work, _times(function, [tensors])) for _ in range(ROUNDS) for work, function, tensors in programs]
    return Peaks(best(samples), best(_reads(machine.cores)))


def best(samples: Iterable[tuple[float, Sequence[float]]]) -> float:
    """The most work a second; a sample is an amount of work with the seconds that it took each time."""
    return max(work / min(seconds) for work, seconds in samples)


def _contraction(machine: Machine, operand: str, accumulate: str, size: int) -> tuple[Any, list[Any]]:
    """A contraction of that size, compiled, and arguments for it."""

    def contract(x, w):
        return ops.contract(x, w, ops.dtype(ops.namespace(x), accumulate))

    layout = machine.layout(operand)
    arguments = (Spec((size, size), operand), PackedSpec((size, size), layout.stored(operand), layout=layout))
    traced = trace(contract, arguments, machine)
    ((name, distinct),) = ((name, found) for name, found in traced.kernels.items() if found.rule == "contraction")
    return build(traced.module[name], machine), _tensors(distinct.kernel)


def _reads(cores: int) -> Iterator[tuple[float, list[float]]]:
    """Bytes that all cores read together, and the seconds that it took."""
    with ThreadPoolExecutor(cores) as pool:
        for size in (CACHE, 2 * CACHE) * ROUNDS:
            arrays, seconds = [np.ones(size // 4, np.float32) for _ in range(cores)], []
            for _ in range(LEAST):
                start = time.perf_counter()
                list(pool.map(lambda x: np.dot(x, x), arrays))
                seconds.append(time.perf_counter() - start)
            yield cores * size, seconds


def _seconds(explained: Explanation) -> float:
    held = sum(map(_size, (*explained.kernel.arguments, *explained.kernel.results)))  # a table whole, whatever is looked up
    copies = min(-(-CACHE // held), 64)
    return float(np.median(_times(build(explained.scheduled, explained.machine), [_tensors(explained.kernel) for _ in range(copies)])))


def _times(function: Any, sets: Sequence[list[Any]]) -> list[float]:
    """Seconds of each call, the sets of arguments in turn."""
    seconds: list[float] = []
    with runtime.threads():
        for arguments in sets[:2]:
            function(*arguments)
        start = time.perf_counter()
        for arguments in itertools.cycle(sets):
            before = time.perf_counter()
            function(*arguments)
            seconds.append(time.perf_counter() - before)
            if len(seconds) >= LEAST and time.perf_counter() - start > SECONDS:
                return seconds
    raise AssertionError("a cycle does not end")


def _tensors(kernel: Kernel) -> list[Any]:
    draw = np.random.default_rng(0)
    nodes = kernel.arguments if isinstance(kernel.seed, Write) else (*kernel.arguments, *kernel.results)
    return [argument(draw, node, indices=True) for node in nodes]


def _operations(seed: Node) -> int:
    """Multiplications and additions; 0 where there is no contraction."""
    return 2 * math.prod(seed.shape) * seed.operands[0].shape[-1] if isinstance(seed, Contract) else 0


def _bytes(kernel: Kernel) -> int:
    """Of all arguments and results; of rows that are looked up, and of a write into the cache, those rows."""
    if isinstance(kernel.seed, Write):
        return 2 * _size(kernel.arguments[1])
    return sum(map(_size, kernel.results)) + sum(_read(argument, kernel) for argument in kernel.arguments)


def _read(argument: Node, kernel: Kernel) -> int:
    readers = [node for node in kernel.nodes if any(x.node is argument for x in node.operands)]
    looked_up = all(isinstance(node, Indexed) and node.operands[0].node is argument for node in readers)
    return sum(map(_size, readers)) if looked_up else _size(argument)


def _size(node: Node) -> int:
    return math.prod(node.shape) * runtime.numpy_dtype(node.dtype).itemsize
