"""Dot products as tensor intrinsics: what a block must compute, and the instructions that compute it.

One vector of int32 accumulators takes in groups of `depth` products: of the left operand, as it was widened before, and of
int8 on the right, a group for each lane. All are exact: none saturates.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tvm.s_tir import TensorIntrin
from tvm.script import tirx as T
from tvm.target import codegen

from xformer.frontends.tvm.target import Dot


@dataclass(frozen=True)
class Instruction:
    """LLVM's name of an instruction, and whether it adds to the accumulators itself."""

    name: str
    adds: bool


INSTRUCTIONS = {
    "dot_i16_avx2": Instruction("llvm.x86.avx2.pmadd.wd", adds=False),
    "dot_i16_avx512": Instruction("llvm.x86.avx512.pmaddw.d.512", adds=False),
    "dot_i16_vnni": Instruction("llvm.x86.avx512.vpdpwssd.512", adds=True),
    "dot_i8_sdot": Instruction("llvm.aarch64.neon.sdot", adds=True),
}


@functools.cache
def register(dot: Dot, lanes: int) -> str:
    """The name of a dot product's intrinsic, known to TVM from now on."""
    instruction, depth, left = INSTRUCTIONS[str(dot.intrinsic)], dot.depth, dot.operand

    @T.prim_func(s_tir=True)
    def description(
        A: T.Buffer((depth,), left, offset_factor=1),
        B: T.Buffer((lanes, depth), "int8", offset_factor=1),
        C: T.Buffer((lanes,), "int32", offset_factor=1, scope="local"),
    ):
        with T.sblock("root"):
            T.reads(C[0:lanes], A[0:depth], B[0:lanes, 0:depth])
            T.writes(C[0:lanes])
            for i in T.serial(lanes):
                for k in T.serial(depth):
                    with T.sblock("update"):
                        vi, vk = T.axis.remap("SR", [i, k])
                        C[vi] = C[vi] + T.cast(A[vk], "int32") * T.cast(B[vi, vk], "int32")

    group, operand, start, products = f"{left}x{depth}", f"{left}x{lanes * depth}", T.int32(0), _products(instruction, lanes)

    @T.prim_func(s_tir=True)
    def implementation(
        A: T.Buffer((depth,), left, offset_factor=1),
        B: T.Buffer((lanes, depth), "int8", offset_factor=1),
        C: T.Buffer((lanes,), "int32", offset_factor=1, scope="local"),
    ):
        with T.sblock("root"):
            T.reads(C[0:lanes], A[0:depth], B[0:lanes, 0:depth])
            T.writes(C[0:lanes])
            C[T.ramp(start, 1, lanes)] = products(
                C[T.ramp(start, 1, lanes)],
                T.reinterpret(T.broadcast(T.reinterpret(A.vload([0], group), dtype="int32"), lanes), dtype=operand),
                T.cast(B.vload([0, 0], f"int8x{lanes * depth}"), operand),
            )

    name = f"{dot.intrinsic}_x{lanes}"
    TensorIntrin.register(name, description, implementation, override=True)
    return name


def _products(instruction: Instruction, lanes: int) -> Callable[..., Any]:
    """total + the products of a and b."""
    code, vector = codegen.llvm_lookup_intrinsic_id(instruction.name), f"int32x{lanes}"

    def added(total, a, b):
        if instruction.adds:
            return T.call_llvm_pure_intrin(T.int32(code), total, a, b, dtype=vector)
        return total + T.call_llvm_pure_intrin(T.int32(code), a, b, dtype=vector)

    return added
