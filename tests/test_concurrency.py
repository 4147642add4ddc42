"""One model in several threads, and several models in one process, give what each gives alone."""

import numpy as np
from compare import bits, numbers
from threads import THREADS, in_threads

TOKENS = np.random.default_rng(9).integers(0, 61, (THREADS, 3, 11))


def test_one_encoder_serves_many_threads(compiled, precision):
    model = compiled.init("bert-tiny", 0, precision.name)
    together = in_threads(lambda index: numbers(model(TOKENS[index])))
    for index, states in enumerate(together):
        assert (bits(states) == bits(numbers(model(TOKENS[index])))).all()


def test_one_decoder_generates_in_many_threads(compiled):
    model = compiled.init("gpt2-tiny", 0)
    options = [{"temperature": 0.0} if index % 2 else {"temperature": 1.0, "seed": index, "top_k": 20} for index in range(THREADS)]
    together = in_threads(lambda index: model.generate(TOKENS[index], 6, stop=(), **options[index]))
    assert together == [model.generate(TOKENS[index], 6, stop=(), **options[index]) for index in range(THREADS)]


def test_streams_may_be_read_in_turn(compiled):
    model = compiled.init("gpt2-tiny", 0)
    alone = [list(model.stream(TOKENS[index], 5, stop=())) for index in range(2)]
    streams = [model.stream(TOKENS[index], 5, stop=()) for index in range(2)]
    together = [list(pair) for pair in zip(*streams, strict=True)]
    assert together == [list(pair) for pair in zip(*alone, strict=True)]


def test_two_models_in_one_process_keep_apart(compiled):
    one, other = (compiled.init("gpt2-tiny", seed) for seed in (0, 1))
    expected = [numbers(model(TOKENS[0])) for model in (one, other)]
    assert not np.array_equal(*expected)
    together = in_threads(lambda index: numbers((one, other)[index % 2](TOKENS[0])))
    for index, logits in enumerate(together):
        assert (bits(logits) == bits(expected[index % 2])).all()
