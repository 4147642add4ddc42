"""From a workload, a library and a precision to something that can be called, and what its results are worth."""

import functools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.measure import Call
from benchmarks.workloads import LENGTHS, NEW, Workload
from xformer import backends, cache, ops
from xformer.model import Model
from xformer.parity.effective import arithmetic, distance
from xformer.precision import PRECISIONS, Precision, Quantized

PROBE = 5  # tokens after the first in the trial of a decode
NAMESPACES = {"cpu": ("numpy", "jax", "tvm", "tvm untuned", "torch"), "gpu": ("cupy", "jax", "torch"), "tpu": ("jax",)}
KINDS = {"cpu": ("cpu",), "gpu": ("gpu", "cuda"), "tpu": ("tpu",)}  # of devices, as the libraries call them
ON_REQUEST = {
    "tvm untuned": "only with --namespace 'tvm untuned': what the rules give without tuning records",
    "torch": "only with --namespace torch",
}
NOT_TIMED = {"array_api_strict": "checks conformance, is not meant to be fast", "jax eager": "jax is timed compiled"}


@dataclass(frozen=True)
class Runner:
    """A way to run models: a namespace, a device of it, and what a frontend makes of a model there.

    `made_in` is the namespace where that is not the name; one that is `alone` gets a process of its own.
    """

    name: str
    device: Any
    compiled: Callable[[Model], Model] = lambda model: model
    jit: Callable[[Callable], Callable] | None = None
    made_in: str | None = None
    alone: bool = False

    @property
    def namespace(self) -> str:
        """Where models are made and results arrive."""
        return self.made_in or self.name


def runners(hardware: str, names: Sequence[str]) -> tuple[list[Runner], dict[str, str]]:
    """The runners with a device of that kind among `names`, and by name why the others are left out."""
    found, missing = [], dict(NOT_TIMED)
    for name in names:
        try:
            options = FRONTENDS[name]() if name in FRONTENDS else {}
            devices = backends.devices(backends.find(options.get("made_in", name)))
        except Exception as error:  # not installed, or its driver is not there, for which each library has its own class
            missing[name] = f"{type(error).__name__}: {error}"
            continue
        device = next((device for kind, device in devices.items() if kind.split(":")[0] in KINDS[hardware]), None)
        if device is None:
            missing[name] = f"finds no {hardware}, only {', '.join(devices) or 'nothing'}"
        else:
            found.append(Runner(name, None if hardware == "cpu" else device, **options))
    return found, missing


def _jax() -> dict[str, Any]:
    import jax

    from xformer.frontends.jax import compile

    return {"compiled": functools.partial(compile, lengths=LENGTHS), "jit": jax.jit}


def _tvm(tuned: bool = True) -> dict[str, Any]:
    import tvm  # noqa: F401  its absence is to be told before anything is measured

    from xformer.frontends.tvm import compile, jit
    from xformer.frontends.tvm.tuning.records import Records

    compiled = compile if tuned else functools.partial(compile, records=Records())
    # Its threads, each on a core of its own, and those of NumPy would wait for each other in one process.
    return {"compiled": compiled, "jit": jit, "made_in": "numpy", "alone": True}


FRONTENDS = {"jax": _jax, "tvm": _tvm, "tvm untuned": functools.partial(_tvm, tuned=False)}


@dataclass
class Cell:
    """A loaded model in one library and precision."""

    runner: Runner
    precision: str
    model: Model
    load: float  # seconds
    peak: "Peak"

    @classmethod
    def open(cls, subject, runner: Runner, precision: str) -> "Cell":
        """The subject's model; raises TypeError where the library has not the dtype."""
        peak, start = contraction(runner, PRECISIONS[precision]), time.perf_counter()
        model = runner.compiled(subject.make(runner.namespace, precision, runner.device))
        return cls(runner, precision, model, time.perf_counter() - start, peak)

    def call(self, workload: Workload) -> Call:
        """What is timed. Its output is what `error` compares: hidden states, the next logits, or ids."""
        ids = workload.ids()
        mask, common = np.ones_like(ids), {"floor": workload.operations / self.peak.rate, "compiles": self.runner.jit is not None}
        if workload.kind == "encode":
            return Call(lambda: self.model(ids, mask), backends.to_numpy, **common)
        if workload.kind == "prefill":
            return Call(self._prefill(ids, mask), backends.to_numpy, **common)
        some, one, every = (functools.partial(self.model.generate, ids, count, stop=(), mask=mask) for count in (1 + PROBE, 1, NEW))
        return Call(every, np.asarray, some, (NEW - 1) / PROBE, one, least=1, **common)

    def _prefill(self, ids, mask) -> Callable[[], Any]:
        m = self.model
        function = m.transform(functools.partial(m.functions.prefill, config=m.config, precision=m.precision))
        tokens, real = (backends.from_numpy(m.xp, x, m.device) for x in (ids, mask.astype(bool)))
        return lambda: function(m.params, tokens, real, cache.empty(m.xp, m.config, *ids.shape, m.device, m.precision))[0]


def error(output: np.ndarray, reference: np.ndarray) -> float:
    """Norm of the difference over the norm; of ids, the share that differs."""
    if output.dtype.kind == "i":
        return float(np.mean(output != reference))
    return float(np.linalg.norm(output - reference) / np.linalg.norm(reference))


@dataclass(frozen=True)
class Peak:
    """What a library does at most in one precision: operations a second, and in which arithmetic, as its result tells."""

    rate: float
    arithmetic: str


@functools.cache
def contraction(runner: Runner, precision: Precision) -> Peak:
    """One large contraction of operands in that precision. A slow one is measured in a smaller size."""
    for size in (256, 1024):
        seconds, difference = _contract(runner, precision, size)
        if seconds > 0.1:
            break
    return Peak(2 * size**3 / seconds, arithmetic(precision, difference))


def _contract(runner: Runner, precision: Precision, size: int) -> tuple[float, float]:
    """Seconds of the fastest of five, and the relative difference to the exact product."""
    xp, draw = backends.find(runner.namespace), np.random.default_rng(0)
    operands = [precision.narrow(backends.from_numpy(xp, draw.standard_normal((size, size), np.float32), runner.device)) for _ in "ab"]
    a, b = (operand.values if isinstance(operand, Quantized) else operand for operand in operands)
    keep = runner.jit or (lambda function: function)
    contract = keep(lambda a, b: ops.contract(a, b, ops.dtype(ops.namespace(a), precision.accumulator)))
    seconds = []
    for _ in range(5):
        start = time.perf_counter()
        result = contract(a, b)
        backends.to_numpy(result[0, 0])  # waits for the work without moving the result
        seconds.append(time.perf_counter() - start)
    return min(seconds), distance(result, a, b)
