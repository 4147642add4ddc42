"""Kernels: what is fused, which rule each takes, results for sizes of every remainder, and the code for other processors."""

import re

import ml_dtypes
import numpy as np
import pytest
import tvm

import xformer
from xformer import ops
from xformer import precision as precisions
from xformer.frontends import tvm as frontend
from xformer.frontends.tvm import packing, target
from xformer.frontends.tvm.building import build
from xformer.frontends.tvm.tracing import trace
from xformer.frontends.tvm.weights import PackedSpec, PackedWeight
from xformer.params import Spec

RNG = np.random.default_rng(0)
SIZES = [(1, 1, 1), (1, 33, 7), (2, 16, 8), (5, 17, 31), (6, 48, 64), (13, 40, 33), (37, 5, 130), (30, 33, 1024), (30, 33, 4096)]
ROW = np.ones(64, np.float32)


def operands(dtype, *shapes):
    if dtype == "int8":
        arrays = [RNG.choice(np.array([-127, -1, 0, 1, 127], np.int8), shape) for shape in shapes]
        arrays[0][..., 0, :], arrays[1][..., 0, :] = 127, -127  # saturating instructions fail here
        return arrays
    if dtype == "int32":
        limit = int(np.sqrt((2**31 - 1) / shapes[0][-1]))
        return [RNG.integers(-limit, limit + 1, shape).astype(np.int32) for shape in shapes]
    return [RNG.standard_normal(shape).astype(ml_dtypes.bfloat16 if dtype == "bfloat16" else np.float32) for shape in shapes]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8", "int32"])
@pytest.mark.parametrize("size", SIZES)
def test_contractions_of_any_size(run, size, dtype):
    m, n, k = size
    accumulate = "int32" if "int" in dtype else "float32"
    for lead, right in (((), ()), ((2,), ()), ((2, 3), (2, 3))):
        a, b = operands(dtype, (*lead, m, k), (*right, n, k))
        got = run(lambda a, b: ops.contract(a, b, accumulate), a, b)
        wide = np.int64 if "int" in dtype else np.float64
        expected = a.astype(wide) @ np.swapaxes(b.astype(wide), -1, -2)
        if accumulate == "int32":
            np.testing.assert_array_equal(got, expected)
        else:
            # A partial sum grows as the root of its length and its rounding with it: over many terms the error grows as k.
            np.testing.assert_allclose(got, expected, atol=max(2e-6 * np.sqrt(k), 2e-7 * k), rtol=1e-6)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8", "int32"])
@pytest.mark.parametrize("size", [(1, 128, 64), (1, 37, 64), (3, 33, 48), (4, 5, 16), (5, 40, 32), (1, 64, 50), (8, 64, 37), (1, 509, 32)])
def test_few_rows_meet_keys_and_values_where_they_lie(run, size, dtype):
    """The right operand as attention has it: keys, whose rows are contracted, and values, whose columns are."""
    m, n, k = size
    accumulate, wide = ("int32", np.int64) if "int" in dtype else ("float32", np.float64)
    a, key = operands(dtype, (2, 3, m, k), (2, 3, n, k))
    value = np.ascontiguousarray(np.swapaxes(key, -1, -2))
    expected = a.astype(wide) @ np.swapaxes(key.astype(wide), -1, -2) * 2

    def scores(a, key):
        return ops.contract(a, key, accumulate) * 2

    def combined(a, value):
        return ops.contract(a, ops.namespace(a).matrix_transpose(value), accumulate) * 2

    for got in (run(scores, a, key), run(combined, a, value)):
        if "int" in dtype:
            np.testing.assert_array_equal(got, expected)
        else:
            np.testing.assert_allclose(got, expected, rtol=0, atol=2e-4)


@pytest.mark.parametrize("rows", [1, 8])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8", "int32"])
def test_a_head_over_a_prime_vocabulary(machine, rows, dtype):
    """A packed weight whose last panel is mostly padding, and an inner size that is no multiple of anything."""
    a, weight = operands(dtype, (rows, 37), (509, 37))
    accumulate, wide = ("int32", np.int64) if "int" in dtype else ("float32", np.float64)
    layout = machine.layout(dtype)
    packed = build(lambda x: packing._packed(x, layout), (Spec(weight.shape, dtype),), machine).tensors(weight)
    held = PackedWeight(packed, weight.shape, layout)
    specs = Spec(a.shape, dtype), PackedSpec(weight.shape, layout.stored(dtype), layout=layout)
    got = build(lambda a, w: ops.contract(a, w, accumulate), specs, machine)(a, held)
    expected = a.astype(wide) @ weight.astype(wide).T
    np.testing.assert_allclose(got, expected, rtol=0, atol=0 if "int" in dtype else 2e-4)


def test_a_softmax_and_a_norm_with_quantisation_are_one_kernel_each(kernels):
    x = np.zeros((4, 64), np.float32)
    assert kernels(lambda x, mask: ops.softmax(x, mask), x, np.ones((1, 64), bool)) == ["rows"]
    assert kernels(lambda x, s: xformer.INT8.narrow(ops.layer_norm(x, s, s, 1e-5)), x, ROW) == ["rows"]
    assert kernels(ops.gelu_tanh, x) == ["rows"]


def test_bias_activation_and_residual_are_part_of_the_contraction(kernels):
    def layer(x, weight, bias, rest):
        return ops.gelu(ops.contract(x, weight, "float32") + bias) + rest

    x = np.zeros((4, 64), np.float32)
    assert kernels(layer, x, np.zeros((64, 64), np.float32), ROW, x) == ["contraction"]


def test_the_same_computation_twice_is_one_kernel(kernels):
    assert len(kernels(lambda x: ops.softmax(x) + ops.softmax(x), np.zeros((4, 64), np.float32))) == 1


@pytest.mark.parametrize("precision", xformer.PRECISIONS)
@pytest.mark.parametrize("preset", ["bert-tiny", "gpt2-tiny"])
def test_every_loop_that_is_scheduled_as_vectors_stays_one(preset, precision):
    left: list[str] = []

    @tvm.ir.instrument.pass_instrument
    class Scalar:  # TVM makes a scalar loop, with another name, of one that holds what it cannot put into vectors
        def run_after_pass(self, module, info):
            if info.name == "tirx.VectorizeLoop":
                left.extend(f"{kernel.name}: {loop.strip()}" for loop in re.findall(r"for .*\w_s\b.* in .*", module.script()))

    scheduled = [kernel for kernel in frontend.explain(preset, (1, 32), precision=precision) if "T.vectorized" in kernel.tir]
    assert len(scheduled) > 10
    with tvm.transform.PassContext(instruments=[Scalar()]):
        for kernel in scheduled:
            tvm.tirx.build(tvm.IRModule({"main": kernel.scheduled.with_attr("global_symbol", "main")}), kernel.machine.target)
    assert not left


@pytest.mark.parametrize("preset", ["bert-tiny", "gpt2-tiny"])
def test_every_function_says_that_its_arguments_lie_apart(preset):
    """One that does not costs all others of its module their registers."""
    kernels = frontend.explain(preset, (1, 16))
    assert [kernel.name for kernel in kernels if not kernel.scheduled.attrs["tirx.noalias"]] == []
    assert any(kernel.rule == "write" for kernel in kernels) == (preset == "gpt2-tiny")


def test_rotation_and_quantisation_are_one_pass_over_the_rows(kernels):
    assert kernels(precisions.INT8.prepare, np.zeros((4, 64), np.float32)) == ["rows"]


@pytest.mark.parametrize("size", [4, 16, 64])
def test_a_rotation_has_the_bits_of_the_matrix(run, size):
    x = np.random.default_rng(size).integers(-(2**16), 2**16, (5, 3 * size)).astype(np.float32)
    np.testing.assert_array_equal(run(lambda x: ops.hadamard(x, size), x), ops.hadamard(x, size))


TARGETS = {  # what to compile for: an instruction of int8 contractions there
    "haswell": "vpmaddwd",
    "skylake-avx512": "vpmaddwd",
    "znver4": "vpdpbusd",
    "sapphirerapids": "vpdpbusd",
    "x86-64": None,
    "neoverse-n1": "sdot",
    "cortex-a72": None,
}


@pytest.mark.parametrize("name", TARGETS)
@pytest.mark.parametrize("precision", ["fp32", "bf16", "int8"])
def test_other_processors_compile_without_saturating_instructions(name, precision):
    options = {"mtriple": "aarch64-linux-gnu"} if name.startswith(("neoverse", "cortex")) else {}
    machine = target.machine({"kind": "llvm", "mcpu": name, **options}, cores=4)
    chosen = xformer.PRECISIONS[precision]

    def layer(x, weight, bias):
        return ops.gelu(chosen.contract(x, weight) + bias)

    traced = trace(layer, (Spec((20, 64)), Spec((48, 64)), Spec((48,))), machine)
    kernels = {name: f for name, f in traced.module.functions.items() if name.name_hint in traced.kernels}
    module = tvm.IRModule({name.name_hint: f.with_attr("global_symbol", name.name_hint) for name, f in kernels.items()})
    assembly = tvm.tirx.build(module, machine.target).inspect_source("asm")
    assert "vpmaddubsw" not in assembly
    if precision == "int8" and TARGETS[name]:
        assert TARGETS[name] in assembly
    assert ("vdpbf16ps" in assembly) == (precision == "bf16" and name in ("znver4", "sapphirerapids"))
    if precision == "fp32" and options:
        assert "fmla\tv" in assembly
    elif precision == "fp32" and name != "x86-64":
        assert "vfmadd" in assembly
        assert ("zmm" in assembly) == (name != "haswell")


def test_packing_keeps_every_element(machine):
    weight = RNG.standard_normal((19, 7)).astype(np.float32)
    packer = packing.Packer(xformer.FP32, machine)
    packed = packer.weight(weight)
    columns, depth = packed.layout.columns, packed.layout.depth
    whole = packed.tensor.numpy().transpose(0, 2, 1, 3).reshape(-1, packed.tensor.shape[1] * depth)
    assert columns == packed.tensor.shape[2]
    np.testing.assert_array_equal(whole[:19, :7], weight)
    assert (whole[19:] == 0).all()
