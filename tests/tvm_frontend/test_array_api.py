"""TVM's namespace as a library: arrays that hold values, computed by TVM. The official suite is the session `conformance`."""

import os
import subprocess
import sys

import numpy as np
import pytest
from array_api_compat import array_namespace
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from xformer import FP32, ops
from xformer.frontends import tvm as frontend
from xformer.frontends.tvm import eager
from xformer.frontends.tvm import namespace as xp

SHAPES = arrays.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=5)
FLOATS = st.floats(-8, 8, width=32) | st.sampled_from([np.nan, np.inf, -np.inf, 0.0, -0.0])
UNARY = [
    "abs", "acos", "asinh", "atan", "ceil", "cos", "cosh", "exp", "expm1", "floor",
    "isfinite", "isinf", "isnan", "log1p", "negative", "round", "sign", "signbit", "sin", "sqrt",
    "square", "tan", "tanh", "trunc",
]  # fmt: skip
BINARY = [
    "add", "atan2", "copysign", "divide", "equal", "greater", "hypot", "less_equal", "maximum", "minimum",
    "multiply", "nextafter", "not_equal", "subtract",
]  # fmt: skip
few = settings(max_examples=15, deadline=None, derandomize=True)


def close(got, expected, limit=1e-6):
    np.testing.assert_allclose(np.asarray(got), expected, rtol=limit, atol=limit)


@few
@given(st.sampled_from(UNARY), SHAPES.flatmap(lambda shape: arrays.arrays(np.float32, shape, elements=FLOATS)))
@np.errstate(all="ignore")
def test_functions_of_an_element_are_numpys(name, x):
    close(getattr(xp, name)(xp.asarray(x)), getattr(np, name)(x))


@few
@given(st.sampled_from(BINARY), arrays.mutually_broadcastable_shapes(num_shapes=2, max_dims=3, max_side=4), st.data())
@np.errstate(all="ignore")
def test_functions_of_two_are_numpys_over_shapes_that_broadcast(name, shapes, data):
    a, b = (data.draw(arrays.arrays(np.float32, shape, elements=FLOATS)) for shape in shapes.input_shapes)
    close(getattr(xp, name)(xp.asarray(a), xp.asarray(b)), getattr(np, name)(a, b))


@few
@given(st.sampled_from(["sum", "prod", "max", "min", "any", "all", "mean", "std"]), st.booleans(), st.data())
def test_reductions_are_numpys_over_any_axes(name, keepdims, data):
    x = data.draw(arrays.arrays(np.float32, arrays.array_shapes(max_dims=3, max_side=5), elements=st.floats(-2, 2, width=32)))
    axes = data.draw(st.none() | arrays.valid_tuple_axes(x.ndim, min_size=1))
    close(getattr(xp, name)(xp.asarray(x), axis=axes, keepdims=keepdims), getattr(np, name)(x, axis=axes, keepdims=keepdims), 1e-5)


@few
@given(arrays.arrays(np.int64, arrays.array_shapes(max_dims=2, max_side=6), elements=st.integers(-3, 3)), st.data())
def test_indexing_sorting_and_sets_are_numpys(x, data):
    ours = xp.asarray(x)
    key = data.draw(arrays.basic_indices(x.shape, allow_newaxis=True, allow_ellipsis=True))
    np.testing.assert_array_equal(np.asarray(ours[key]), x[key])
    np.testing.assert_array_equal(np.asarray(ours[ours > 0]), x[x > 0])
    np.testing.assert_array_equal(np.asarray(xp.argsort(ours)), np.argsort(x, stable=True))
    np.testing.assert_array_equal(np.asarray(xp.sort(ours, descending=True)), -np.sort(-x))
    for got, expected in zip(xp.unique_all(ours), np.unique_all(x), strict=True):
        np.testing.assert_array_equal(np.asarray(got), expected)
    before, changed, changed_copy = x[key], xp.asarray(x), x.copy()
    whole = changed + 0
    changed[key], changed_copy[key] = before + 7, before + 7
    np.testing.assert_array_equal(np.asarray(changed), changed_copy)
    np.testing.assert_array_equal(np.asarray(whole), x)  # what was computed of it before stays


@pytest.mark.parametrize(("dtype", "exact"), [("float32", False), ("float64", False), ("int32", True), ("uint8", True)])
def test_products_of_matrices_are_numpys(dtype, exact):
    draw = np.random.default_rng(0)
    for left, right in (
        ((3, 5), (5, 4)),
        ((2, 3, 5), (5, 4)),
        ((5,), (2, 5, 3)),
        ((2, 1, 3, 5), (4, 5, 2)),
        ((0, 3), (3, 2)),
        ((2, 0), (0, 3)),
    ):
        a, b = (draw.integers(0, 9, shape).astype(dtype) for shape in (left, right))
        got = np.asarray(xp.asarray(a) @ xp.asarray(b))
        assert got.dtype == dtype
        np.testing.assert_allclose(got, a @ b, rtol=0 if exact else 1e-6)


def test_dtypes_promote_as_the_standard_says_and_no_further():
    assert xp.result_type("int8", "uint8") == "int16"
    assert xp.result_type(xp.asarray([1], dtype="uint32"), "int32", 3) == "int64"
    assert xp.result_type("float32", "float64") == "float64"
    assert xp.result_type("bfloat16", "float16") == "float32"
    for odd in (("int32", "float32"), ("uint64", "int8"), ("bool", "int8"), ("int32", 1.5), ("bool", 1)):
        with pytest.raises(TypeError):
            xp.result_type(*odd)
    with pytest.raises(TypeError, match="complex64"):
        xp.zeros(3, dtype="complex64")


def test_values_are_computed_by_tvm(monkeypatch):
    x = np.linspace(0, 3, 12, dtype=np.float32).reshape(3, 4)
    expected = np.exp(x) @ x.T
    ours = xp.asarray(x)
    for name in ("exp", "matmul", "multiply", "add", "sum", "dot", "einsum", "max", "less"):
        monkeypatch.setattr(np, name, None)
    got = xp.exp(ours) @ ours.T
    assert got.node.tensor is None  # nothing is computed before somebody asks
    np.testing.assert_allclose(np.asarray(got), expected, rtol=1e-6)
    assert got.node.tensor is not None


def test_a_kernel_is_compiled_once_for_what_it_computes(monkeypatch):
    x = xp.asarray([[1.0, 2.0], [3.0, 4.0]])
    np.asarray(xp.tanh(x) * 2.5)
    monkeypatch.setattr(eager.tvm.tirx, "build", None)
    close(xp.tanh(x) * 2.5, np.tanh([[1, 2], [3, 4]]) * 2.5)


@pytest.mark.parametrize("value", [1.5, [0.5, 2.0], xp.asarray(1.5), True])
def test_nothing_of_another_kind_is_cut_off_to_be_set(value):
    x = xp.asarray([1, 2])
    with pytest.raises(TypeError, match=r"does not go with|of one dtype or kind"):
        x[:] = value
    np.testing.assert_array_equal(np.asarray(x), [1, 2])


def test_integer_powers_limits_and_copies_are_right():
    np.testing.assert_array_equal(np.asarray(xp.asarray([2, 3, -1, 0]) ** xp.asarray([10, 3, 63, 0])), [1024, 27, -1, 1])
    np.testing.assert_array_equal(np.asarray(xp.clip(xp.asarray([-3, 5, 9], dtype="int8"), 5, 5)), [5, 5, 5])
    np.testing.assert_array_equal(np.asarray(xp.clip(xp.asarray([-3, 5], dtype="int8"), -1000, 1000)), [-3, 5])
    memory = np.zeros(64, np.float32)
    shared, own = xp.from_dlpack(memory), xp.from_dlpack(memory, copy=True)
    assert not np.shares_memory(np.from_dlpack(xp.asarray(shared, copy=True)), np.from_dlpack(shared))
    assert not np.shares_memory(np.from_dlpack(own), memory)


def test_kernels_are_dropped_when_there_are_too_many(monkeypatch):
    x = xp.asarray([1.0, 2.0, 3.0])
    close(xp.sinh(x), np.sinh([1, 2, 3]))
    monkeypatch.setattr(eager, "MOST", 0)
    close(xp.sinh(xp.asarray([2.0, 3.0, 4.0])), np.sinh([2, 3, 4]))  # the kernel that is there goes, and is made again
    assert len(eager._kernels) == 1


@pytest.mark.parametrize("dtype", ["int32", "int64", "int8"])
def test_indices_count_from_the_end_in_every_dtype(dtype):
    x, index = np.arange(10.0).reshape(2, 5), np.array([-1, 0, -2], dtype)
    ours, picked = xp.asarray(x), xp.asarray(index)
    np.testing.assert_array_equal(np.asarray(xp.take(ours, picked, axis=1)), x[:, index])
    np.testing.assert_array_equal(np.asarray(ours[:, picked]), x[:, index])


def test_long_sums_keep_what_is_added():
    x = xp.full((1_000_003,), 0.1)
    assert abs(float(xp.sum(x)) / 100_000.3 - 1) < 1e-5
    assert abs(float(xp.sum(xp.full((1000, 1000), 0.1))) / 100_000 - 1) < 1e-5
    assert abs(float(xp.mean(x)) / 0.1 - 1) < 1e-5


def test_a_long_loop_is_computed_on_its_way():
    x = total = xp.asarray([1.0, 2.0])
    before = len(eager._kernels)
    for _ in range(300):
        total = total + x
    assert total.node.depth <= 64
    np.testing.assert_array_equal(np.asarray(total), [301, 602])
    assert len(eager._kernels) - before <= 3  # the same piece of the loop over and over


def test_large_arrays_are_scheduled_and_agree():
    x = np.random.default_rng(1).standard_normal((300, 257)).astype(np.float32)
    ours = xp.asarray(x)
    close(ops.softmax(ours @ ours.T), ops.softmax(x @ x.T), 2e-5)


def test_other_libraries_take_the_memory():
    x = xp.asarray([[1, 2, 3], [4, 5, 6]])
    assert x.__dlpack_device__() == (1, 0)
    np.testing.assert_array_equal(np.from_dlpack(x.T), [[1, 4], [2, 5], [3, 6]])
    back = xp.from_dlpack(np.arange(6.0))
    assert (back.dtype, float(back[5])) == ("float64", 5.0)


def test_a_traced_function_reads_arrays_that_it_did_not_get():
    table = xp.asarray([[1.0, 2.0], [3.0, 4.0]])
    compiled = frontend.jit(lambda x: x + xp.sum(table, axis=0))
    np.testing.assert_array_equal(compiled(np.ones((3, 2), np.float32)), np.add(1.0, [[4, 6]] * 3))
    both = frontend.jit(lambda x: (x * 2.0, table))(np.ones(3, np.float32))
    np.testing.assert_array_equal(both[1], [[1, 2], [3, 4]])


def test_a_traced_function_tells_arrays_of_one_shape_apart():
    """Those that hold values, whether they were given or computed."""
    one, other = xp.asarray([1.0, 2.0]), xp.asarray([10.0, 20.0])
    np.testing.assert_array_equal(frontend.jit(lambda x: x + one * other)(np.zeros(2)), [10, 40])
    one, other = one + 1.0, other + 1.0
    np.asarray(one), np.asarray(other)
    np.testing.assert_array_equal(frontend.jit(lambda x: x + one * other)(np.zeros(2)), [22, 63])


def test_a_traced_function_may_return_views_and_its_arguments():
    x = np.arange(6.0).reshape(2, 3)
    for got, expected in zip(
        frontend.jit(lambda x: (x, x.T, x[0], x[:, ::2], xp.zeros((2, 2))))(x), (x, x.T, x[0], x[:, ::2], np.zeros((2, 2))), strict=True
    ):
        np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x,
        lambda x: x.T + 1.0,
        lambda x: xp.sum(x, axis=1),
        lambda x: xp.sum(x, axis=0),
        lambda x: x @ xp.ones((0, 3), dtype="float64"),
        lambda x: xp.concat([x, xp.ones((2, 3), dtype="float64"), x + 1.0], axis=1),
    ],
)
def test_a_traced_function_takes_and_returns_arrays_without_elements(function):
    x = np.zeros((2, 0))
    got, expected = frontend.jit(function)(x), np.asarray(function(xp.asarray(x)))
    assert got.dtype == expected.dtype
    np.testing.assert_array_equal(got, expected)


def test_a_traced_array_has_no_values():
    with pytest.raises(TypeError, match="being traced has no values yet; it depends on 0"):
        frontend.jit(lambda x: x if x[0] > 0 else -x)(np.ones(3, np.float32))


@pytest.mark.parametrize(
    ("wrong", "error", "message"),
    [
        (lambda: xp.asarray([1.0])[3], IndexError, "3"),
        (lambda: xp.take(xp.ones(4), xp.asarray([0, 7])), IndexError, "index 7 is outside an axis of 4"),
        (lambda: xp.take_along_axis(xp.ones((2, 4)), xp.asarray([[-5]])), IndexError, "index -5 is outside an axis of 4"),
        (lambda: xp.ones((2, 4))[xp.asarray([0, 2])], IndexError, "index 2 is outside an axis of 2"),
        (lambda: xp.take(xp.ones(4), xp.asarray([0.0])), TypeError, "an index needs one of int8"),
        (lambda: xp.reshape(xp.ones(6), (4,)), ValueError, r"\(6,\) to \(4,\)"),
        (lambda: xp.ones((2, 3)) + xp.ones((2, 4)), ValueError, "do not broadcast"),
        (lambda: xp.ones((2, 3)) @ xp.ones((2, 3)), ValueError, "3 columns, 2 rows"),
        (lambda: bool(xp.ones(2)), TypeError, r"\(2,\)"),
        (lambda: xp.max(xp.ones((0,))), ValueError, "no elements"),
        (lambda: xp.ones(3, device="gpu"), ValueError, "'gpu'"),
        (lambda: xp.asarray(["a"]), TypeError, "is no dtype"),
        (lambda: xp.asarray([1], dtype="int8") + 300, OverflowError, "300 is no int8: those are -128 to 127"),
        (lambda: xp.asarray([1], dtype="uint8") * -1, OverflowError, "-1 is no uint8"),
        (lambda: xp.clip(xp.asarray([1], dtype="int8"), max=-200), OverflowError, "-200 is no int8"),
        (lambda: xp.full(3, 2.5, dtype="int32"), ValueError, "2.5 is no int32"),
        (lambda: xp.full(3, 300, dtype="int8"), OverflowError, "300 is no int8"),
        (lambda: xp.zeros((2, -1)), ValueError, r"got shape \(2, -1\)"),
        (lambda: xp.arange(3, step=0), ValueError, "step of arange is 0"),
        (lambda: xp.linspace(0, 1, -2), ValueError, "-2 numbers"),
        (lambda: xp.eye(3, device="gpu"), ValueError, "'gpu'"),
        (lambda: xp.astype(xp.ones(3), "int8", device="gpu"), ValueError, "'gpu'"),
        (lambda: xp.tril(xp.ones(3)), ValueError, "two axes or more"),
        (lambda: xp.ones(3)[True], IndexError, "got True"),
        (lambda: xp.meshgrid(xp.ones(3), indexing="yx"), ValueError, "'yx'"),
        (lambda: xp.repeat(xp.ones(3), -1), ValueError, "got -1"),
        (lambda: xp.repeat(xp.ones(3), xp.asarray([1, 2])), ValueError, r"axis of 3 is repeated .* \[1, 2\]"),
        (lambda: xp.tensordot(xp.ones(3), xp.ones(3)), ValueError, "over 2 axes"),
        (lambda: xp.take_along_axis(xp.ones((2, 3)), xp.asarray([0])), ValueError, r"\(2, 3\) and \(1,\)"),
    ],
)
def test_what_cannot_be_is_refused_by_name(wrong, error, message):
    with pytest.raises(error, match=message):
        wrong()


SCIPY = """
import numpy as np, scipy.special, scipy.cluster.vq
from xformer.frontends import tvm
from xformer.frontends.tvm import namespace as xp
x = np.random.default_rng(0).standard_normal((5, 7)).astype(np.float32)
for function in (lambda x: scipy.special.logsumexp(x, axis=1), lambda x: scipy.special.softmax(x, axis=1), scipy.cluster.vq.whiten):
    got = function(xp.asarray(x))
    assert type(got).__module__ == "xformer.frontends.tvm.array", type(got)
    np.testing.assert_allclose(np.asarray(got), function(x), rtol=1e-5)
np.testing.assert_allclose(tvm.jit(lambda x: scipy.special.softmax(x, axis=1))(x), scipy.special.softmax(x, axis=1), rtol=1e-5)
"""


def test_scipy_computes_with_tvm():
    """Functions that know nothing of TVM, on values and traced; in a process where SciPy looks for namespaces."""
    subprocess.run([sys.executable, "-c", SCIPY], env=os.environ | {"SCIPY_ARRAY_API": "1"}, check=True, timeout=300)


def test_a_block_of_ones_own_runs_on_values_and_compiled():
    def gated(x, w, v):
        space = array_namespace(x)
        return ops.silu(FP32.contract(x, w)) * FP32.contract(x, v) + space.mean(x, axis=-1, keepdims=True)

    draw = np.random.default_rng(2)
    given_ = [draw.standard_normal(shape).astype(np.float32) for shape in ((4, 16), (16, 16), (16, 16))]
    expected = gated(*given_)
    close(gated(*map(xp.asarray, given_)), expected, 1e-5)
    close(frontend.jit(gated)(*given_), expected, 1e-5)
