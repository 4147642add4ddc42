"""`python -m benchmarks.footprint MODEL`: what a compiled model costs before its first result, in time and memory.

The model is compiled and saved by one process, then loaded and run by fresh ones without a compiler. Growth is the largest
resident set while loading and running, less the resident set after the imports: weights, activations and code.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Annotated, Any

RUNS = 3  # fresh processes; the fastest counts


def resident(peak: bool = False) -> int:
    """Bytes of this process that are in memory, now or at most so far. Linux only."""
    name = "VmHWM:" if peak else "VmRSS:"
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(name))
    return 1024 * int(line.split()[1])


def saved(model: str, folder: str, precision: str | None, batch: int, length: int, new: int) -> dict[str, float]:
    """Compile a folder or a preset and save it: seconds, and the peak of memory."""
    import xformer
    from xformer.frontends import tvm

    start = time.perf_counter()
    compiled = tvm.compile(xformer.load(model) if Path(model).is_dir() else xformer.init(model), (batch, length, new), precision=precision)
    done = time.perf_counter()
    compiled.save(folder)
    return {"compile": done - start, "save": time.perf_counter() - done, "peak": resident(peak=True)}


def loaded(folder: str, batch: int, length: int, new: int) -> dict[str, float]:
    """Load a compiled model and run it twice: seconds of each part, the growth of memory, and the size of the weights."""
    start = time.perf_counter()
    from xformer.frontends import tvm

    tvm._import_runtime()
    imported, before = time.perf_counter(), resident()
    model = tvm.load(folder)
    ready = time.perf_counter()
    tokens = [[1] * length] * batch

    def call() -> Any:
        return model.generate(tokens, new, stop=()) if hasattr(model.functions, "decode") else model(tokens)

    call()
    first = time.perf_counter()
    call()
    figures = {"import": imported - start, "load": ready - imported, "first call": first - ready, "next call": time.perf_counter() - first}
    weights = (Path(folder) / "weights.safetensors").stat().st_size
    return {**figures, "imported": before, "growth": resident(peak=True) - before, "weights": weights}


def fresh(function: str, *arguments: Any) -> dict[str, float]:
    """A function of this module in a process of its own."""
    code = f"import json; from benchmarks import footprint; print(json.dumps(footprint.{function}(*{arguments!r})))"
    path = [str(Path(__file__).parent.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path)}
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, check=True, env=environment)
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    """The command."""
    import typer

    def measure(
        model: Annotated[str, typer.Argument(help="a folder or a preset")],
        precision: Annotated[str | None, typer.Option(help="the folder's, or fp32")] = None,
        batch: int = 1,
        length: int = 128,
        new: Annotated[int, typer.Option(help="tokens to generate, of a decoder")] = 16,
    ) -> None:
        """Compile, save, load and run a model: seconds and memory of each."""
        with tempfile.TemporaryDirectory() as folder:
            once = fresh("saved", model, folder, precision, batch, length, new)
            runs = [fresh("loaded", folder, batch, length, new) for _ in range(RUNS)]
        for name in ("compile", "save"):
            print(f"{name:12} {once[name]:8.2f} s")
        for name in ("import", "load", "first call", "next call"):
            print(f"{name:12} {min(run[name] for run in runs):8.3f} s")
        growth, weights = (max(run[name] for run in runs) / 1e6 for name in ("growth", "weights"))
        print(f"memory       {runs[0]['imported'] / 1e6:8.1f} MB after the imports; {once['peak'] / 1e6:.1f} MB at most while compiling")
        print(f"growth       {growth:8.1f} MB while loading and running = {growth / weights:.2f} x {weights:.1f} MB of packed weights")

    typer.run(measure)


if __name__ == "__main__":
    main()
