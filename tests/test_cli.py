"""The command line: what each verb prints and writes, how it ends, and what it leaves alone when it fails."""

import json
import os
import signal
import subprocess
import sys

import numpy as np
import pytest
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from typer.testing import CliRunner

import xformer
from xformer.cli import exchange, terminal
from xformer.cli.commands import app

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "hello", "world", "##s", "a", "b", "c"]
TEXTS = ["hello world", "a b c", "hello"]
COMMAND = [sys.executable, "-m", "xformer.cli"]
# A job in the background is born deaf to Ctrl-C, and a fork beside JAX's threads is not allowed: so the child itself asks to hear.
HEEDING = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); import xformer.cli.__main__ as cli; cli.main()"


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    """The folder of a tiny BERT with a WordPiece tokenizer."""
    inner = Tokenizer(models.WordPiece({word: index for index, word in enumerate(WORDS)}, unk_token="[UNK]"))
    inner.normalizer = normalizers.BertNormalizer()
    inner.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    inner.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    return _save("bert-tiny", inner, tmp_path_factory.mktemp("encoder"))


@pytest.fixture(scope="module")
def decoder(tmp_path_factory):
    """The folder of a tiny GPT-2 with a tokenizer of bytes, and a word for each of its other ids."""
    vocabulary = {byte: index for index, byte in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    inner = Tokenizer(models.BPE({**vocabulary, **{f"w{index}": index for index in range(256, 512)}}, []))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    return _save("gpt2-tiny", inner, tmp_path_factory.mktemp("decoder"))


def _save(preset, tokenizer, folder):
    xformer.init(preset, seed=3).save(folder)
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder


def run(*arguments, code=0, stdin=None):
    """Run the command in this process; its standard output."""
    result = CliRunner().invoke(app, [str(argument) for argument in arguments], input=stdin)
    assert result.exit_code == code, (result.output, result.exception)
    return result.stdout


def fail(*arguments, stdin=None):
    """Run a command that must fail as users see it; its message."""
    result = CliRunner().invoke(app, [str(argument) for argument in arguments], input=stdin)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1
    return result.stderr


def spawn(*arguments, **options):
    """Run the program in a process of its own."""
    return subprocess.run([*COMMAND, *map(str, arguments)], capture_output=True, text=True, check=False, timeout=120, **options)


# ------------------------------------------------------------------------------------------------------------- encoders
def test_json_holds_the_vectors_that_the_library_gives(encoder):
    found = json.loads(run("run", encoder, *TEXTS, "--json"))
    vectors = xformer.load(encoder).embed(TEXTS)
    assert (found["namespace"], found["precision"], found["texts"]) == ("numpy", "fp32", TEXTS)
    assert np.array_equal(np.array(found["vectors"], np.float32), vectors)


@pytest.mark.parametrize("suffix", [".npy", ".npz", ".json"])
def test_each_format_holds_the_same_vectors(encoder, tmp_path, suffix):
    path = tmp_path / f"out{suffix}"
    assert run("run", encoder, *TEXTS, "--normalize", "--batch-size", 2, "--output", path) == ""
    vectors = xformer.load(encoder).embed(TEXTS, batch_size=2, normalize=True)
    if suffix == ".npy":
        found = {"vectors": np.load(path), "texts": TEXTS}
    elif suffix == ".json":
        found = json.loads(path.read_text())
    else:
        with np.load(path) as file:
            found = dict(file)
    assert np.array_equal(np.asarray(found["vectors"], np.float32), vectors)
    assert list(found["texts"]) == TEXTS
    assert os.listdir(tmp_path) == [path.name]


def test_namespace_precision_and_device_reach_the_library(encoder):
    pytest.importorskip("jax", reason="a second namespace to choose")
    found = json.loads(run("run", encoder, "hello", "--json", "--namespace", "jax", "--precision", "INT8", "--device", "cpu"))
    assert (found["namespace"], found["precision"]) == ("jax", "int8")
    wanted = xformer.load(encoder, "jax", "int8").embed(["hello"])
    np.testing.assert_allclose(found["vectors"], wanted, rtol=1e-6, atol=1e-6)


def test_several_texts_are_shown_as_cosines(encoder):
    lines = run("run", encoder, *TEXTS).splitlines()
    vectors = xformer.load(encoder).embed(TEXTS, normalize=True)
    rows = [line.split() for line in lines if line.split() and line.split()[0] in "123" and "." in line]
    assert [row[-3:] for row in rows] == [[f"{cosine:.3f}" for cosine in row] for row in vectors @ vectors.T]
    assert "hello world" in lines[3]


def test_a_table_of_many_texts_is_cut_to_the_width_and_says_so(encoder):
    shown = run("run", encoder, *["hello"] * 40)
    assert "of 40 texts" in shown
    assert max(map(len, shown.splitlines())) <= 80


def test_one_text_is_shown_as_its_first_numbers_and_norm(encoder):
    vector = xformer.load(encoder).embed("hello")[0]
    first, second = run("run", encoder, "hello").splitlines()
    assert first == f"64 numbers, norm {np.linalg.norm(vector):.4f}"
    assert second.split()[:8] == [f"{number:+.4f}" for number in vector[:8]]


def test_a_prepared_folder_gives_the_same_vectors(encoder, tmp_path):
    printed = run("prepare", encoder, tmp_path / "small", "--precision", "int8")
    assert "int8" in printed
    found = json.loads(run("run", tmp_path / "small", *TEXTS, "--json"))
    assert found["precision"] == "int8"
    assert np.array_equal(np.array(found["vectors"], np.float32), xformer.load(encoder, precision="int8").embed(TEXTS))
    assert "prepared for int8; fp32 was asked for" in fail("run", tmp_path / "small", "a", "--precision", "fp32")
    assert "would replace the original" in fail("prepare", encoder, encoder, "--precision", "int8")


# ------------------------------------------------------------------------------------------------------ where texts come from
@pytest.mark.parametrize(
    ("content", "texts"),
    [
        (b"hello world\na b c\n", ["hello world", "a b c"]),
        (b"\xef\xbb\xbfhello\r\na\r\n", ["hello", "a"]),
        (b"a\n\nb", ["a", "", "b"]),  # vector i belongs to line i
        ("a\u2028b\x0bc".encode(), ["a\u2028b\x0bc"]),
    ],
)
def test_texts_are_the_lines_of_a_file_or_of_standard_input(encoder, tmp_path, content, texts):
    (tmp_path / "in.txt").write_bytes(content)
    assert json.loads(run("run", encoder, "--json", "--file", tmp_path / "in.txt"))["texts"] == texts
    assert json.loads(run("run", encoder, "--json", stdin=content))["texts"] == texts
    assert json.loads(run("run", encoder, "--json", "--file", "-", stdin=content))["texts"] == texts


def test_texts_that_cannot_be_read(encoder, tmp_path):
    (tmp_path / "in.txt").write_bytes(b"good\n\xff\n")
    assert "in.txt is not UTF-8: invalid start byte at byte 5" in fail("run", encoder, "--file", tmp_path / "in.txt")
    assert "standard input is empty" in fail("run", encoder, stdin="")
    assert "one of them" in fail("run", encoder, "hello", "--file", tmp_path / "in.txt")
    assert f"{tmp_path / 'no.txt'}: No such file" in fail("run", encoder, "--file", tmp_path / "no.txt")


# ------------------------------------------------------------------------------------------------------------- decoders
DRAWING = {"max_new_tokens": 12, "temperature": 1.5, "top_k": 40, "top_p": 0.9, "seed": 7}
OPTIONS = [str(part) for name, value in DRAWING.items() for part in (f"--{name.replace('_', '-')}", value)]


def test_one_prompt_is_streamed(decoder):
    assert run("run", decoder, "hello", *OPTIONS) == xformer.load(decoder).generate("hello", **DRAWING) + "\n"


def test_the_pieces_are_printed_as_they_come(capsys):
    seen = []

    def pieces():
        for piece in ("one", " two"):
            yield piece
            seen.append(capsys.readouterr().out)

    terminal.stream("prompt", pieces())
    assert seen == ["one", " two"]


def test_a_terminal_is_not_commanded_by_what_a_model_writes():
    assert terminal.printable("a\x1b[2J\r\x07\u0085b\n\tü\u3000✓") == "a\ufffd[2J\ufffd\ufffd\ufffdb\n\tü\u3000✓"


@pytest.mark.parametrize("size", [1, 2, 32])
def test_several_prompts_go_in_batches(decoder, tmp_path, size):
    model, prompts = xformer.load(decoder), ["hello", "a b c", "xyz"]
    wanted = [text for start in range(0, 3, size) for text in model.generate(prompts[start : start + size], **DRAWING)]
    assert run("run", decoder, *prompts, *OPTIONS, "--batch-size", size) == "".join(f"{text}\n" for text in wanted)
    run("run", decoder, *prompts, *OPTIONS, "--batch-size", size, "--output", tmp_path / "out.txt")
    assert (tmp_path / "out.txt").read_text(encoding="utf-8") == "".join(f"{text}\n" for text in wanted)
    run("run", decoder, *prompts, *OPTIONS, "--batch-size", size, "--output", tmp_path / "out.json")
    found = json.loads((tmp_path / "out.json").read_text(encoding="utf-8"))
    assert (found["prompts"], found["texts"]) == (prompts, wanted)


def test_stop_texts_do_not_replace_the_models_own_end(decoder):
    model = xformer.load(decoder)
    whole = model.generate("hello", max_new_tokens=12)
    stop = whole[4:6]
    assert run("run", decoder, "hello", "--max-new-tokens", 12, "--stop", stop) == whole[: whole.find(stop)] + "\n"


def test_the_models_own_end_still_ends_a_text_with_stops(decoder):
    model = xformer.load(decoder)
    seed = next(seed for seed in range(100) if 511 in model.generate([5, 6, 7], 100, temperature=50.0, seed=seed))
    prompt = model.tokenizer.decode([5, 6, 7])
    options = ["--max-new-tokens", 100, "--temperature", 50, "--seed", seed]
    wanted = model.generate(prompt, 100, temperature=50.0, seed=seed)
    assert wanted != model.generate(prompt, 100, temperature=50.0, seed=seed, stop=())
    assert json.loads(run("run", decoder, prompt, *options, "--stop", "never written", "--json"))["texts"] == [wanted]


# --------------------------------------------------------------------------------------------------------------- failures
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--precision", "int4"], "unknown precision 'int4'; known: fp32, bf16, int8, int32"),
        (["--namespace", "tensorflow"], "unknown namespace 'tensorflow'; known: numpy"),
        (["--device", "cuda:3"], "numpy has no device 'cuda:3'; found: cpu"),
        (["--batch-size", "0"], "batch_size must be a positive integer, got 0"),
        (["--temperature", "1"], "--temperature does not go with bert, an encoder"),
        (["--stop", "x"], "--stop does not go with bert, an encoder"),
        (["--output", "nowhere/x.npy"], "nowhere: no such folder"),
        (["--output", "x.txt"], "x.txt: vectors are written as .npy, .npz, .json"),
    ],
)
def test_bad_options_of_an_encoder_end_in_one_line(encoder, arguments, message):
    assert message in fail("run", encoder, "hello", *arguments)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--max-new-tokens", "0"], "max_new_tokens must be a positive integer, got 0"),
        (["--max-new-tokens", "124"], "a prompt of 5 tokens and 124 new: the model has 128 positions"),
        (["--temperature", "-1"], "temperature must be a number >= 0, got -1.0"),
        (["--top-k", "0"], "top_k must be an integer >= 1, got 0"),
        (["--top-p", "2"], "top_p must be in (0, 1], got 2.0"),
        (["--seed", "-1"], "seed must be an integer in [0, 2^64), got -1"),
        (["--normalize"], "--normalize does not go with gpt2, a decoder"),
        (["--output", "x.npy"], "x.npy: continuations are written as .txt, .json"),
    ],
)
def test_bad_options_of_a_decoder_end_in_one_line(decoder, arguments, message):
    assert message in fail("run", decoder, "hello", *arguments)


def test_a_folder_that_is_no_model(tmp_path):
    assert f"{tmp_path / 'config.json'}: no such file" in fail("run", tmp_path, "hello")


@pytest.mark.parametrize(("before", "behind"), [(["--debug"], []), ([], ["--debug"])])
def test_debug_shows_where_an_error_came_from(tmp_path, before, behind):
    failed = spawn(*before, "run", tmp_path, "hello", *behind)
    assert failed.returncode == 1
    assert "Traceback" in failed.stderr
    assert "FileNotFoundError" in failed.stderr


@pytest.mark.parametrize("moment", ["while it computes", "while it writes"])
def test_a_failed_run_leaves_the_old_file_whole(encoder, tmp_path, monkeypatch, moment):
    path = tmp_path / "out.npy"
    path.write_bytes(b"old")

    def refuse(*arguments, **options):
        if moment == "while it writes":
            arguments[0].write(b"half")
        raise OSError(28, "No space left on device", str(path))

    monkeypatch.setattr(*((xformer.Model, "embed") if moment == "while it computes" else (np, "save")), refuse)
    assert fail("run", encoder, "hello", "--output", path) == f"error: {path}: No space left on device\n"
    assert (path.read_bytes(), os.listdir(tmp_path)) == (b"old", ["out.npy"])


# ------------------------------------------------------------------------------------------------------ as a process of its own
def test_version():
    assert run("--version") == f"xformer {xformer.__version__}\n"
    found = spawn("--version")
    assert (found.returncode, found.stdout, found.stderr) == (0, f"xformer {xformer.__version__}\n", "")


def test_import_xformer_leaves_the_command_line_alone():
    code = "import sys, xformer; print([name for name in sys.modules if name in ('xformer.cli', 'xformer.cli.commands', 'typer', 'rich')])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


@pytest.mark.parametrize("absent", ["typer", "rich", "packaging"])
def test_what_to_install_when_the_extra_is_missing(absent):
    code = f"import sys; sys.modules['{absent}'] = None; sys.argv = ['xformer', 'doctor']; from xformer.cli import main; main()"
    failed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (failed.returncode, failed.stdout, failed.stderr.count("\n")) == (2, "", 1)
    assert "pip install typer rich packaging" in failed.stderr


def test_standard_output_of_a_pipe_is_json_and_nothing_else(encoder):
    found = spawn("run", encoder, "--json", input="hello\nworld\n")
    assert (found.returncode, found.stderr) == (0, "")  # no progress where nobody looks
    assert json.loads(found.stdout)["texts"] == ["hello", "world"]


def test_an_encoding_without_the_models_letters_is_no_error(decoder):
    found = spawn("run", decoder, "hello", "--max-new-tokens", 40, env={**os.environ, "PYTHONIOENCODING": "ascii"})
    assert (found.returncode, found.stderr) == (0, "")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="a pipe with a name says when the program reads")
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_ctrl_c_and_terminate_end_without_traceback(encoder, tmp_path, number, code):
    os.mkfifo(tmp_path / "pipe")
    command = [sys.executable, "-c", HEEDING, "run", encoder, "--file", tmp_path / "pipe"]
    child = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    with open(tmp_path / "pipe", "w"):  # waits until the child has opened it
        child.send_signal(number)
    _, errors = child.communicate(timeout=60)
    assert child.returncode == code
    assert "Traceback" not in errors


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_a_reader_that_goes_away_is_no_error(encoder, options):
    child = subprocess.Popen([*COMMAND, "run", encoder, *TEXTS, *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    child.stdout.close()
    assert (child.stderr.read(), child.wait(timeout=60)) == ("", 1)
    child.stderr.close()


@pytest.mark.skipif(not hasattr(os, "openpty"), reason="a terminal to look at")
def test_progress_is_shown_on_a_terminal(encoder):
    ours, theirs = os.openpty()
    environment = {**os.environ, "TERM": "xterm"}
    command = [*COMMAND, "run", str(encoder), "--json", *TEXTS]
    child = subprocess.run(command, stdout=subprocess.PIPE, stderr=theirs, text=True, check=True, env=environment)
    os.close(theirs)
    shown = os.read(ours, 1 << 16).decode()
    os.close(ours)
    assert "embedding" in shown
    assert "3/3" in shown
    assert json.loads(child.stdout)["texts"] == TEXTS


def test_numbers_that_json_has_not_are_an_error():
    result = exchange.Vectors("numpy", "fp32", ["a"], np.array([[np.nan]], np.float32))
    with pytest.raises(ValueError, match="not JSON compliant"):
        exchange.to_json(result)
