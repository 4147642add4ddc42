"""`python -m benchmarks.peers.worker`: one model of one library, told by lines of JSON to load, run and compare it."""

import importlib
import shutil
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.ahead.pool import serve
from benchmarks.measure import Call
from benchmarks.peers.loaded import Loaded, judged
from benchmarks.peers.points import Point
from xformer import storage
from xformer.precision import PRECISIONS


class Worker:
    """What this process holds, and what it can be told. Each method answers with what goes into the line."""

    model: Loaded
    point: Point
    call: Call
    output: Any = None

    def peaks(self, precision: str) -> dict[str, float]:
        """Operations and bytes a second that this machine does at most in a precision."""
        from xformer.frontends.tvm import target, timing

        chosen = PRECISIONS[precision]
        found = timing.peaks(target.machine(), chosen.operand, chosen.accumulator)
        return {"operations": found.operations, "bytes": found.bandwidth}

    def convert(self, module: str, role: str, source: str, folder: str) -> dict[str, Any]:
        """Write the files that the library wants into `folder`, all or none."""
        made = Path(f"{folder}.part")
        shutil.rmtree(made, ignore_errors=True)  # of a conversion that did not end
        made.mkdir(parents=True)
        _module(module).convert(role, Path(source), made)
        made.rename(folder)
        return {}

    def load(self, module: str, library: str, role: str, precision: str, variant: str, source: str, folder: str) -> dict[str, Any]:
        """Make the model ready."""
        start = time.perf_counter()
        self.model = _module(module).load(library, role, precision, variant, Path(source), Path(folder))
        return {"load": time.perf_counter() - start}

    def take(self, **point: Any) -> dict[str, Any]:
        """Make this point the one that is timed."""
        self.point = Point(**point | {"lengths": tuple(point["lengths"])})
        self.call = self.model.call(self.point)
        parts = {part: getattr(self.call, part) is not None for part in ("probe", "apart")}
        return parts | {"factor": self.call.factor, "least": self.call.least}

    def time(self, part: str) -> dict[str, Any]:
        """Seconds of one of "run", "probe" and "apart"."""
        seconds, output = self.call.time(part, time.perf_counter)
        if part == "run":
            self.output = output
        return {"seconds": seconds}

    def judge(self, reference: str) -> dict[str, Any]:
        """How far the output of the last "run" is from the reference in a file."""
        with np.load(reference) as stored:
            return judged(self.model.outputs(self.point, self.output), dict(stored))

    def refer(self, reference: str) -> dict[str, Any]:
        """Write that file."""
        outputs = self.model.outputs(self.point, self.call.wait(self.call.run()))
        with storage.replacing(Path(reference)) as (made,), made.open("wb") as file:  # a path would get a suffix
            np.savez(file, **outputs)
        return {}


def _module(name: str) -> Any:
    return importlib.import_module(f"benchmarks.peers.{name}")


if __name__ == "__main__":
    worker = Worker()
    serve(lambda do, **job: getattr(worker, do)(**job))
