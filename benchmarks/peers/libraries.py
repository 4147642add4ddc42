"""Who is measured: each product's ways to run a model, and why it has none in a precision."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec

ROLES = {"encode": "encoder", "prefill": "decoder", "decode": "decoder"}  # of a model, by the kind of a workload
PRECISIONS = ("fp32", "bf16", "int8")


@dataclass(frozen=True)
class Library:
    """A product: its module here, what has to be importable, its variants by role and precision ("" where there is one).

    `reasons` says, by role or precision, why there is none.
    """

    module: str
    packages: tuple[str, ...]
    encoder: dict[str, tuple[str, ...]]
    decoder: dict[str, tuple[str, ...]]
    reasons: dict[str, str] = field(default_factory=dict)
    converts: bool = False  # into files of its own

    @property
    def missing(self) -> str:
        """Why it cannot run here; "" if all its packages are there."""
        absent = [name for name in self.packages if find_spec(name) is None]
        return f"not installed: {', '.join(absent)}" if absent else ""


@dataclass(frozen=True)
class Way:
    """One way to run a model of a `role` in a precision. One without a reason `skipped` can be tried."""

    library: str
    role: str
    precision: str
    variant: str = ""
    skipped: str = ""

    @property
    def name(self) -> str:
        return f"{self.library} {self.variant}".strip()

    @property
    def ours(self) -> bool:
        return self.library in OURS


ALL = {"fp32": ("",), "bf16": ("",), "int8": ("",)}
WIDE = {"fp32": ("",), "bf16": ("",)}
OURS = ("xformer tvm", "xformer jax")
LIBRARIES = {
    "xformer tvm": Library("ours", ("tvm",), ALL, ALL),
    "xformer jax": Library("ours", ("jax",), ALL, ALL),
    "torch eager": Library("pytorch", ("torch", "transformers"), ALL | {"int8": ("dynamic",)}, ALL | {"int8": ("dynamic",)}),
    "torch.compile": Library(
        "pytorch", ("torch", "transformers"), WIDE, WIDE, {"int8": "PyTorch itself quantises eager models only; torchao is not measured"}
    ),
    "onnxruntime": Library(
        "onnx_runtime",
        ("onnxruntime", "onnx", "torch", "transformers"),
        {"fp32": ("",), "int8": ("dynamic", "dynamic per channel")},
        {"fp32": ("",), "int8": ("dynamic", "weights by block")},
        {"bf16": "ONNX Runtime has no contraction in bf16 on CPUs"},
        converts=True,
    ),
    "openvino": Library(
        "open_vino",
        ("openvino", "nncf", "torch", "transformers"),
        WIDE | {"int8": ("static", "static, bf16 between")},
        WIDE | {"int8": ("weights", "weights, bf16 between")},
        converts=True,
    ),
    "ctranslate2": Library(
        "c_translate",
        ("ctranslate2", "torch", "transformers"),
        {"fp32": ("", "oneMKL"), "bf16": ("",), "int8": ("", "oneMKL")},
        {"fp32": ("", "oneMKL"), "bf16": ("",), "int8": ("", "oneMKL")},
        converts=True,
    ),
    "llama.cpp": Library(
        "llama",
        ("llama_cpp", "gguf", "torch", "transformers"),
        {},
        {"fp32": ("f32",), "bf16": ("bf16",), "int8": ("q8_0",)},
        {"encoder": "only decoders are written as GGUF files here"},
        converts=True,
    ),
}


def ways(names: Sequence[str], role: str, precision: str) -> Iterator[Way]:
    """All ways of these libraries; one with the reason where a library has none."""
    for name in names:
        library = LIBRARIES[name]
        variants = getattr(library, role).get(precision, ())
        reason = library.missing if variants else library.reasons.get(role) or library.reasons[precision]
        yield from (Way(name, role, precision, variant, reason) for variant in (variants if variants and not reason else ("",)))
