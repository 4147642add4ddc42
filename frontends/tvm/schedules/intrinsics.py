"""Dot products of x86 as tensor intrinsics: what a block must compute, and the instructions that compute it.

TVM's own description of such an instruction is kept apart from the sizes: one vector of int32 accumulators takes in pairs
of int16 (the left operand, widened before; the right one is widened as it is loaded).
"""

import functools
from typing import Any

from tvm.s_tir import TensorIntrin
from tvm.script import tirx as T
from tvm.target import codegen

from xformer.frontends.tvm.target import Dot, Machine

MULTIPLY_ADD = {8: "llvm.x86.avx2.pmadd.wd", 16: "llvm.x86.avx512.pmaddw.d.512"}
ACCUMULATE = "llvm.x86.avx512.vpdpwssd.512"  # the same with the addition in one instruction; it wraps, it does not saturate


@functools.cache
def _registered(name: str, lanes: int, fused: bool) -> str:
    @T.prim_func(s_tir=True)
    def description(
        A: T.Buffer((2,), "int16", offset_factor=1),
        B: T.Buffer((lanes, 2), "int8", offset_factor=1),
        C: T.Buffer((lanes,), "int32", offset_factor=1, scope="local"),
    ):
        with T.sblock("root"):
            T.reads(C[0:lanes], A[0:2], B[0:lanes, 0:2])
            T.writes(C[0:lanes])
            for i in T.serial(lanes):
                for k in T.serial(2):
                    with T.sblock("update"):
                        vi, vk = T.axis.remap("SR", [i, k])
                        C[vi] = C[vi] + T.cast(A[vk], "int32") * T.cast(B[vi, vk], "int32")

    code = codegen.llvm_lookup_intrinsic_id(ACCUMULATE if fused else MULTIPLY_ADD[lanes])
    vector, pairs, start = f"int32x{lanes}", f"int16x{2 * lanes}", T.int32(0)

    def dot(total, a, b):
        if fused:
            return T.call_llvm_pure_intrin(T.int32(code), total, a, b, dtype=vector)
        return total + T.call_llvm_pure_intrin(T.int32(code), a, b, dtype=vector)

    @T.prim_func(s_tir=True)
    def implementation(
        A: T.Buffer((2,), "int16", offset_factor=1),
        B: T.Buffer((lanes, 2), "int8", offset_factor=1),
        C: T.Buffer((lanes,), "int32", offset_factor=1, scope="local"),
    ):
        with T.sblock("root"):
            T.reads(C[0:lanes], A[0:2], B[0:lanes, 0:2])
            T.writes(C[0:lanes])
            C[T.ramp(start, 1, lanes)] = dot(
                C[T.ramp(start, 1, lanes)],
                T.reinterpret(T.broadcast(T.reinterpret(A.vload([0], "int16x2"), dtype="int32"), lanes), dtype=pairs),
                T.cast(B.vload([0, 0], f"int8x{2 * lanes}"), pairs),
            )

    TensorIntrin.register(name, description, implementation, override=True)
    return name


def register(dot: Dot, machine: Machine) -> Any:
    """The name of a dot product's intrinsic, known to TVM from now on."""
    return _registered(dot.intrinsic, machine.lanes, str(dot.intrinsic).endswith("_vnni"))
