"""Prompts, what ends a row, and the steps over a scripted (prefill, decode) pair."""

import numpy as np
import pytest

import xformer
from xformer import generate as generation
from xformer import params
from xformer.config import PRESETS
from xformer.generate import Ends, Transcript
from xformer.sampling import Sampling

CONFIG = PRESETS["gpt2-tiny"]  # 512 ids, 128 positions, id 511 ends a text


def scripted(*rows):
    """A model that says what it is told: row i's tokens in turn."""
    logits = np.zeros((len(rows[0]), len(rows), CONFIG.vocab_size), np.float32)
    for row, tokens in enumerate(rows):
        logits[np.arange(len(tokens)), row, tokens] = 1
    return (lambda tokens, mask: (logits[0], 0)), (lambda ids, step: (logits[step + 1], step + 1))


def run(rows, stop=None, to_text=None, text=False):
    given = generation.Prompts(np.ones((len(rows), 2), np.int32), np.ones((len(rows), 2), bool), text, False)
    return list(generation.steps(*scripted(*rows), given, len(rows[0]), Sampling(), Ends.of(stop, CONFIG), to_text))


def test_a_row_ends_at_its_own_stop_and_keeps_it():
    assert run([[1, 2, 511, 9], [3, 511, 7, 7]]) == [[1, 3], [2, 511], [511, None]]


def test_no_stop_runs_to_the_end():
    assert run([[1, 511, 511]], stop=()) == [[1], [511], [511]]


def test_other_stops_replace_the_models_own():
    assert run([[511, 5, 6]], stop=5) == [[511], [5]]
    assert run([[511, 5, 6]], stop=[6, 5]) == [[511], [5]]


LETTERS = {1: "he", 2: "l", 3: "lo", 4: " wor", 5: "ld", 6: "!"}


def spell(ids):
    return "".join(LETTERS[token] for token in ids)


def test_a_stop_text_is_cut_even_across_tokens():
    steps = run([[1, 2, 3, 4, 5, 6]], stop="o w", to_text=spell, text=True)
    assert "".join(piece for step in steps for piece in step if piece) == "hell"


def test_a_stop_text_ends_rows_of_ids_too():
    assert run([[1, 2, 3, 4, 5, 6]], stop="llo", to_text=spell) == [[1], [2], [3]]


def test_what_only_looked_like_a_stop_comes_out():
    steps = run([[1, 2, 3, 4]], stop="lows", to_text=spell, text=True)
    assert "".join(piece for step in steps for piece in step if piece) == "hello wor"


def test_a_character_in_pieces_is_held_back_until_it_is_whole():
    euro = "€".encode()
    transcript = Transcript(lambda ids: bytes(ids).decode(errors="replace"))
    assert [transcript.push(byte) for byte in euro] == ["", "", "€"]
    assert [transcript.push(byte) for byte in b"a" + euro[:1]] == ["a", ""]
    assert transcript.flush() == "\ufffd"


@pytest.mark.parametrize(
    ("stop", "message"),
    [("", "got ''"), ([1.5], "got 1.5"), ([True], "got True"), (512, r"stop id 512 is outside the vocabulary \[0, 512\)")],
)
def test_stops_that_cannot_be(stop, message):
    with pytest.raises(ValueError, match=message):
        Ends.of(stop, CONFIG)


def decisive(namespace="numpy"):
    """A model whose best tokens are best by far: those of small random weights lie within each other's rounding."""
    model = xformer.init("gpt2-tiny", seed=5, namespace=namespace)
    model.params = params.map(lambda path, leaf: leaf * 8.0 if path.endswith("weight") else leaf, model.params)
    return model


MODEL = decisive()
PROMPT = [5, 6, 7, 8]


def test_one_prompt_gives_one_row_and_a_batch_a_list():
    one = MODEL.generate(PROMPT, 6, stop=())
    assert len(one) == 6
    assert MODEL.generate([PROMPT], 6, stop=()) == [one]
    assert list(MODEL.stream(PROMPT, 6, stop=())) == one
    assert list(MODEL.stream([PROMPT, PROMPT], 2, stop=())) == [[token, token] for token in one[:2]]


def test_C01_C02_padding_on_either_side_changes_nothing(xp):
    model = decisive(xp)
    expected = [MODEL.generate(prompt, 8, stop=()) for prompt in (PROMPT, PROMPT[:2])]
    assert model.generate([PROMPT, PROMPT[:2]], 8, stop=()) == expected
    right = np.array([[5, 6, 7, 8], [5, 6, 0, 0]]), np.array([[1, 1, 1, 1], [1, 1, 0, 0]])
    left = np.array([[5, 6, 7, 8], [0, 0, 5, 6]]), np.array([[1, 1, 1, 1], [0, 0, 1, 1]])
    for tokens, mask in (right, left):
        assert model.generate(tokens, 8, stop=(), mask=mask) == expected


def test_the_same_seed_draws_the_same_tokens_everywhere(xp):
    options = {"max_new_tokens": 12, "temperature": 0.9, "top_k": 50, "top_p": 0.95, "stop": ()}
    model = decisive(xp)
    drawn = model.generate([PROMPT, PROMPT], seed=11, **options)
    assert drawn == MODEL.generate([PROMPT, PROMPT], seed=11, **options)
    assert drawn[0] != drawn[1]
    assert drawn != MODEL.generate([PROMPT, PROMPT], seed=12, **options)


@pytest.mark.parametrize(
    ("prompts", "options", "message"),
    [
        ([], {}, "the batch is empty"),
        ([[]], {}, "prompt 0 is empty"),
        ([[1], []], {}, "prompt 1 is empty"),
        ([[1, 512]], {}, "token id 512"),
        ([1, 512], {}, "token id 512"),
        (PROMPT, {"max_new_tokens": 125}, "a prompt of 4 tokens and 125 new: the model has 128 positions"),
        (PROMPT, {"max_new_tokens": 0}, "max_new_tokens must be a positive integer, got 0"),
        (PROMPT, {"temperature": -1.0}, "temperature"),
        (PROMPT, {"stop": "x"}, "no tokenizer"),
        ("hello", {}, "no tokenizer"),
        ("hello", {"mask": [[1]]}, "a mask goes with ids, not with texts"),
        (np.array([[1, 2]]), {"mask": [[0, 0]]}, "prompt 0 has no real token"),
        (np.array([1, 2]), {}, "rank 2"),
    ],
)
def test_what_cannot_be_generated_is_refused_before_anything_runs(prompts, options, message, monkeypatch):
    monkeypatch.setattr(MODEL, "_run", None)
    with pytest.raises(ValueError, match=message):
        MODEL.stream(prompts, **options)


def test_the_last_position_can_be_filled():
    assert len(MODEL.generate(PROMPT, 124, stop=())) == 124


def test_an_encoder_cannot_generate_and_a_decoder_cannot_embed():
    with pytest.raises(ValueError, match="generate needs a decoder; bert is an encoder"):
        xformer.init("bert-tiny").generate(PROMPT)
    with pytest.raises(ValueError, match="embed needs an encoder; gpt2 is a decoder"):
        MODEL.embed("text")


@pytest.mark.parametrize("stop", [b"a", 1.5, [1.5], {"a": 1.0}.values(), [True]])
def test_stops_of_another_kind_are_refused(stop):
    with pytest.raises(ValueError, match="stop takes token ids and texts"):
        MODEL.generate(PROMPT, 1, stop=stop)


def test_a_stop_as_long_as_a_book_costs_no_more_than_the_text():
    row = Transcript(lambda ids: "ab" * len(ids), ["b" * 10**6, "abac"])
    assert "".join([*(row.push(token) for token in range(50)), row.flush()]) == "ab" * 50


@pytest.mark.parametrize("prompts", [[1.0], [[1], 2], [None], [[1], "a"]])
def test_prompts_of_another_kind_are_refused(prompts):
    with pytest.raises(ValueError, match="prompt|tokens"):
        MODEL.generate(prompts, 1)
