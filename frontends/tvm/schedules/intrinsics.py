"""Dot products as tensor intrinsics: what a block must compute, and the instructions that compute it.

One vector of accumulators takes in groups of `depth` products: of the left operand, as it was widened before, and of the
packed one on the right, a group for each lane. Those of integers are exact: none saturates. That of bfloat16 adds the two
products of a group one after the other, each rounded once, and takes subnormal numbers for 0.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tvm.s_tir import TensorIntrin
from tvm.script import tirx as T
from tvm.target import codegen

from xformer.frontends.tvm.target import Dot

# TVM widens what it hands to an instruction as bfloat16; a function that takes pairs of them as int32 is inlined to it.
DOT_BF16 = """
declare <16 x float> @llvm.x86.avx512bf16.dpbf16ps.512(<16 x float>, <32 x bfloat>, <32 x bfloat>)
define linkonce_odr <16 x float> @xformer_dot_bf16(<16 x float> %total, <16 x i32> %a, <16 x i32> %b) #0 {
  %x = bitcast <16 x i32> %a to <32 x bfloat>
  %y = bitcast <16 x i32> %b to <32 x bfloat>
  %sum = call <16 x float> @llvm.x86.avx512bf16.dpbf16ps.512(<16 x float> %total, <32 x bfloat> %x, <32 x bfloat> %y)
  ret <16 x float> %sum
}
attributes #0 = { alwaysinline nounwind readnone "target-features"="+avx512bf16" }
"""


@dataclass(frozen=True)
class Instruction:
    """LLVM's name of an instruction, the dtype of its accumulators, and how it takes what it multiplies.

    `adds`: to the accumulators, by itself. `widens`: the right operand has first to have the left one's dtype. `swaps`: the
    right operand comes first. `code`: LLVM's language for a function of the name, where there is none.
    """

    name: str
    sums: str = "int32"
    adds: bool = True
    widens: bool = False
    swaps: bool = False
    code: str = ""


INSTRUCTIONS = {
    "dot_i16_avx2": Instruction("llvm.x86.avx2.pmadd.wd", adds=False, widens=True),
    "dot_i16_avx512": Instruction("llvm.x86.avx512.pmaddw.d.512", adds=False, widens=True),
    "dot_i8_vnni": Instruction("llvm.x86.avx512.vpdpbusd.512", swaps=True),  # unsigned by signed
    "dot_i8_sdot": Instruction("llvm.aarch64.neon.sdot"),
    "dot_bf16": Instruction("xformer_dot_bf16", "float32", code=DOT_BF16),
}


def imported(dot: Dot) -> str:
    """Code that a kernel with this dot product needs, in LLVM's language; "" for none."""
    return INSTRUCTIONS[dot.intrinsic].code if dot.intrinsic else ""


@functools.cache
def register(dot: Dot, lanes: int, left: str, right: str) -> str:
    """The name of a dot product's intrinsic for buffers of these dtypes (uint16 for the bits of bfloat16), known to TVM from now on."""
    instruction, depth = INSTRUCTIONS[str(dot.intrinsic)], dot.depth
    sums = instruction.sums

    def wide(x: Any, dtype: str) -> Any:
        return T.cast(T.reinterpret(x, dtype=dot.operand) if dtype == "uint16" else x, sums)

    @T.prim_func(s_tir=True)
    def description(
        A: T.Buffer((depth,), left, offset_factor=1),
        B: T.Buffer((lanes, depth), right, offset_factor=1),
        C: T.Buffer((lanes,), sums, offset_factor=1, scope="local"),
    ):
        with T.sblock("root"):
            T.reads(C[0:lanes], A[0:depth], B[0:lanes, 0:depth])
            T.writes(C[0:lanes])
            for i in T.serial(lanes):
                for k in T.serial(depth):
                    with T.sblock("update"):
                        vi, vk = T.axis.remap("SR", [i, k])
                        C[vi] = C[vi] + wide(A[vk], left) * wide(B[vi, vk], right)

    start, products = T.int32(0), _products(instruction, lanes, f"{dot.operand}x{lanes * depth}")

    @T.prim_func(s_tir=True)
    def implementation(
        A: T.Buffer((depth,), left, offset_factor=1),
        B: T.Buffer((lanes, depth), right, offset_factor=1),
        C: T.Buffer((lanes,), sums, offset_factor=1, scope="local"),
    ):
        with T.sblock("root"):
            T.reads(C[0:lanes], A[0:depth], B[0:lanes, 0:depth])
            T.writes(C[0:lanes])
            C[T.ramp(start, 1, lanes)] = products(
                C[T.ramp(start, 1, lanes)],
                T.broadcast(T.reinterpret(A.vload([0], f"{left}x{depth}"), dtype="int32"), lanes),
                B.vload([0, 0], f"{right}x{lanes * depth}"),
            )

    name = f"{dot.intrinsic}_{left}_{right}_x{lanes}"
    TensorIntrin.register(name, description, implementation, override=True)
    return name


def _products(instruction: Instruction, lanes: int, operand: str) -> Callable[..., Any]:
    """total + the products of a, which comes as int32, and b."""
    vector = f"{instruction.sums}x{lanes}"

    def added(total, a, b):
        if instruction.code:
            return T.call_pure_extern(instruction.name, total, a, T.reinterpret(b, dtype=f"int32x{lanes}"), dtype=vector)
        a = T.reinterpret(a, dtype=operand)
        b = T.cast(b, operand) if instruction.widens else T.reinterpret(b, dtype=operand)
        code, pair = T.int32(codegen.llvm_lookup_intrinsic_id(instruction.name)), (b, a) if instruction.swaps else (a, b)
        if instruction.adds:
            return T.call_llvm_pure_intrin(code, total, *pair, dtype=vector)
        return total + T.call_llvm_pure_intrin(code, *pair, dtype=vector)

    return added
