"""What of an installed library works here, found by trying it.

Each library is tried in a child process with a time limit: one that crashes or hangs takes nothing with it.
`python -m xformer.cli.probe MODULE` is that child. A finding has a state, "works", "missing" (the library or the machine does
not have it) or "broken", and says why.
"""

import importlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from xformer import backends, ops
from xformer.backends import NAMESPACES
from xformer.blocks import Linear
from xformer.precision import PRECISIONS, Precision

TIME_LIMIT = 60.0  # seconds for one library: importing a large one from a cold disk takes up to 20
TOLERANCE = 0.05  # of the largest value: int8 rounds by about 0.01 here, a product that wrapped around is off by more than 1
MARK = "xformer.cli.probe:"  # in front of what the child found: libraries print too
COMMAND = (sys.executable, "-P", "-m", "xformer.cli.probe")


def ask(module: str, seconds: float = TIME_LIMIT, command: Sequence[str] = COMMAND) -> dict[str, Any]:
    """What `probe` finds in a child process: "imports", and for a namespace "devices" and "precisions".

    What the child was trying when it died or ran out of time, and what it had not reached, is broken.
    """
    path = os.pathsep.join(filter(None, [str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH")]))
    # JAX would take three quarters of a GPU's memory, which others may be using
    environment = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false", **os.environ, "PYTHONPATH": path}
    with subprocess.Popen([*command, module], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment) as child:
        try:
            output, _ = child.communicate(timeout=seconds)
            end = f"crashed ({signal.Signals(-child.returncode).name})" if child.returncode < 0 else f"ended with code {child.returncode}"
        except subprocess.TimeoutExpired:
            child.kill()
            output, _ = child.communicate()
            end = f"took more than {seconds:g} s"
    lost = _finding("broken", end)
    found = dict(json.loads(line.removeprefix(MARK)) for line in output.splitlines() if line.startswith(MARK))
    result = {"imports": found.get("imports", lost)}
    if module in NAMESPACES:
        reason = lost if result["imports"]["state"] == "works" else result["imports"]
        result["devices"] = found.get("devices", [])
        result["precisions"] = {name: found.get(name, reason) for name in PRECISIONS}
    return result


def probe(module: str) -> Iterator[tuple[str, Any]]:
    """Try a library in this very process, which it may crash: what was found, one by one."""
    imports = _attempt(lambda: importlib.import_module(module))
    yield "imports", imports
    if module not in NAMESPACES or imports["state"] != "works":
        return
    xp = backends.find(module)
    devices: list[str] = []
    found = _attempt(lambda: devices.extend(backends.devices(xp)))
    yield "devices", devices
    for name, precision in PRECISIONS.items():
        yield name, _precision(xp, precision) if devices else _finding("missing", f"no device ({found['why'] or 'none found'})")


def contract(xp: ModuleType, precision: Precision) -> None:
    """A small contraction, compared with NumPy's in fp64. Raises ArithmeticError when it is wrong, or what the library raises."""
    a, b = ((np.arange(rows * 8, dtype=np.float32) % 7 - 3).reshape(rows, 8) for rows in (3, 4))
    product = precision.project(backends.from_numpy(xp, a), Linear(precision.prepare(backends.from_numpy(xp, b))))
    expected = a.astype(np.float64) @ b.T.astype(np.float64)
    error = float(np.max(np.abs(backends.to_numpy(product) - expected)) / np.max(np.abs(expected)))
    if not error <= TOLERANCE:
        raise ArithmeticError(f"a product is wrong by {error:.2g} of its largest value")


def _precision(xp, precision):
    try:
        for dtype in (precision.operand, precision.accumulator):
            ops.dtype(xp, dtype)
    except TypeError as error:
        return _finding("missing", str(error))
    return _attempt(lambda: contract(xp, precision))


def _attempt(function: Callable[[], Any]) -> dict[str, Any]:
    try:
        function()
    except Exception as error:  # whatever a library raises is the finding
        return _finding("broken", f"{type(error).__name__}: {next(iter(str(error).splitlines()), '')}")
    return _finding("works")


def _finding(state: str, why: str | None = None) -> dict[str, Any]:
    return {"state": state, "why": why}


if __name__ == "__main__":
    for key, value in probe(sys.argv[1]):
        print(MARK + json.dumps([key, value]), flush=True)
