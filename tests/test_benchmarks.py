"""What the benchmark decides and shows; nothing here is timed."""

import io
import json

import pytest
from rich.console import Console

from benchmarks import measure, report, workloads
from benchmarks.report import Row


class Clock:
    """A clock that only moves when a call says so."""

    def __init__(self):
        self.now = 0.0
        self.log = []

    def __call__(self):
        return self.now

    def call(self, name, *seconds):
        """A callable that takes `seconds` in turn, the last of them for ever."""
        left = list(seconds)

        def run():
            self.log.append(name)
            self.now += left.pop(0) if len(left) > 1 else left[0]

        return run


def test_calls_are_timed_in_turn_and_the_first_is_apart():
    clock = Clock()
    a, b = measure.in_turn([clock.call("a", 5, 1), clock.call("b", 2, 2)], 4, clock)
    assert (a.first, a.median, a.compile) == (5, 1, 4)
    assert (len(a.samples), len(b.samples)) == (4, 3)
    assert "".join(clock.log[4:]) == "abababa"


def test_a_call_over_the_budget_is_skipped_with_the_figure_and_the_others_go_on():
    clock = Clock()
    slow, fast = measure.in_turn([clock.call("a", 10, 10), clock.call("b", 1, 1)], 4, clock)
    assert slow.skipped == "skipped: predicted 30 s, budget 4 s"
    assert slow.samples == []
    assert len(fast.samples) == 4


def test_a_call_that_hangs_in_its_first_run_is_not_run_again():
    clock = Clock()
    (timing,) = measure.in_turn([clock.call("a", 100, 1)], 4, clock)
    assert timing.skipped == "skipped: the first call took 100 s, budget 4 s"
    assert clock.log == ["a"]


def test_a_failure_is_told_and_the_others_go_on():
    clock = Clock()

    def broken():
        raise MemoryError("no room\nat all")

    failed, fine = measure.in_turn([broken, clock.call("b", 1)], 4, clock)
    assert failed.skipped == "failed: MemoryError: no room"
    assert len(fine.samples) == 4


def test_operations_of_bert_base_are_those_of_the_paper_count():
    """BERT-base at 8 x 128: 12 layers of 12 d^2 weights and two attention contractions, 178 GFLOP."""
    work = workloads.Workload(workloads.preset("bert-base"), "encode", 8, 128)
    assert work.operations == 12 * 1024 * (2 * 12 * 768**2 + 4 * 128 * 768)
    assert round(work.operations / 1e9) == 179
    assert work.tokens == 1024


def test_decoding_counts_the_output_layer_for_each_token_and_prefill_once():
    decode, prefill = (workloads.Workload(workloads.preset("gpt2"), kind, 2, 128) for kind in ("decode", "prefill"))
    head = 2 * 768 * 50257
    assert prefill.operations - 2 * head == 12 * 256 * (24 * 768**2 + 4 * 128 * 768)
    assert decode.tokens == 2 * workloads.NEW
    assert decode.operations > decode.tokens * (head + 12 * 24 * 768**2)


def rows():
    full = Row("w", "int8", "jax", [0.5, 0.4], 0.45, 1000.0, 2e9, 0.5, 1.25, 0.03, 1.5, 0.25)
    return [full, Row("w", "int8", "numpy", skipped="skipped: predicted 30 s, budget 4 s")]


def test_tables_show_figures_and_reasons():
    console = Console(width=80, record=True, file=io.StringIO())
    report.show("title", rows(), console)
    text = console.export_text()
    for figure in ("450.0", "400.0", "1,000", "50%", "1.25", "3e-02", "numpy: skipped: predicted 30 s, budget 4 s"):
        assert figure in text


def test_results_are_stored_with_every_sample_and_read_again(tmp_path):
    result = report.collected("Benchmark: cpu", rows(), {"cupy": "not installed"})
    data, text = report.store(tmp_path / "new", "bench-cpu", result)
    again = json.loads(data.read_text())
    assert again["rows"][0]["samples"] == [0.5, 0.4]
    assert again["versions"]["numpy"]
    assert report.markdown(again) == text.read_text()
    assert "- left out: cupy: not installed" in text.read_text()
    assert "| int8 | jax | 450.0 | 400.0 |" in text.read_text()


@pytest.mark.parametrize("arguments", [["--hardware", "npu"], ["--precision", "fp8"]])
def test_unknown_choices_are_refused(arguments):
    from typer.testing import CliRunner

    from benchmarks.__main__ import app

    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 2
    assert "known:" in result.output


def test_missing_hardware_is_told_and_may_be_a_failure():
    from typer.testing import CliRunner

    from benchmarks.__main__ import app

    told = CliRunner().invoke(app, ["--hardware", "tpu"])
    assert (told.exit_code, "nothing to measure on tpu" in told.output) == (0, True)
    assert CliRunner().invoke(app, ["--hardware", "tpu", "--require-hardware"]).exit_code == 1
