"""Padding in compiled programs: real tokens get what they get alone, padding zeros, and rows that nobody reads are not computed."""

import numpy as np
import pytest
from compare import worst

import xformer
from xformer import padding
from xformer.config import Config
from xformer.frontends import tvm as frontend
from xformer.frontends.tvm.array import Array
from xformer.frontends.tvm.live import Live, lives
from xformer.frontends.tvm.nodes import Input
from xformer.frontends.tvm.padding import Pad, Scan, Unpad

LENGTHS = np.array([16, 1, 9, 4])
RIGHT = np.arange(16)[None, :] < LENGTHS[:, None]
MASKS = {
    "none": np.ones((4, 16), bool),
    "right": RIGHT,
    "left": RIGHT[:, ::-1].copy(),
    "holes": RIGHT & (np.arange(16) % 3 != 1)[None, :],
    "one token": np.arange(64).reshape(4, 16) == 40,
    "a row of padding": RIGHT & (np.arange(4) != 2)[:, None],
    "nothing": np.zeros((4, 16), bool),
}
SHAPES = {"a ladder's": (4, 16), "tiles of 11": (4, 32), "primes": (3, 13), "one row": (1, 16)}
APART = {"fp32": 2e-5, "bf16": 3e-2, "int8": 0.15}  # of NumPy's hidden states, which are about 1


def config(width, positions):
    return Config("bert", 61, positions, width=width, layers=2, heads=2, ffn=3 * width, activation="gelu", eps=1e-12, token_types=1)


@pytest.fixture(scope="module")
def pairs():
    """Eager and compiled models, by precision and the most tokens of a row: with 13 a program has rows of 13."""
    made = {}

    def pair(precision, positions=40):
        key = precision, positions
        if key not in made:
            model = xformer.init(config(24, positions), 0, "numpy", precision)
            made[key] = model, frontend.compile(model)
        return made[key]

    return pair


def inputs(mask):
    return np.random.default_rng(3).integers(1, 61, mask.shape), mask


@pytest.mark.parametrize("name", MASKS)
@pytest.mark.parametrize("precision", APART)
@pytest.mark.parametrize("shape", SHAPES)
def test_real_tokens_are_as_numpy_has_them_and_padding_is_zeros(pairs, precision, shape, name):
    batch, length = SHAPES[shape]
    mask = np.repeat(MASKS[name], 2, axis=1)[:batch, :length] if length > 16 else MASKS[name][:batch, :length]
    model, compiled = pairs(precision, 13 if length == 13 else 40)
    got, wanted = compiled(*inputs(mask)), model(*inputs(mask))
    assert worst(got, wanted, mask) <= APART[precision]
    assert (got[~mask] == 0).all()


def test_integers_of_real_tokens_do_not_depend_on_what_pads_them(pairs):
    """Bit for bit: other tokens under the padding, and another number of rows that stand in its place."""
    _, compiled = pairs("int8")
    tokens, mask = inputs(RIGHT)
    first, second = compiled(tokens, mask), compiled(np.where(mask, tokens, 7), mask)
    assert (first[mask] == second[mask]).all()
    fewer = compiled(tokens[:2], mask[:2])  # in a program for two rows
    assert (fewer[mask[:2]] == first[:2][mask[:2]]).all()


def test_a_call_leaves_nothing_behind_for_the_next(pairs):
    _, compiled = pairs("fp32")
    first = compiled(*inputs(MASKS["one token"])).copy()
    compiled(*inputs(MASKS["none"]))
    assert (compiled(*inputs(MASKS["one token"])) == first).all()


def test_a_saved_program_leaves_padding_out(tmp_path):
    model = xformer.init(config(24, 24), 0, "numpy", "int8")
    compiled = frontend.compile(model, (4, 16))
    compiled.save(tmp_path / "compiled")
    loaded = frontend.load(tmp_path / "compiled")
    for mask in MASKS.values():
        assert (loaded(*inputs(mask)) == compiled(*inputs(mask))).all()


# ------------------------------------------------------------------------------------------------------------- what is skipped
@pytest.mark.parametrize("precision", APART)
def test_every_kernel_of_a_layer_but_those_of_keys_and_values_skips_rows(precision):
    kernels = [kernel for kernel in frontend.explain("bert-tiny", (4, 32), "znver4", precision) if kernel.function == "forward"]
    per_layer = [kernel for kernel in kernels if kernel.calls % 2 == 0]
    assert len(per_layer) > 8
    whole = [kernel for kernel in per_layer if kernel.kernel.live is None]
    assert all(kernel.kernel.nodes[0].name == "pad_tokens" for kernel in whole)
    assert len(whole) == {"fp32": 0, "bf16": 2, "int8": 1}[precision]
    for kernel in per_layer:
        assert ("if " in kernel.tir) == (kernel.kernel.live is not None)


def mask_of(batch, length):
    return Scan(Array(Input("mask", (batch, length), "bool"), (batch, length))).places()


def test_what_reads_all_rows_has_all_rows_computed():
    found = mask_of(2, 8)
    x = Array(Input("x", (2, 8, 4), "float32"), (2, 8, 4))
    packed = padding.unpad(x * 2.0, found)
    y = packed * 3.0
    again = padding.pad(y, found)
    nodes = [found.tokens.node, *(a.node for a in (packed, y, again))]
    assert isinstance(packed.node, Unpad)
    assert isinstance(again.node, Pad)
    assert lives(nodes, [again.node])[y.node] == Live(found.tokens.node, 0, 1, 16, 16)
    assert lives(nodes, [again.node, y.node]).get(y.node) is None


def test_rows_of_a_batch_in_another_order_of_axes_are_followed():
    """What attention gives: (b, h, t, e), of which tokens read all heads."""
    found = mask_of(2, 8)
    x = Array(Input("x", (2, 3, 8, 4), "float32"), (2, 3, 8, 4)) * 2.0
    xp = x.__array_namespace__()
    merged = xp.reshape(xp.permute_dims(x, (0, 2, 1, 3)), (2, 8, 12))
    packed = padding.unpad(merged, found)
    nodes = [found.tokens.node, x.node, merged.node, packed.node]
    assert lives(nodes, [packed.node])[x.node] == Live(found.tokens.node, 1, 1, 8, 24)
