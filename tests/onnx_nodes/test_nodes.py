"""The node tests that come with ONNX, on every namespace. What is not offered is counted, with the reason, at the end of a run."""

import re
import warnings

import numpy as np
import onnx
import pytest
from compare import numbers
from onnx.backend.test.case.node import collect_testcases
from operators import OPERATORS

from xformer import backends

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # some cases overflow on purpose while they are made
    CASES = {
        case.name: case
        for case in collect_testcases(None)
        if len(case.model.graph.node) == 1 and case.model.graph.node[0].op_type in OPERATORS
    }
NOT_OUTPUTS = ("qk_matmul_output", "Mean", "InvStdDev")  # scores and statistics are inside xformer's functions; Y is compared


def tolerance(dtype):
    """One unit of the last place of a narrow type; rounding of a short sum in fp32."""
    return {"bfloat16": 1e-2, "float16": 2e-3}.get(str(dtype), 1e-5)


def in_numpy(array):
    return onnx.numpy_helper.to_array(array) if isinstance(array, onnx.TensorProto) else array


def dtype_not_offered(xp, arrays):
    """The name of a dtype that xformer does not take on `xp`, or None."""
    names = [str(array.dtype) for array in arrays]
    exotic = re.compile(r"float[48]|u?int[24]$")  # of these some libraries have some, and none has all
    return next((name for name in names if exotic.match(name) or backends.verb(xp, name) is None), None)


@pytest.mark.parametrize("name", CASES)
def test_node(name, xp, namespace, request):
    if (namespace, name) == ("jax", "test_dynamicquantizelinear"):
        reason = "XLA multiplies by the reciprocal of a scale that is broadcast, and one quotient here lies on the edge of two integers"
        request.applymarker(pytest.mark.xfail(strict=True, reason=reason, raises=AssertionError))
    node, (pair,) = CASES[name].model.graph.node[0], CASES[name].data_sets
    inputs, expected = ([in_numpy(array) for array in arrays] for arrays in pair)
    if missing := dtype_not_offered(xp, [*inputs, *expected]):
        pytest.skip(f"not offered: {namespace} has no dtype {missing}")
    given = iter(inputs)
    arrays = [backends.from_numpy(xp, next(given)) if slot else None for slot in node.input]
    options = {attribute.name: onnx.helper.get_attribute_value(attribute) for attribute in node.attribute}
    options = {key: value.decode() if isinstance(value, bytes) else value for key, value in options.items()}
    got = OPERATORS[node.op_type](*arrays, **options)
    wanted = dict(zip([slot for slot in node.output if slot], expected, strict=True))
    for slot, output in zip([slot for slot in node.output if slot not in ("", *NOT_OUTPUTS)], got, strict=True):
        reference = wanted[slot]
        output = backends.to_numpy(output)
        assert output.dtype == reference.dtype, slot
        if reference.dtype.kind in "iu":
            np.testing.assert_array_equal(output, reference, err_msg=slot)
        else:
            bound = tolerance(reference.dtype)
            np.testing.assert_allclose(numbers(output), numbers(reference), rtol=bound, atol=bound, err_msg=slot)
