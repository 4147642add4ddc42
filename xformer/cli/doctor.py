"""What is installed, whether it fits what xformer's metadata asks for, and what of it works here: facts as plain data."""

import os
import platform
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib import metadata
from typing import Any

import numpy as np
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from xformer import __version__, machine
from xformer.backends import NAMESPACES
from xformer.cli.probe import ask

MODULES = {"apache-tvm": "tvm", "apache-tvm-ffi": "tvm_ffi", "cupy-cuda12x": "cupy"}  # where the distribution has another name
CONSEQUENCES = {"apache-tvm-ffi": "MetaSchedule and Schedule.tensorize crash with this pair"}
ENVIRONMENT = {
    "OPENBLAS_CORETYPE": "NumPy's BLAS uses the kernels of this CPU, whatever the CPU is: often slower",
    "OPENBLAS_L2_SIZE": "NumPy's BLAS cuts its blocks for a cache of this size, whatever the cache is: often slower",
    "NPY_DISABLE_CPU_FEATURES": "NumPy does without these instructions",
    "OPENBLAS_NUM_THREADS": "threads of NumPy's BLAS",
    "OMP_NUM_THREADS": "threads of NumPy's BLAS and of torch",
    "MKL_NUM_THREADS": "threads of torch",
    "TVM_NUM_THREADS": "threads of TVM",
    "JAX_PLATFORMS": "JAX uses these platforms only",
    "CUDA_VISIBLE_DEVICES": "only these GPUs are seen",
}


@dataclass(frozen=True)
class Wanted:
    """A distribution that xformer's metadata names, or that a namespace needs."""

    distribution: str
    module: str
    versions: SpecifierSet  # an empty one admits all
    install: str


def facts(found: list[dict[str, Any]], progress: Callable[[int], Any] = lambda count: None) -> dict[str, Any]:
    """Everything, as JSON's types, with the `libraries` tried. `progress` is told how many more of the installed are done."""
    cpu, cores = machine.description(), machine.cores()
    installed = [library for library in found if library["installed"]]

    def examine(library):
        library.update(ask(library["module"]))
        progress(1)

    with ThreadPoolExecutor(cores["usable"]) as pool:
        list(pool.map(examine, installed))
    result = {
        "xformer": __version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cpu": {"model": machine.model(cpu), "features": machine.features(cpu, platform.machine())},
        "cores": cores,
        "memory": machine.memory(cpu),
        "blas": blas(),
        "environment": {name: os.environ[name] for name in ENVIRONMENT if name in os.environ},
        "libraries": found,
    }
    return {**result, "notes": notes(result), "broken": broken(found)}


def wanted() -> list[Wanted]:
    """What the installed xformer's metadata asks for with any of its extras, and every namespace."""
    try:
        requirements = [Requirement(line) for line in metadata.requires("xformer") or ()]
    except metadata.PackageNotFoundError:  # a source tree that is not installed
        requirements = []
    found: dict[str, Wanted] = {}
    for requirement in requirements:
        name = requirement.name
        if name != "xformer":
            module = MODULES.get(name, name.replace("-", "_"))
            found[module] = Wanted(name, module, requirement.specifier, f"'{name}{requirement.specifier}'")
    for module, library in NAMESPACES.items():
        found.setdefault(module, Wanted(module.replace("_", "-"), module, SpecifierSet(), library.install))
    return list(found.values())


def libraries() -> list[dict[str, Any]]:
    """Each library that xformer can use: which version is there and which are wanted; nothing is imported."""
    return [_library(entry) for entry in wanted()]


def _library(entry: Wanted) -> dict[str, Any]:
    distribution, version = entry.distribution, _version(entry.distribution)
    if version is None:  # the module may come in another distribution: cupy for another CUDA
        distribution = next(iter(metadata.packages_distributions().get(entry.module, ())), distribution)
        version = _version(distribution)
    return {
        "distribution": distribution,
        "module": entry.module,
        "install": entry.install,
        "installed": version,
        "wanted": str(entry.versions),
        "fits": None if version is None else entry.versions.contains(version, prereleases=True),
    }


def _version(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def blas() -> str | None:
    """The library behind NumPy's matrix products, as NumPy was built."""
    found = np.show_config(mode="dicts").get("Build Dependencies", {}).get("blas", {})
    return " ".join(str(found[key]) for key in ("name", "version") if found.get(key)) or None


def broken(libraries: Sequence[dict[str, Any]]) -> list[str]:
    """What is installed and does not fit or does not work."""
    found = []
    for library in (library for library in libraries if library["installed"]):
        name = f"{library['distribution']} {library['installed']}"
        if not library["fits"]:
            consequence = CONSEQUENCES.get(library["distribution"])
            found.append(f"{name} is not {library['wanted']}" + (f": {consequence}" if consequence else ""))
        if library["imports"]["state"] == "broken":
            found.append(f"{name} does not import: {library['imports']['why']}")
            continue
        for precision, finding in library.get("precisions", {}).items():
            if finding["state"] == "broken":
                found.append(f"{name} fails in {precision}: {finding['why']}")
    return found


def notes(found: dict[str, Any]) -> list[str]:
    """What else a person should know before wondering about speed."""
    result = [f"{name}={value}: {ENVIRONMENT[name]}" for name, value in found["environment"].items()]
    result.append("numpy multiplies bf16 operands in fp32, after widening them: right, but slower than fp32")
    features = found["cpu"]["features"]
    if features is None:
        result.append("which instructions this CPU has is unknown: the system does not list them")
    else:
        present = {name for name, there in features.items() if there}
        for precision, instructions in (("int8", machine.INT8_DOT), ("bf16", machine.BF16_DOT)):
            if present.isdisjoint(instructions):
                result.append(f"this CPU has no instruction for {precision} products: {precision} may be slower than fp32")
    if not any(library["wanted"] for library in found["libraries"]):
        result.append("xformer is not installed (this is a source tree): which versions it wants is unknown")
    return result
