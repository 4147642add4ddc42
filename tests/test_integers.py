"""Integer results and narrow operands are the same bits on every namespace, compiled or not."""

import numpy as np
import pytest
from compare import bits, numbers

from xformer import backends, ops
from xformer.precision import BF16, INT8, INT32

LENGTHS = (1, 2, 3, 4, 7, 8, 31, 64, 127, 768, 1023, 1024, 1025, 2049, 3072, 4100)
INTEGERS = {"int8": INT8, "int32": INT32}


@pytest.fixture(params=INTEGERS)
def integer(request):
    return INTEGERS[request.param]


def run(runner, function, *arrays):
    """`function` of arrays of the runner's namespace, under jit where it compiles."""
    if runner.compiled:
        import jax

        function = jax.jit(function)
    return function(*(backends.from_numpy(runner.xp, array) for array in arrays))


def contract(a, b):
    return ops.contract(a, b, ops.namespace(a).int32)


def exact(a, b):
    """In int64, which no sum here leaves."""
    return numbers(a) @ np.swapaxes(numbers(b), -1, -2)


def operands(integer, terms, kind):
    """Two operands as wide as the precision lets them be for sums of `terms` products."""
    generator, limit, dtype = np.random.default_rng(terms), integer.limit(terms), np.dtype(integer.operand)
    if kind == "random":
        return tuple(generator.integers(-limit, limit + 1, (rows, terms)).astype(dtype) for rows in (3, 5))
    signs = generator.choice([-1, 1], (3, terms))
    signs[:2] = [[1], [-1]]  # the largest sum of either sign, and a mixed one
    return (signs * limit).astype(dtype), np.full((2, terms), limit, dtype)


@pytest.mark.parametrize("kind", ["random", "extreme"])
def test_C25_C32_contractions_are_exact_for_every_length(runner, integer, kind):
    """github.com/jax-ml/jax/issues/814, apache/tvm/pull/3516, /4171: int8 products wrapped or saturated."""
    for terms in LENGTHS:
        a, b = operands(integer, terms, kind)
        got = run(runner, contract, a, b)
        assert got.dtype == runner.xp.int32
        assert (numbers(got) == exact(a, b)).all(), f"{terms} terms"


def test_C25_eight_products_of_127(runner):
    """The example of jax/issues/814: 8 in int8, 129032 in truth."""
    assert numbers(run(runner, contract, *(np.full((1, 8), 127, np.int8),) * 2)).tolist() == [[129032]]


def test_C32_the_most_negative_int8_is_exact(runner):
    """No operand here is -128, but a file of another tool may hold it."""
    for terms in (4, 768, 4096):
        a, b = np.full((2, terms), -128, np.int8), np.random.default_rng(terms).choice(np.array([-128, 127], np.int8), (3, terms))
        b[0] = -128
        assert (numbers(run(runner, contract, a, b)) == exact(a, b)).all(), f"{terms} terms"


@pytest.mark.parametrize(("left", "right"), [((2, 3, 4, 33), (2, 3, 5, 33)), ((2, 4, 33), (5, 33)), ((2, 3, 4, 33), (1, 3, 5, 33))])
def test_batches_of_contractions_are_exact(runner, integer, left, right):
    generator, limit = np.random.default_rng(0), integer.limit(33)
    a, b = (generator.integers(-limit, limit + 1, shape).astype(integer.operand) for shape in (left, right))
    assert (numbers(run(runner, contract, a, b)) == exact(a, b)).all()


def rows():
    """Random rows of many sizes, ties between two integers, zeros, one element alone, and the smallest and largest scales."""
    generator = np.random.default_rng(5)
    x = generator.standard_normal((512, 96)).astype(np.float32) * np.float32(10.0) ** generator.integers(-30, 30, (512, 1)).astype(
        np.float32
    )
    x[0], x[1], x[1, 7] = 0, 0, -3
    x[2], x[2, 0] = np.arange(96) + 0.5, 127
    x[3] = np.float32(2.0**-126)
    x[4, :2] = np.finfo(np.float32).max, -np.finfo(np.float32).max
    return x


def quantised(x, limit):
    """The numeric contract once more, in NumPy's fp32 alone."""
    scale = np.abs(x).max(axis=-1, keepdims=True) * np.float32(1 / limit)
    values = np.rint(x * (np.float32(1) / np.where(scale >= 2.0**-126, scale, np.float32(1))))
    return np.clip(values, -limit, limit), scale


def test_quantised_values_and_scales_are_the_same_bits(runner, integer):
    x = rows()
    values, scale = quantised(x, integer.limit(x.shape[-1]))
    got = run(runner, lambda x: (integer.narrow(x).values, integer.narrow(x).scale), x)
    assert str(backends.to_numpy(got[0]).dtype) == integer.operand
    assert (numbers(got[0]) == values).all()
    normal = scale >= 2.0**-126  # smaller ones are kept by some libraries and flushed to 0 by others
    assert (bits(got[1])[normal] == bits(scale)[normal]).all()


def test_results_in_fp32_are_the_same_bits(runner, integer):
    """The integers times both scales, in this order: three roundings that every library makes alike."""
    generator = np.random.default_rng(6)
    a, b = (generator.standard_normal(shape).astype(np.float32) for shape in ((5, 768), (7, 768)))
    (va, sa), (vb, sb) = (quantised(x, integer.limit(768)) for x in (a, b))
    wanted = exact(va.astype(integer.operand), vb.astype(integer.operand)).astype(np.float32) * sa * sb.T
    assert (bits(run(runner, integer.contract, a, b)) == bits(wanted)).all()


@pytest.mark.usefixtures("bfloat16")
def test_bf16_operands_are_the_same_bits(runner):
    """Rounded half to even on the upper 16 bits of fp32; ties, the largest numbers, infinities and both zeros among them."""
    upper = np.random.default_rng(8).integers(0, 2**16, 4096, np.uint32) << 16
    words = np.concatenate([upper | low for low in (0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF)])
    x = words.view(np.float32)
    x = x[np.isfinite(x) & (np.abs(x) >= 2.0**-126)]
    x = np.concatenate([x, np.array([0.0, -0.0, np.inf, -np.inf, np.finfo(np.float32).max], np.float32)])
    words = x.view(np.uint32).astype(np.uint64)
    wanted = ((words + 0x7FFF + ((words >> 16) & 1)) >> 16).astype(np.uint16)
    got = backends.to_numpy(run(runner, BF16.narrow, x))
    assert got.dtype.name == "bfloat16"
    assert (bits(got) == wanted).all()
