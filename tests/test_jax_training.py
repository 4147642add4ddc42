"""Gradients through integers, and the training examples in small: they learn, and go on from a checkpoint as if never stopped."""

import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import xformer
from xformer.config import PRESETS, replace
from xformer.frontends import jax as frontend
from xformer.frontends.jax import training
from xformer.precision import FP32, INT8, INT32

EXAMPLES = str(Path(__file__).parent.parent / "examples")
SMALL = replace(PRESETS["gpt2-tiny"], width=32, heads=2, ffn=64, layers=1)
TOKENS = jnp.asarray(np.random.default_rng(0).integers(0, 500, (2, 9)), jnp.int32)
MASK = jnp.asarray(np.arange(9) < np.array([[9], [5]]))


@pytest.fixture(autouse=True)
def examples(monkeypatch):
    """The examples can be imported, and programs that run for a moment are not optimised for longer."""
    monkeypatch.syspath_prepend(EXAMPLES)
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", False)
    for name in ("loop", "text", "train_gpt2", "train_minilm"):
        sys.modules.pop(name, None)


def gradient(model, precision):
    """Of a loss that depends on every parameter of a decoder."""

    def loss(p):
        scores = jax.nn.log_softmax(model.functions.forward(p, TOKENS, MASK, config=model.config, precision=precision))
        return -jnp.take_along_axis(scores[:, :-1], TOKENS[:, 1:, None], axis=-1).mean()

    return jax.jit(jax.grad(loss))(training.parameters(model))


# -------------------------------------------------------------------------------------------------------- straight through
@pytest.mark.parametrize("precision", [INT8, INT32], ids=lambda precision: precision.name)
def test_results_are_those_of_the_precision_bit_for_bit(precision):
    model = xformer.init(SMALL, 1, "jax")
    p, forward = training.parameters(model), frontend.jit(model.functions.forward)
    got, wanted = (
        forward(p, TOKENS, MASK, config=model.config, precision=one) for one in (training.straight_through(precision), precision)
    )
    np.testing.assert_array_equal(got, wanted)


def test_gradients_are_those_of_fp32_up_to_the_rounding_of_the_operands():
    model = xformer.init(SMALL, 1, "jax")
    exact, rounded = (gradient(model, precision) for precision in (FP32, training.straight_through(INT8)))
    for a, b in zip(jax.tree.leaves(exact), jax.tree.leaves(rounded), strict=True):
        assert jnp.linalg.norm(a - b) < 0.1 * jnp.linalg.norm(a) + 1e-7


def test_one_projections_gradient_is_that_of_its_rounded_operands():
    generator = np.random.default_rng(2)
    x, w, g = (jnp.asarray(generator.standard_normal(shape), jnp.float32) for shape in ((5, 48), (7, 48), (5, 7)))
    a, b = (q.values * q.scale for q in (INT8.narrow(x), INT8.narrow(w)))
    _, back = jax.vjp(training.straight_through(INT8).contract, x, w)
    for got, wanted in zip(back(g), (g @ b, g.T @ a), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-5)
    (blocked,) = jax.vjp(lambda x: INT8.contract(x, w), x)[1](g)
    assert jnp.linalg.norm(blocked - g @ b) > 0.5 * jnp.linalg.norm(g @ b)  # what it is for


def test_a_tied_table_is_one_parameter_and_rounded_weights_are_none():
    model = xformer.init(SMALL, 1, "jax")
    p = training.parameters(model)
    assert p.head.weight is None
    forward = frontend.jit(model.functions.forward)
    got, wanted = (forward(tree, TOKENS, MASK, config=model.config, precision=FP32) for tree in (p, model.params))
    np.testing.assert_array_equal(got, wanted)
    with pytest.raises(ValueError, match="this model's are prepared for int8"):
        training.parameters(xformer.init("gpt2-tiny", 1, "jax", "int8"))
    with pytest.raises(TypeError, match="training needs fp32 weights"):
        training.straight_through(INT8).prepare(INT8.prepare(jnp.ones((4, 4))))


# ---------------------------------------------------------------------------------------------------------------- examples
def gpt2(monkeypatch, precision):
    """The parts of a run of the example with a smaller model: what begins it, a step, the batches, and what is held out."""
    import loop
    import text
    import train_gpt2

    monkeypatch.setattr(train_gpt2, "CONFIG", replace(train_gpt2.CONFIG, width=32, heads=2, ffn=64, layers=1, positions=32))
    mean, rule = train_gpt2.loss(train_gpt2.PRECISIONS[precision]), loop.optimiser(1e-2, 12)
    batch = train_gpt2.batches(text.characters(False, 12), 8, 31)
    (others,) = train_gpt2.batches(text.characters(True, 12), 8, 31)(0)
    compiled = jax.jit(mean)

    def begin():
        return loop.begin(training.parameters(xformer.init(train_gpt2.CONFIG, 0, "jax")), rule)

    return begin, loop.stepper(mean, rule), batch, lambda params: f"{compiled(params, others):.4f}"


def test_a_tiny_gpt2_learns_what_it_has_not_seen_and_resumes_bit_for_bit(monkeypatch, tmp_path):
    import loop

    said = []
    begin, *parts = gpt2(monkeypatch, "bf16")
    whole = loop.train(begin(), *parts, 12, told=said.append)
    first, last = float(said[0].split()[-1]), float(said[-1].split()[-1])
    assert last < first - 1
    assert "s a step" in said[-1]
    assert all(leaf.dtype == jnp.float32 for leaf in jax.tree.leaves(whole.params))

    loop.train(begin(), *parts, 5, tmp_path / "run", told=said.append)
    resumed = loop.train(begin(), *parts, 12, tmp_path / "run", told=said.append)
    assert any(line.startswith("resumed from") and line.endswith("after step 5") for line in said)
    for a, b in zip(jax.tree.leaves(resumed), jax.tree.leaves(whole), strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_checkpoint_of_another_model_is_refused(monkeypatch, tmp_path):
    import loop

    begin, *_ = gpt2(monkeypatch, "bf16")
    loop.save(tmp_path / "run", begin())
    rule = loop.optimiser(1e-2, 12)
    with pytest.raises(RuntimeError, match="Error at leaf"):
        loop.load(tmp_path / "run", loop.begin(training.parameters(xformer.init("gpt2-tiny", 0, "jax")), rule))


class Letters:
    """A tokenizer of one letter a token."""

    pad_token = 0

    def encode(self, texts, truncate=False):
        return [[ord(letter) % 500 for letter in text] for text in texts]


def test_an_encoder_learns_which_texts_belong_together():
    import loop
    import text
    import train_minilm

    config = replace(PRESETS["bert-tiny"], layers=1, width=32, heads=2, ffn=64)
    batch = train_minilm.arrays(text.described(False, 6)[:8], Letters())
    rule = loop.optimiser(1e-2, 8)
    state = loop.begin(training.parameters(xformer.init(config, 0, "jax")), rule)
    step, losses = loop.stepper(train_minilm.loss(config, train_minilm.PRECISIONS["bf16"]), rule), []
    for _ in range(8):
        state, value = step(state, batch)
        losses.append(float(value))
    assert losses[-1] < losses[0] - 0.5
    said = train_minilm.found(batch, config, train_minilm.PRECISIONS["fp32"])(state.params)
    assert float(said.split()[-1]) == pytest.approx(losses[-1], abs=0.5)
    assert "of 8 found first" in said


def test_what_is_held_out_is_not_trained_on():
    import text

    seen, kept = (set(text.described(side, 30)) for side in (False, True))
    assert len(seen) > 4 * len(kept) > 0
    assert not {words for words, _ in kept} & {words for words, _ in seen}
    assert len(text.characters(True, 20)) + len(text.characters(False, 20)) == sum(path.stat().st_size for path in text.sources(20))
