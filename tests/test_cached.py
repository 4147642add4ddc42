"""Decoding step by step through the cache gives the logits of one forward pass over everything."""

import functools

import numpy as np
import pytest
from compare import GOLDEN, numbers, relative, worst

from xformer import backends, cache
from xformer.models import gpt2

PROMPT, STEPS = 6, 5
ROUNDING = 4e-6  # the same sums in another order: 1e-6 of the largest logits
PADDING = {
    "none": np.ones((3, PROMPT), bool),
    "left": np.array([[1] * 6, [0] * 2 + [1] * 4, [0] * 5 + [1]], bool),
    "right": np.array([[1] * 6, [1] * 4 + [0] * 2, [1] + [0] * 5], bool),
    "both": np.array([[0] + [1] * 5, [0, 0, 1, 1, 0, 0], [1] * 5 + [0]], bool),
}
TOKENS = np.random.default_rng(11).integers(1, 61, (3, PROMPT + STEPS)).astype(np.int32)


@pytest.fixture(params=PADDING)
def mask(request):
    """Of all columns: the prompt's padding, then the steps."""
    return np.concatenate([PADDING[request.param], np.ones((3, STEPS), bool)], axis=1)


def bound(model, name):
    """One of the functions of the model's file, as the model calls it."""
    return model.transform(functools.partial(getattr(gpt2, name), config=model.config, precision=model.precision))


def on(model, array):
    return backends.from_numpy(model.xp, np.ascontiguousarray(array))


def at_last_real(logits, mask):
    """(b, t, v) at each row's last real token."""
    last = mask.shape[1] - 1 - mask[:, ::-1].argmax(axis=1)
    return logits[np.arange(len(logits)), last]


def full(model, mask):
    """The logits after the prompt and after each step, (b, 1 + steps, v), from one pass over all columns."""
    logits = numbers(bound(model, "forward")(model.params, on(model, TOKENS), on(model, mask)))
    return np.concatenate([at_last_real(logits[:, :PROMPT], mask[:, :PROMPT])[:, None], logits[:, PROMPT:]], axis=1)


def cached(model, mask, capacity=PROMPT + STEPS, pieces=(PROMPT,)):
    """The same through the cache: the prompt in `pieces`, then token by token."""
    prefill, decode = bound(model, "prefill"), bound(model, "decode")
    memory, start, found = cache.empty(model.xp, model.config, len(TOKENS), capacity, precision=model.precision), 0, []
    for piece in pieces:
        part = slice(start, start + piece)
        logits, memory = prefill(model.params, on(model, TOKENS[:, part]), on(model, mask[:, part]), memory)
        start += piece
    found.append(numbers(logits))
    for column in range(start, TOKENS.shape[1]):
        logits, memory = decode(model.params, on(model, TOKENS[:, column]), memory)
        found.append(numbers(logits))
    return np.stack(found, axis=1)


@pytest.mark.parametrize("name", ["gpt2-null", "gpt2-37"])
def test_C01_C18_cached_decode_equals_the_full_forward(runner, name, mask):
    """github.com/huggingface/transformers/issues/25420, for prompts padded on either side"""
    model = runner.load(GOLDEN / name)
    assert worst(cached(model, mask), full(model, mask)) <= 1e-5


def test_padded_prompts_decode_as_unpadded_ones(compiled, mask):
    """Each row alone, without its padding."""
    model = compiled.load(GOLDEN / "gpt2-null")
    together = cached(model, mask)
    for index, (row, real) in enumerate(zip(TOKENS, mask, strict=True)):
        logits = numbers(model(row[real][None]))[0, -STEPS - 1 :]
        assert worst(together[index], logits) <= 1e-5


def test_a_larger_cache_changes_nothing(compiled, mask):
    model = compiled.load(GOLDEN / "gpt2-null")
    assert worst(cached(model, mask, capacity=24), cached(model, mask)) <= ROUNDING


def test_a_prompt_in_pieces_equals_a_whole_one(compiled, mask):
    model, whole = compiled.load(GOLDEN / "gpt2-null"), mask[:, 4:PROMPT].any(axis=1)
    pieces, at_once = cached(model, mask, pieces=(4, 2)), cached(model, mask)
    assert worst(pieces[:, 1:], at_once[:, 1:]) <= ROUNDING
    assert worst(pieces[whole], at_once[whole]) <= ROUNDING  # the logits after a piece that is all padding mean nothing


def test_C18_how_far_cached_decode_is_from_the_full_forward(compiled, precision, figure):
    """Nothing but rounding in fp32 and bf16. In int32 the range depends on how many columns there are."""
    model, mask = compiled.load(GOLDEN / "gpt2-null", precision.name), np.ones(TOKENS.shape, bool)
    whole, steps = full(model, mask), cached(model, mask)
    figure(f"cached decode against full forward, {compiled}, {precision.name}: relative", relative(steps, whole))
    assert relative(steps, whole) <= {"fp32": 1e-6, "bf16": 1e-2, "int8": 5e-2, "int32": 1e-3}[precision.name]
