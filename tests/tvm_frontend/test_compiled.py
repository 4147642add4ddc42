"""Compiled models against the eager NumPy ones: the same functions, the same results, the same handle."""

import numpy as np
import pytest
import test_minilm as minilm
from compare import golden, relative, worst

import xformer
from xformer import blocks
from xformer.frontends.tvm import compile, jit, lengths

RNG = np.random.default_rng(0)
TOKENS = RNG.integers(1, 500, (4, 32))
MASK = np.ones((4, 32), int)
MASK[1, 20:] = 0


@pytest.mark.parametrize("preset", ["bert-tiny", "gpt2-tiny"])
def test_forward_is_the_eager_models(preset, precision):
    """fp32 differs by rounding alone; in a narrow precision that moves operands to a neighbour, which costs no more than narrowing."""
    exact, eager = xformer.init(preset), xformer.init(preset, precision=precision)
    got = compile(exact, precision=precision)(TOKENS, MASK)
    assert got.dtype == np.float32

    def far(x, y):
        return np.abs(x - y)[MASK.astype(bool)].max()

    assert far(got, eager(TOKENS, MASK)) <= (1e-5 if precision.name == "fp32" else far(eager(TOKENS, MASK), exact(TOKENS, MASK)))


@pytest.fixture(scope="module")
def bert():
    eager = xformer.init("bert-tiny")
    return eager, compile(eager)


@pytest.fixture(scope="module")
def gpt2():
    eager = xformer.init("gpt2-tiny")
    return eager, compile(eager)


def test_shapes_off_the_ladder_and_the_pooler(bert):
    eager, compiled = bert
    for rows, length in ((1, 1), (3, 21)):
        tokens, mask = TOKENS[:rows, :length], MASK[:rows, :length]
        np.testing.assert_allclose(compiled(tokens, mask), eager(tokens, mask), atol=1e-5)
        np.testing.assert_allclose(compiled.pool(tokens, mask), eager.pool(tokens, mask), atol=1e-5)
    types = RNG.integers(0, 2, TOKENS.shape)
    np.testing.assert_allclose(compiled(TOKENS, MASK, types), eager(TOKENS, MASK, types), atol=1e-5)


@pytest.mark.parametrize("tied", [True, False])
def test_heads_with_a_table_of_their_own_and_with_the_token_table(tied):
    for preset in ("bert-tiny", "gpt2-tiny"):
        sizes = xformer.config.replace(xformer.config.find(preset), tied=tied, head=preset == "bert-tiny", layers=1)
        eager = xformer.init(sizes)
        got = compile(eager).logits(TOKENS[:, :16], MASK[:, :16])
        np.testing.assert_allclose(got, eager.logits(TOKENS[:, :16], MASK[:, :16]), atol=1e-5)


def test_caches_of_other_capacities_give_the_same_tokens():
    """Prompts for three rungs of the ladder, the last one with no room for padding."""
    eager = xformer.init(xformer.config.replace(xformer.config.find("gpt2-tiny"), positions=300, layers=1))
    compiled = compile(eager)
    for length, rung in ((60, 128), (140, 256), (295, 512)):
        prompts = RNG.integers(0, 500, (1, length)).tolist()
        assert compiled.generate(prompts, 5, stop=()) == eager.generate(prompts, 5, stop=())
        assert any(lengths.shape(program.arguments[1:]).capacity == rung for program in compiled.function("decode").programs.values())


@minilm.pytestmark
def test_minilm_embeds_as_the_eager_model_and_as_transformers(precision, figure):
    eager = xformer.load(minilm.FOLDER, precision=precision)
    texts = minilm.SENTENCES[:5]
    got, same, wanted = compile(eager).embed(texts), eager.embed(texts), golden("minilm")["vectors"][:5]
    figure(f"MiniLM, compiled against transformers, {precision.name}: relative", relative(got, wanted))
    assert relative(got, wanted) <= minilm.BOUNDS[precision.name]
    assert worst(got, same) <= (1e-5 if precision.name == "fp32" else worst(same, wanted))


def test_shapes_on_one_rung_share_a_program(bert):
    _, compiled = bert
    for length in (17, 20, 32):
        compiled(TOKENS[:, :length], MASK[:, :length])
    programs = compiled.compiled["forward"].programs
    compiled(TOKENS[:, :30], MASK[:, :30])
    assert compiled.compiled["forward"].programs is programs
    assert lengths.tokens(17) == lengths.tokens(32) == 32


def test_generation_gives_the_eager_models_tokens(gpt2):
    eager, compiled = gpt2
    prompts = [[1, 2, 3], [4, 5, 6, 7, 8], [9]]
    for options in ({}, {"temperature": 0.8, "top_k": 20, "seed": 3}):
        assert compiled.generate(prompts, 24, stop=(), **options) == eager.generate(prompts, 24, stop=(), **options)


def test_one_program_serves_all_steps_and_writes_in_place(gpt2):
    _, compiled = gpt2
    logits, memory = compiled._prefill(np.array([[1, 2, 3]], np.int32), np.ones((1, 3), bool), 16)
    first = memory.keys[0]
    for _ in range(3):
        logits, memory = compiled._decode(np.argmax(logits, axis=-1).astype(np.int32), memory)
    assert memory.keys[0].same_as(first)
    used = {specs for specs in compiled.compiled["decode"].programs if specs[0].shape == (1,)}
    assert len(used) == 1


def test_other_parameters_are_read_at_the_next_call():
    """What a program keeps of a tree are the tensors that cannot change in it."""
    compiled, other = (compile(xformer.init("gpt2-tiny", seed=seed)) for seed in (0, 1))
    first = compiled(TOKENS, MASK)
    mine, compiled.params = compiled.params, other.params
    np.testing.assert_array_equal(compiled(TOKENS, MASK), other(TOKENS, MASK))
    compiled.params = mine
    np.testing.assert_array_equal(compiled(TOKENS, MASK), first)
    pair, double = blocks.Norm(np.ones(4, np.float32), np.ones(4, np.float32)), jit(lambda p: p.scale * 2 + p.bias)
    assert double(pair).tolist() == [3] * 4
    pair.scale[:] = 5
    assert double(pair).tolist() == [11] * 4


def test_bad_input_is_refused_before_anything_is_compiled(gpt2):
    _, compiled = gpt2
    before = {name: len(function.programs) for name, function in compiled.compiled.items()}
    with pytest.raises(ValueError, match="outside the vocabulary"):
        compiled([[1, 512]])
    with pytest.raises(ValueError, match="128 positions"):
        compiled.generate([[1] * 120], max_new_tokens=9)
    assert {name: len(function.programs) for name, function in compiled.compiled.items()} == before


def test_weights_of_another_precision_are_refused():
    with pytest.raises(ValueError, match="prepared for int8; bf16 was asked for"):
        compile(xformer.init("bert-tiny", precision="int8"), precision="bf16")
