"""What the rules need to know of a processor: vector width, registers, cores, and its instruction for a dot product."""

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

    Without an intrinsic the products are written out, and LLVM makes vector code of them.
    """

    operand: str
    depth: int = 1
    intrinsic: str | None = None


@dataclass(frozen=True)
class Machine:
    """A target and its sizes. `lanes`: 32-bit numbers in a vector; `registers`: vectors."""

    target: Target
    processor: Processor
    lanes: int
    registers: int
    cores: int
    dots: Mapping[str, Dot]
    tiling: Tiling = DEFAULT  # of the kernel at hand

    def layout(self, dtype: str) -> Layout:
        """How a weight is packed: a tile two vectors wide."""
        return Layout(2 * self.lanes, self.dots[dtype].depth)

    @property
    def most_rows(self) -> int:
        """Rows of a register tile that fills the registers: two vectors of accumulators each, two of the weight, two to spare."""
        return (self.registers - 4) // 2

    def rows(self, count: int) -> int:
        """Rows of a register tile: what the tiling says, or as many as divide `count` rows as evenly as they can."""
        return self.tiling.rows or -(-count // -(-count // self.most_rows))


def machine(target: str | Mapping[str, Any] | None = None, cores: int | None = None) -> Machine:
    """The machine of a target: None for this one, an x86 `mcpu` such as "haswell", or a dict as TVM takes it.

    Raises ValueError for a target of another kind than llvm, and for a CPU that LLVM does not know.
    """
    options: dict[str, Any] = {"mcpu": codegen.llvm_get_system_cpu()} if target is None else {"mcpu": target}
    options = {"kind": "llvm", "num-cores": cores or len(cpus()), **(dict(target) if isinstance(target, Mapping) else options)}
    if options["kind"] != "llvm":
        raise ValueError(f"target kind {options['kind']!r} is not supported; supported: 'llvm'")
    known = codegen.llvm_get_cpu_archlist(Target({key: options[key] for key in ("kind", "mtriple") if key in options}))
    if options.get("mcpu", "generic") not in (*known, "generic"):  # LLVM would go on with a generic one
        raise ValueError(f"LLVM knows no CPU {options['mcpu']!r}; it knows: {', '.join(sorted(map(str, known)))}")
    found = Target(options)
    if target is None and (absent := processor.missing(_processor(found).features)):  # hidden from this machine, if it is a virtual one
        found = Target({**options, "mattr": [f"-{feature}" for feature in absent]})
    has = {feature: _has(feature, found) for feature in ("avx2", "fma", "avx512f", "avx512bw", "avx512vnni")}
    wide = has["avx512f"] and has["avx512bw"]
    dots = {"float32": Dot("float32"), "bfloat16": Dot("float32"), "int32": Dot("int32"), "int8": Dot("int32")}
    if wide or has["avx2"]:
        # Products of int16 added in pairs to int32 are exact; the instructions on int8 pairs saturate.
        dots["int8"] = Dot("int16", 2, f"dot_i16_x{16 if wide else 8}" + ("_vnni" if wide and has["avx512vnni"] else ""))
    lanes, registers = (16, 32) if wide else (8, 16) if has["avx2"] else (4, 32 if "aarch64" in str(options.get("mtriple")) else 16)
    return Machine(found, _processor(found), lanes, registers, options["num-cores"], dots)


def _has(feature: str, target: Target) -> bool:
    return "aarch64" not in str(target.attrs.get("mtriple", "")) and codegen.llvm_cpu_has_features(feature, target)


def _processor(target: Target) -> Processor:
    """What code for a target may use. LLVM lists the features of an x86 CPU; of others the architecture has to do."""
    triple, name = str(target.attrs.get("mtriple", "")), str(target.attrs.get("mcpu", "generic"))
    architecture = processor.ARCHITECTURES.get(triple.split("-")[0], triple.split("-")[0]) or processor.architecture()
    known = [str(feature) for feature in codegen.llvm_get_cpu_features(target)]
    return Processor(name, architecture, tuple(sorted(feature for feature in known if feature in processor.FEATURES)))
