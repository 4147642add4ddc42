"""What figures depend on: the machine, what is installed, and what else was going on."""

import importlib.metadata
import os
import platform
import time
from typing import Any

from xformer import machine

LIBRARIES = (
    "xformer",
    "numpy",
    "ml_dtypes",
    "array-api-compat",
    "jax",
    "jaxlib",
    "libtpu",
    "jax-cuda12-plugin",
    "cupy-cuda12x",
    "torch",
    "apache-tvm",
    "transformers",
    "onnxruntime",
    "openvino",
    "nncf",
    "ctranslate2",
    "llama-cpp-python",
)


def collect() -> dict[str, dict[str, Any]]:
    """ "machine", "run" and "versions". Call it once the libraries are loaded: BLAS tells its threads only then."""
    text = machine.description()
    features = machine.features(text, platform.machine()) or {}
    cores = machine.cores()["usable"]
    about = {
        "CPU": machine.model(text),
        "instructions": ", ".join(name for name, there in features.items() if there) or "unknown",
        "cores": cores,
        "BLAS": blas(),
        "Python": platform.python_version(),
    }
    run = {"measured": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())}
    if hasattr(os, "getloadavg"):
        run["load before"] = f"{os.getloadavg()[0]:.1f} of {cores} cores"
    return {"machine": about, "run": run, "versions": versions()}


def crowded() -> str:
    """A warning when other processes are busy, so that timings would be theirs too; "" otherwise."""
    load, cores = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0, machine.cores()["usable"]
    return f"load average {load:.1f} on {cores} cores: other processes are busy, and the figures will show it" if load > 0.5 else ""


def blas() -> str:
    """The BLAS libraries in this process, for which kernels, with how many threads."""
    try:
        import threadpoolctl
    except ImportError:
        return "unknown: threadpoolctl is not installed"
    found = [entry for entry in threadpoolctl.threadpool_info() if entry["user_api"] == "blas"]
    return ", ".join(f"{e['internal_api']} {e['version']} ({e.get('architecture')}), {e['num_threads']} threads" for e in found) or "none"


def versions() -> dict[str, str]:
    """The installed libraries that take part."""
    found = {}
    for name in LIBRARIES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found
