"""Kernels for NVIDIA GPUs: what they consist of, and their results, by their source compiled for a CPU that plays the GPU.

Those with bfloat16 are not run so: their source needs a header of CUDA.
"""

import ctypes
import dataclasses
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
import tvm

import xformer
from xformer.frontends import tvm as frontend
from xformer.frontends.tvm import target
from xformer.frontends.tvm.nodes import Write
from xformer.frontends.tvm.padding import Scan
from xformer.frontends.tvm.runtime import numpy_dtype
from xformer.frontends.tvm.tuning.trial import values

HEADER = Path(__file__).with_name("emulation.hpp")
PRESETS = ["bert-tiny", "gpt2-tiny"]


def extents(kernel):
    """Blocks, and rows and columns of threads."""
    found = {axis: int(extent) for extent, axis in re.findall(r'T\.thread_binding\((\d+), thread="(\w+\.\w)"\)', kernel.tir)}
    assert set(found) <= {"blockIdx.x", "threadIdx.x", "threadIdx.y"}
    return found["blockIdx.x"], found.get("threadIdx.y", 1), found["threadIdx.x"]


def emulated(kernels, folder):
    """The kernels' sources in one library, each with a function that launches it on pointers in the order of its parameters."""
    parts = [f'#include "{HEADER}"']
    for place, kernel in enumerate(kernels):
        # Read from its text, where two results of one name have got two.
        kernel = dataclasses.replace(kernel, scheduled=tvm.script.from_source(kernel.scheduled.script()))
        source = kernel.code[kernel.code.rindex('extern "C"') :].replace("main_kernel", f"kernel{place}")
        types, names = zip(*re.findall(r"([\w ]+)\* __restrict__ (\w+)_ptr", source.partition("{")[0]), strict=True)
        order = re.findall(r"(\w+): T\.Buffer", kernel.tir.partition("):\n")[0])
        given = ", ".join(f"({kind}*)pointers[{order.index(name)}]" for kind, name in zip(types, names, strict=True))
        launched = f"launch({', '.join(map(str, extents(kernel)))}, [=] {{ kernel{place}({given}); }});"
        parts.append(f'{source}\nextern "C" void run{place}(void** pointers) {{ {launched} }}')
    (folder / "kernels.cpp").write_text("\n".join(parts))
    command = ["g++", "-std=c++20", "-O1", "-ffp-contract=off", "-fno-strict-aliasing", "-pthread", "-shared", "-fPIC"]
    subprocess.run([*command, "-o", folder / "kernels.so", folder / "kernels.cpp"], check=True)
    library = ctypes.CDLL(str(folder / "kernels.so"))
    return [getattr(library, f"run{place}") for place in range(len(kernels))]


@pytest.mark.skipif(shutil.which("g++") is None, reason="the sources of the kernels are compiled with g++, which is not installed")
@pytest.mark.parametrize(("preset", "precision"), [("bert-tiny", "fp32"), ("bert-tiny", "int32"), ("gpt2-tiny", "int8")])
def test_the_source_of_every_kernel_computes_what_its_te_says(preset, precision, machine, tmp_path):
    kernels = [k for k in frontend.explain(preset, (1, 40), "sm_90", precision) if not isinstance(k.kernel.seed, Scan | Write)]
    assert len(kernels) > 20
    draw = np.random.default_rng(0)
    for kernel, run in zip(kernels, emulated(kernels, tmp_path), strict=True):
        given = [values(draw, node.shape, node.dtype, indices=True) for node in kernel.kernel.arguments]
        results = [[np.zeros(node.shape, numpy_dtype(node.dtype)) for node in kernel.kernel.results] for _ in range(2)]
        pointers = (ctypes.c_void_p * (len(given) + len(results[0])))(*(x.ctypes.data for x in (*given, *results[0])))
        run(pointers)
        plain = kernel.kernel.unscheduled(kernel.machine).with_attr("target", machine.target)
        reference = tvm.compile(plain, machine.target)
        tensors = [tvm.runtime.tensor(x) for x in (*given, *results[1])]
        reference(*tensors)
        for node, got, expected in zip(kernel.kernel.results, results[0], tensors[len(given) :], strict=True):
            # Sums are in another order; integers are what they are.
            limit = 2e-6 * float(np.abs(expected.numpy()).max()) if "float" in node.dtype else 0
            np.testing.assert_allclose(got, expected.numpy(), rtol=0, atol=limit, err_msg=f"{kernel.name}: {node.name}")


@pytest.mark.parametrize("precision", xformer.PRECISIONS)
@pytest.mark.parametrize("preset", PRESETS)
def test_every_kernel_compiles_and_contractions_share_what_they_read(preset, precision):
    for kernel in frontend.explain(preset, (2, 16), "sm_90", precision):
        code = kernel.code
        assert "__global__" in code, kernel.name
        if kernel.rule == "contraction":
            assert len(re.findall(r"__shared__", code)) == 2, kernel.name
            assert "__syncthreads" in code, kernel.name


def test_there_are_no_programs_for_a_gpu_yet():
    with pytest.raises(ValueError, match="sm_90.*explain"):
        frontend.compile(xformer.init("bert-tiny", seed=0), target="sm_90")
    with pytest.raises(ValueError, match="sm_90.*explain"):
        frontend.tune("bert-tiny", (1, 16), target={"kind": "cuda", "arch": "sm_90"})


def test_a_target_of_another_kind_is_refused():
    with pytest.raises(ValueError, match="'rocm' is not supported; supported: 'llvm', 'cuda'"):
        target.machine({"kind": "rocm"})
    with pytest.raises(ValueError, match="arch"):
        target.machine({"kind": "cuda"})
