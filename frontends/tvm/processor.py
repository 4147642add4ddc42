"""The CPU that code is made for and the CPU that it is to run on, without any compiler."""

import os
import platform
from collections.abc import Sequence
from dataclasses import dataclass

from xformer import machine

# LLVM's name of what plain code may be made of: its name in /proc/cpuinfo. What LLVM knows of a CPU beyond this are
# instructions that no numeric code turns into, or facts about their speed.
FEATURES = {
    **{name: name for name in ("ssse3", "popcnt", "movbe", "bmi2", "avx", "avx2", "fma", "f16c", "gfni")},
    **{name: name for name in ("avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl", "avx512ifma", "avx512vbmi")},
    **{f"avx512{name}": f"avx512_{name}" for name in ("vnni", "bf16", "fp16", "vbmi2", "bitalg", "vpopcntdq")},
    "sse3": "pni",
    "sse4.1": "sse4_1",
    "sse4.2": "sse4_2",
    "lzcnt": "abm",
    "bmi": "bmi1",
    "avxvnni": "avx_vnni",
    "neon": "asimd",
    "dotprod": "asimddp",
    "fullfp16": "asimdhp",
    "i8mm": "i8mm",
    "bf16": "bf16",
    "sve": "sve",
    "sve2": "sve2",
}
ARCHITECTURES = {"amd64": "x86_64", "arm64": "aarch64"}  # as others call them: as Linux does


@dataclass(frozen=True)
class Processor:
    """What code was made for: the CPU's name, its architecture, and those of its features that the code may use."""

    name: str
    architecture: str
    features: tuple[str, ...]  # keys of FEATURES


def cpus() -> list[int]:
    """The CPUs that this process may use: its affinity, cut to the quota of its control group."""
    allowed = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else list(range(os.cpu_count() or 1))
    return allowed[: machine.cores()["usable"]]


def architecture() -> str:
    """This machine's architecture, as Linux calls it."""
    found = platform.machine().lower()
    return ARCHITECTURES.get(found, found)


def missing(needed: Sequence[str]) -> list[str]:
    """Those of the needed features that this CPU lacks; none where the system does not list a CPU's features."""
    present = flags(machine.description())
    return [name for name in needed if FEATURES[name] not in present] if present else []


def flags(text: str) -> set[str]:
    """The features in a CPU's description, as /proc/cpuinfo has them."""
    lines = (line.partition(":") for line in text.splitlines())
    return next((set(value.split()) for key, _, value in lines if key.strip() in ("flags", "Features")), set())


def require(processor: Processor, what: str) -> None:
    """Raise ValueError, naming what is missing, when this machine cannot run code made for `processor`."""
    if processor.architecture != architecture():
        raise ValueError(f"{what} was compiled for {processor.architecture}; this machine is {architecture()}")
    if absent := missing(processor.features):
        raise ValueError(f"{what} was compiled for {processor.name}; this CPU lacks {', '.join(absent)}")
