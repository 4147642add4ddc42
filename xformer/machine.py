"""The machine, as far as this process may use it: CPU and the instructions that matter here, cores, memory."""

import math
import os
import platform
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

X86 = {  # feature: how /proc/cpuinfo and the sysctl of macOS spell it
    "AVX2": ("avx2", "hw.optional.avx2_0"),
    "AVX-512F": ("avx512f", "hw.optional.avx512f"),
    "AVX-512BW": ("avx512bw", "hw.optional.avx512bw"),
    "AVX-VNNI": ("avx_vnni",),
    "AVX-512 VNNI": ("avx512_vnni", "hw.optional.avx512vnni"),
    "AVX-512 BF16": ("avx512_bf16",),
    "AMX INT8": ("amx_int8",),
    "AMX BF16": ("amx_bf16",),
}
ARM = {
    "NEON": ("asimd", "hw.optional.AdvSIMD"),
    "NEON dotprod": ("asimddp", "hw.optional.arm.FEAT_DotProd"),
    "NEON i8mm": ("i8mm", "hw.optional.arm.FEAT_I8MM"),
    "NEON bf16": ("bf16", "hw.optional.arm.FEAT_BF16"),
    "SVE": ("sve",),
}
FEATURES = {"x86_64": X86, "amd64": X86, "aarch64": ARM, "arm64": ARM}
INT8_DOT = {"AVX-VNNI", "AVX-512 VNNI", "AMX INT8", "NEON dotprod", "NEON i8mm"}  # int8 products summed in int32
BF16_DOT = {"AVX-512 BF16", "AMX BF16", "NEON bf16"}  # bf16 products summed in fp32


def description() -> str:
    """What the system says of its CPU: /proc/cpuinfo or sysctl, "key: value" lines; "" where there is neither."""
    try:
        if platform.system() == "Darwin":
            command = ["sysctl", "machdep.cpu.brand_string", "hw.optional", "hw.memsize"]
            return subprocess.run(command, capture_output=True, text=True, timeout=10, check=False).stdout
        return Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except (OSError, subprocess.TimeoutExpired):
        return ""


def model(text: str) -> str:
    """The CPU's name in a `description`."""
    entries = _entries(text)
    name = next((entries[key] for key in ("model name", "machdep.cpu.brand_string", "Model") if entries.get(key)), "")
    return name or platform.processor() or platform.machine()


def features(text: str, machine: str) -> dict[str, bool] | None:
    """Which instructions a CPU of the kind `machine` has by its `description`; None when that says nothing of them."""
    entries, known = _entries(text), FEATURES.get(machine.lower())
    listed = entries.get("flags", entries.get("Features"))
    if listed is None:
        present = {key for key, value in entries.items() if key.startswith("hw.optional") and value == "1"}
    else:
        present = set(listed.split())
    if known is None or not (present or listed):
        return None
    return {feature: not present.isdisjoint(spellings) for feature, spellings in known.items()}


def cores(root: Path = Path("/sys/fs/cgroup"), own: Path = Path("/proc/self/cgroup")) -> dict[str, Any]:
    """Logical cores: of the machine, those this process may be scheduled on, its quota of time, and what remains to use."""
    logical = os.cpu_count() or 1
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else logical
    quotas = [_ratio(*_read(group / "cpu.max").split()[:2]) for group in _groups(root, own, "")]
    for group in _groups(root, own, "cpu"):
        quotas.append(_ratio(_read(group / "cpu.cfs_quota_us"), _read(group / "cpu.cfs_period_us")))
    quota = min((found for found in quotas if found), default=None)
    return {"logical": logical, "allowed": allowed, "quota": quota, "usable": min(allowed, math.ceil(quota or allowed))}


def memory(text: str = "", root: Path = Path("/sys/fs/cgroup"), own: Path = Path("/proc/self/cgroup")) -> dict[str, int | None]:
    """Bytes: of the machine, free of them, and the limit of this process's group; None where the system does not say."""
    lines = _entries(_read(Path("/proc/meminfo")))
    kib = {key: int(value.split()[0]) * 1024 for key, value in lines.items() if value.endswith("kB")}
    total = kib.get("MemTotal") or int(_entries(text).get("hw.memsize", 0)) or None
    limits = [_read(group / "memory.max") for group in _groups(root, own, "")]
    limits += [_read(group / "memory.limit_in_bytes") for group in _groups(root, own, "memory")]
    numbers = [int(limit) for limit in limits if limit.isdigit() and (total is None or int(limit) < total)]
    return {"total": total, "available": kib.get("MemAvailable"), "limit": min(numbers, default=None)}


def _groups(root: Path, own: Path, controller: str) -> Iterator[Path]:
    """The folders of this process's control groups, the outermost last; version 2 has no controller in its path."""
    for line in _read(own).splitlines():
        _, controllers, path = line.split(":", 2)
        if controller in controllers.split(","):
            inner = (root / controller / path.lstrip("/")).resolve()
            yield inner
            yield from (parent for parent in inner.parents if parent == root or root in parent.parents)


def _ratio(quota: str = "", period: str = "") -> float | None:
    return int(quota) / int(period) if quota.isdigit() and period.isdigit() and int(period) else None


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").strip()
    except OSError:
        return ""


def _entries(text: str) -> dict[str, str]:
    """The first value of each key."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        key, colon, value = line.partition(":")
        if colon:
            found.setdefault(key.strip(), value.strip())
    return found
