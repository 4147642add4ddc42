"""What the rules need to know of a processor: vector width, registers, cores, and its instruction for a dot product."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tvm.target import Target, codegen

from xformer.frontends.tvm import processor
from xformer.frontends.tvm.processor import Processor, cpus
from xformer.frontends.tvm.tiling import DEFAULT, Tiling
from xformer.frontends.tvm.weights import Layout


@dataclass(frozen=True)
class Dot:
    """How one vector of accumulators takes in products: `depth` operands each, the left one first widened to `operand`.

    `shift` is added to the right one, and what comes of that is taken off the sums. Without an intrinsic the products are
    written out, and LLVM makes vector code of them.
    """

    operand: str
    depth: int = 1
    intrinsic: str | None = None
    shift: int = 0


@dataclass(frozen=True)
class Machine:
    """A target and its sizes. `lanes`: 32-bit numbers in a vector; `most_rows` of a tile: those whose sums fill the registers.

    On a GPU a warp's threads are the lanes, and a tile is what the threads of a block compute together.
    """

    target: Target
    processor: Processor
    lanes: int
    most_rows: int
    cores: int
    dots: Mapping[str, Dot]
    tiling: Tiling = DEFAULT  # of the kernel at hand

    def layout(self, dtype: str) -> Layout:
        """How a weight is packed: a tile two vectors wide."""
        return Layout(2 * self.lanes, self.dots[dtype].depth, self.dots[dtype].shift)

    def require_programs(self) -> None:
        """Raise ValueError for a target whose kernels can be looked at but not be run."""
        if self.gpu:
            raise ValueError(f"there are no programs for {self.processor.name} yet, only its kernels: see `explain`")

    @property
    def gpu(self) -> bool:
        """Whether kernels run on a GPU, as blocks of threads."""
        return str(self.target.kind) != "llvm"

    def rows(self, count: int) -> int:
        """Rows of a tile: what the tiling says, or as many as divide `count` rows as evenly as they can."""
        return self.tiling.rows or -(-count // -(-count // self.most_rows))


KINDS = ("llvm", "cuda")
WRITTEN_OUT = {"float32": Dot("float32"), "bfloat16": Dot("float32"), "int32": Dot("int32"), "int8": Dot("int32")}
WARP, BLOCK_ROWS = 32, 64  # of a GPU: threads of a warp, rows of a block's tile (it has two warps' columns)


def machine(target: str | Mapping[str, Any] | None = None, cores: int | None = None) -> Machine:
    """The machine of a target: None for this one, a CPU such as "haswell", a GPU such as "sm_90", or a dict as TVM takes it.

    Raises ValueError for a target of another kind than llvm and cuda, and for a CPU that LLVM does not know.
    """
    options: dict[str, Any] = {"mcpu": codegen.llvm_get_system_cpu()} if target is None else {"mcpu": target}
    if isinstance(target, str) and re.fullmatch(r"sm_\d+[af]?", target):
        options = {"kind": "cuda", "arch": target}
    options = {"kind": "llvm", **(dict(target) if isinstance(target, Mapping) else options)}
    if options["kind"] not in KINDS:
        raise ValueError(f"target kind {options['kind']!r} is not supported; supported: {', '.join(map(repr, KINDS))}")
    if options["kind"] == "cuda":
        return _gpu(options)
    return _cpu({"num-cores": cores or len(cpus()), **options}, target is None)


def _gpu(options: dict[str, Any]) -> Machine:
    if "arch" not in options:
        raise ValueError(f"a target of kind 'cuda' needs an arch, such as 'sm_90'; got {options}")
    found = Target({"host": {"kind": "llvm"}, **options})
    return Machine(found, Processor(str(found.attrs["arch"]), "cuda", ()), WARP, BLOCK_ROWS, 1, WRITTEN_OUT)


def _cpu(options: dict[str, Any], own: bool) -> Machine:
    known = codegen.llvm_get_cpu_archlist(Target({key: options[key] for key in ("kind", "mtriple") if key in options}))
    if options.get("mcpu", "generic") not in (*known, "generic"):  # LLVM would go on with a generic one
        raise ValueError(f"LLVM knows no CPU {options['mcpu']!r}; it knows: {', '.join(sorted(map(str, known)))}")
    found = Target(options)
    if own and (absent := processor.missing(_processor(found).features)):  # hidden from this machine, if it is a virtual one
        found = Target({**options, "mattr": [f"-{feature}" for feature in absent]})
    lanes, registers, dots = _vectors(found)
    # A row of a tile has two vectors of sums; two registers hold the weight, and two are to spare.
    return Machine(found, _processor(found), lanes, (registers - 4) // 2, options["num-cores"], {**WRITTEN_OUT, **dots})


def _vectors(target: Target) -> tuple[int, int, dict[str, Dot]]:
    """32-bit numbers in a vector, the number of vector registers, and the instructions for dot products by the operands' dtype."""

    def has(*features: str) -> bool:
        return all(codegen.llvm_cpu_has_features(feature, target) for feature in features)

    if "aarch64" in str(target.attrs.get("mtriple", "")):
        return 4, 32, {"int8": Dot("int8", 4, "dot_i8_sdot")} if has("dotprod") else {}
    # Four products of bytes added to int32 at once are exact; the instruction on pairs of bytes saturates, that on pairs of
    # int16 does not.
    if has("avx512f", "avx512bw"):
        int8 = Dot("int8", 4, "dot_i8_vnni", shift=128) if has("avx512vnni") else Dot("int16", 2, "dot_i16_avx512")
        bf16 = {"bfloat16": Dot("bfloat16", 2, "dot_bf16")} if has("avx512bf16") else {}
        return 16, 32, {"int8": int8, **bf16}
    return (8, 16, {"int8": Dot("int16", 2, "dot_i16_avx2")}) if has("avx2") else (4, 16, {})


def _processor(target: Target) -> Processor:
    """What code for a target may use. LLVM lists the features of an x86 CPU; of others the architecture has to do."""
    triple, name = str(target.attrs.get("mtriple", "")), str(target.attrs.get("mcpu", "generic"))
    architecture = processor.ARCHITECTURES.get(triple.split("-")[0], triple.split("-")[0]) or processor.architecture()
    known = [str(feature) for feature in codegen.llvm_get_cpu_features(target)]
    return Processor(name, architecture, tuple(sorted(feature for feature in known if feature in processor.FEATURES)))
