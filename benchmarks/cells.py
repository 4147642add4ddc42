"""From a workload, a library and a precision to something that can be called, and what it gives to be compared."""

import functools
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.workloads import NEW, Workload
from xformer import backends, ops
from xformer.model import Model
from xformer.precision import PRECISIONS


@dataclass(frozen=True)
class Runner:
    """A way to run models: a namespace, and what a frontend makes of a model in it."""

    namespace: str
    compiled: Callable[[Model], Model]
    jit: Callable[[Callable], Callable] = lambda function: function


def runners(hardware: str) -> tuple[dict[str, tuple[Runner, Any]], dict[str, str]]:
    """The runners with a device of that kind, by name, and why the others are left out."""
    kinds = {"cpu": ("cpu",), "gpu": ("gpu", "cuda"), "tpu": ("tpu",)}[hardware]
    wanted = {"cpu": ("numpy", "jax"), "gpu": ("cupy", "jax", "torch"), "tpu": ("jax",)}[hardware]
    found, missing = {}, {}
    for name in wanted:
        try:
            runner = _jax() if name == "jax" else Runner(name, lambda model: model)
            devices = backends.devices(backends.find(name))
        except ImportError as error:
            missing[name] = str(error)
            continue
        device = next((device for kind, device in devices.items() if kind.split(":")[0] in kinds), None)
        if device is None:
            missing[name] = f"{name} finds no {hardware}: {', '.join(devices) or 'no device'}"
        else:
            found[name] = (runner, None if hardware == "cpu" else device)
    return found, missing


def _jax() -> Runner:
    import jax

    from xformer.frontends.jax import compile

    return Runner("jax", functools.partial(compile, lengths=()), jax.jit)


@dataclass
class Cell:
    """A loaded model in one library and precision."""

    runner: str
    precision: str
    model: Model
    load: float  # seconds

    @classmethod
    def open(cls, subject, name: str, runner: Runner, device, precision: str) -> "Cell":
        """The subject's model; raises TypeError where the library has not the dtype."""
        start = time.perf_counter()
        model = runner.compiled(subject.make(runner.namespace, precision, device))
        return cls(name, precision, model, time.perf_counter() - start)

    def call(self, workload: Workload) -> Callable[[], Any]:
        """What is timed. It returns once the result is on the host."""
        ids = workload.ids()
        if workload.kind == "encode":
            return lambda: backends.to_numpy(self.model(ids, np.ones_like(ids)))
        new = 1 if workload.kind == "prefill" else NEW + 1
        return lambda: self.model.generate(ids, new, stop=(), mask=np.ones_like(ids))

    def output(self, workload: Workload) -> np.ndarray:
        """What is compared: hidden states, or the logits after the first row's prompt."""
        ids = workload.ids() if workload.kind == "encode" else workload.ids()[:1]
        states = backends.to_numpy(self.model(ids, np.ones_like(ids)))
        return states if workload.kind == "encode" else states[:, -1]


def peak(runner: Runner, device: Any, precision: str, size: int = 1024) -> float:
    """Operations a second of one large contraction with operands of that precision: what a model could reach at most."""
    xp, chosen = backends.find(runner.namespace), PRECISIONS[precision]
    square = backends.from_numpy(xp, np.random.default_rng(0).standard_normal((size, size)).astype(np.float32), device)
    a = chosen.narrow(square)
    values, dtype = getattr(a, "values", a), ops.dtype(xp, chosen.accumulator)
    contract = runner.jit(lambda x: ops.contract(x, x, dtype)[0, 0])
    best = float("inf")
    for _ in range(4):
        start = time.perf_counter()
        backends.to_numpy(contract(values))
        best = min(best, time.perf_counter() - start)
    return 2 * size**3 / best
