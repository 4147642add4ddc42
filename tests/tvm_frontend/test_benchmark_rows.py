"""TVM's rows of the benchmark: they are of the same models, and what they say of themselves holds."""

import functools
import time
from dataclasses import replace

import numpy as np
import pytest

import xformer
from benchmarks import apart, cells
from benchmarks.workloads import Workload, preset
from xformer.frontends import tvm


@pytest.fixture(scope="module")
def runners():
    found, _ = cells.runners("cpu", ["numpy", "tvm"])
    assert [runner.name for runner in found] == ["numpy", "tvm"]
    return found


@pytest.mark.parametrize(("precision", "arithmetic"), [("fp32", "fp32"), ("int8", "int8, exact")])
def test_a_row_is_of_the_same_model_and_knows_its_arithmetic(runners, precision, arithmetic):
    subject = preset("bert-tiny")
    assert [runner.alone for runner in runners] == [False, True]
    numpy, compiled = cells.Cell.open(subject, runners[0], precision), apart.Cell.open(subject, runners[1], precision)
    assert compiled.peak.arithmetic == arithmetic
    assert compiled.load > 0
    calls = [cell.call(Workload(subject, "encode", 2, 16)) for cell in (compiled, numpy)]
    assert calls[0].compiles
    seconds, outputs = zip(*(call.time("run", time.perf_counter) for call in calls), strict=True)
    assert min(seconds) > 0
    assert cells.error(*outputs) < (1e-5 if precision == "fp32" else 3e-2)


def test_what_fails_in_the_other_process_is_told_as_it_was(runners):
    subject = replace(preset("bert-tiny"), make=functools.partial(xformer.init, "bert-huge", 0))
    with pytest.raises(ValueError, match="unknown preset 'bert-huge'"):
        apart.Cell.open(subject, runners[1], "fp32")


def test_any_function_of_arrays_is_compiled_for_the_shapes_that_it_is_called_with():
    def norm(x, p):
        return xformer.ops.layer_norm(x, p.scale, p.bias, 1e-5)

    compiled = tvm.jit(norm)
    for rows in (3, 5, 3):
        x, p = (
            np.arange(rows * 8, dtype=np.float32).reshape(rows, 8) ** 2,
            xformer.blocks.Norm(np.full(8, 2, np.float32), np.ones(8, np.float32)),
        )
        np.testing.assert_allclose(compiled(x, p), norm(x, p), atol=1e-5)
