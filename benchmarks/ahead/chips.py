"""Accelerators by name: how their compiler is reached and what their makers publish of them."""

from dataclasses import dataclass

TERA, GIGA = 1e12, 1e9
PASSES = 6  # bf16 products that a TPU makes for one fp32 product in JAX's precision HIGHEST, which is what we ask for


@dataclass(frozen=True)
class Chip:
    """One accelerator as a compiler sees it: a device.

    `peaks` are operations a second by the type of the operands, `bandwidth` bytes a second between its memory and the chip;
    `topology` describes four of them to the compiler.
    """

    name: str
    hardware: str  # the column of the matrix that it belongs to
    platform: str
    topology: dict[str, str]
    peaks: dict[str, float]
    bandwidth: float
    source: str


def _tpu(
    name: str, shape: str, bf16: float, int8: float | None, bandwidth: float, page: str, devices: int = 1, cores: str = "default"
) -> Chip:
    """Figures of a whole chip, which is so many devices, in tera-operations and GB a second; `cores` is libtpu's name for how many."""
    peaks = {"bf16": bf16, "f32": bf16 / PASSES} | ({"s8": int8} if int8 else {})
    rates = {name: rate * TERA / devices for name, rate in peaks.items()}
    source = f"https://cloud.google.com/tpu/docs/{page}"
    return Chip(
        name, "tpu", "tpu", {"topology_name": f"{name}:{shape}", "chip_config_name": cores}, rates, bandwidth * GIGA / devices, source
    )


def _gpu(name: str, peaks: dict[str, float], bandwidth: float, facts: dict[str, float], capability: tuple[int, int], source: str) -> Chip:
    """The same for a GPU; `facts` are fields of XLA's description of a device."""
    fields = COMMON | facts | {"memory_bandwidth": int(bandwidth * GIGA)}
    text = " ".join(f"{field}: {value}" for field, value in fields.items())
    major, minor = capability
    config = f'gpu_device_info {{ {text} cuda_compute_capability {{ major: {major} minor: {minor} }} }} platform_name: "CUDA" '
    config += f'dnn_version_info {{ major: 9 minor: 10 patch: 0 }} device_description_str: "{name}"'
    rates = {name: rate * TERA for name, rate in peaks.items()}
    return Chip(name, "gpu", "cuda", {"target_config": config, "topology": "1x1x4"}, rates, bandwidth * GIGA, source)


COMMON = {  # of the CUDA C++ Programming Guide's table for compute capabilities 8.0 and 9.0
    "threads_per_block_limit": 1024,
    "threads_per_warp": 32,
    "threads_per_core_limit": 2048,
    "shared_memory_per_block": 48 << 10,
    "registers_per_core_limit": 1 << 16,
    "registers_per_block_limit": 1 << 16,
    "block_dim_limit_x": 2**31 - 1,
    "block_dim_limit_y": 65535,
    "block_dim_limit_z": 65535,
}
H100 = {
    "core_count": 132,
    "fpus_per_core": 128,
    "clock_rate_ghz": 1.98,
    "l2_cache_size": 50 << 20,
    "device_memory_size": 80 << 30,
    "shared_memory_per_core": 228 << 10,
    "shared_memory_per_block_optin": 227 << 10,
}
A100 = {
    "core_count": 108,
    "fpus_per_core": 64,
    "clock_rate_ghz": 1.41,
    "l2_cache_size": 40 << 20,
    "device_memory_size": 80 << 30,
    "shared_memory_per_core": 164 << 10,
    "shared_memory_per_block_optin": 163 << 10,
}
CHIPS = {
    chip.name: chip
    for chip in (
        _tpu("v4", "2x2x1", 275, 275, 1200, "v4", cores="megacore"),
        _tpu("v5e", "2x2", 197, 393, 819, "v5e"),
        _tpu("v5p", "2x2x1", 459, 918, 2765, "v5p"),
        _tpu("v6e", "2x2", 918, 1836, 1638, "v6e"),
        _tpu("tpu7x", "2x2x1", 2307, None, 7380, "tpu7x", devices=2),  # no peak for int8 is published
        _gpu("h100", {"bf16": 989, "s8": 1979, "f32": 67, "s32": 33.5}, 3350, H100, (9, 0), "NVIDIA H100 SXM data sheet, dense"),
        _gpu("a100", {"bf16": 312, "s8": 624, "f32": 19.5, "s32": 19.5}, 2039, A100, (8, 0), "NVIDIA A100 SXM 80 GB data sheet, dense"),
    )
}
