"""Operation by operation, each place against NumPy: integers to the bit, the rest within a few units in the last place."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

import xformer
from xformer import blocks, ops, parity
from xformer.cli.commands import app
from xformer.parity import recording, report
from xformer.parity.figures import difference
from xformer.parity.places import PLACES
from xformer.precision import FP32, PRECISIONS

TOKENS = np.random.default_rng(4).integers(0, 500, (2, 9))
MASK = np.array([[1] * 9, [0] * 3 + [1] * 6])
MOST = 24  # ULP of a row's largest number, of one operation alone: sums of a few hundred terms in another order, exp, tanh


@pytest.fixture(params=["bert-tiny", "gpt2-tiny"])
def preset(request):
    return request.param


def test_each_operation_alone_is_numpys(preset, precision, compiled):
    place = "jax-jit" if compiled.compiled else compiled.namespace
    (found,) = parity.compare(xformer.init(preset, 0, precision=precision), TOKENS, MASK, parity.places([place]))
    kinds = {row.name.split(".")[-1].split(" > ")[-1] for row in found.rows}
    assert {"softmax", "query", "contract", "dot"} <= kinds
    for row in found.rows:
        assert row.alone.ulp == 0 if row.alone.integer else row.alone.ulp <= MOST, row
    assert any(row.alone.integer for row in found.rows) == (precision.accumulator == "int32")
    assert found.output.cosine > 0.99999


def test_numpy_is_itself(preset):
    (found,) = parity.compare(xformer.init(preset, 0, precision="int8"), TOKENS, MASK, parity.places(["numpy"]))
    assert (found.parts_at, found.output.absolute, found.effective) == ("", 0.0, "int8, exact")
    assert all(row.whole.equal and row.alone.equal for row in found.rows)


def test_steps_are_in_order_and_named_by_their_parameters():
    model = xformer.init("bert-tiny", 0)
    with recording.recording(model.params) as steps:
        model(TOKENS, MASK)
    names = [step.name for step in steps if " > " not in step.name]
    layer = ["attention.query", "attention.key", "attention.value", "contract", "softmax", "combine", "attention.output"]
    layer += ["attention_norm", "up", "gelu", "down", "ffn_norm"]
    assert names[:4] == ["embedding.token", "embedding.position", "embedding.norm", "layers.0.attention.query"]
    assert names[3:] == [f"layers.{index}.{name}" for index in range(model.config.layers) for name in layer]


def test_a_recorded_step_can_be_run_again_and_functions_are_given_back():
    before = ops.softmax, blocks.embed, FP32.project.__func__
    with recording.recording(None) as steps:
        ops.softmax(np.ones((2, 3), np.float32), None)
        assert ops.softmax is not before[0]
    assert (ops.softmax, blocks.embed, FP32.project.__func__) == before
    assert len(steps) == 1
    np.testing.assert_array_equal(steps[0].function(np.zeros((1, 2), np.float32)), [[0.5, 0.5]])


def test_differences():
    one = np.array([[1.0, 1e-9]], np.float32)
    assert difference(one, one).equal
    off = difference(one + np.array([[0, 2**-23]], np.float32), one)
    assert (off.ulp, off.equal, off.integer) == (pytest.approx(1.0), False, False)
    assert difference(np.array([np.nan]), np.array([1.0])).absolute == np.inf
    assert difference(np.array([np.nan]), np.array([np.nan])).absolute == 0.0
    whole = difference(np.array([3], np.int32), np.array([5], np.int32))
    assert (whole.absolute, whole.integer) == (2.0, True)


@pytest.fixture(scope="module")
def comparisons():
    return [
        found
        for precision in ("fp32", "int8")
        for found in parity.compare(xformer.init("bert-tiny", 0, precision=precision), TOKENS, MASK, parity.places(["numpy"]))
    ]


def test_the_report_has_tables_json_and_a_picture(comparisons, tmp_path):
    paths = report.write(tmp_path, "Parity: tiny", comparisons)
    assert [path.name for path in paths] == ["parity.json", "parity.md", "parity.png"]
    stored = json.loads(paths[0].read_text())
    assert [found["precision"] for found in stored["comparisons"]] == ["fp32", "int8"]
    assert len(stored["comparisons"][0]["rows"]) == len(comparisons[0].rows)
    text = paths[1].read_text()
    assert "| int8 | numpy | int8, exact | nowhere | 0.0e+00 | 0 | 0e+00 | none | 0 | 0 |" in text
    assert "| layers.1 | 0 |" in text
    assert paths[2].read_bytes().startswith(b"\x89PNG")


def test_the_command_says_what_it_cannot_compare_and_where_it_wrote(tmp_path):
    arguments = ["parity", "gpt2-tiny", "--namespace", "array_api_strict", "--output", str(tmp_path / "new")]
    shown = CliRunner().invoke(app, arguments, env={"COLUMNS": "120"})
    assert shown.exit_code == 0, shown.output
    assert "not compared: array_api_strict bf16: array_api_strict has no dtype bfloat16" in shown.output
    assert (tmp_path / "new" / "parity.md").is_file()
    assert [found["precision"] for found in json.loads((tmp_path / "new" / "parity.json").read_text())["comparisons"]] == [
        name for name in PRECISIONS if name != "bf16"
    ]


def test_a_fault_of_integers_is_the_exit_code(monkeypatch):
    wrong = difference(np.array([3], np.int32), np.array([5], np.int32))
    row = parity.comparing.Row("x", wrong, wrong)
    real = difference(np.ones(1, np.float32), np.ones(1, np.float32))
    broken = parity.Comparison("jax", "int8", [row, parity.comparing.Row("y", real, real)], real, "int8, NOT exact")
    monkeypatch.setattr(parity, "compare", lambda *_: [broken])
    shown = CliRunner().invoke(app, ["parity", "bert-tiny", "--namespace", "numpy", "--precision", "int8"])
    assert shown.exit_code == 1


@pytest.mark.parametrize(
    "arguments", [["--namespace", "nmpy"], ["--precision", "fp8"], ["--text", "words"]], ids=["namespace", "precision", "text"]
)
def test_what_cannot_be_compared_is_refused(arguments):
    shown = CliRunner().invoke(app, ["parity", "bert-tiny", *arguments])
    assert shown.exit_code == 2
    assert "error" in shown.output or "error" in shown.stderr


def test_every_namespace_is_a_place():
    assert set(PLACES) == {*xformer.backends.NAMESPACES, "jax-jit"}
