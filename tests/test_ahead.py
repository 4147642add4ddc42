"""Programs for hardware that is not here: what is counted, what is read from them, and that no compiler can hold the table up."""

import glob
import json
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from typer.testing import CliRunner

import xformer
from benchmarks import report, summary, workloads
from benchmarks.ahead import __main__ as command
from benchmarks.ahead import chips, count, pool, worker
from benchmarks.ahead.rows import Row
from benchmarks.workloads import Workload
from xformer.config import PRESETS
from xformer.precision import PRECISIONS

ROOT = Path(__file__).parent.parent
WORKLOADS = [
    Workload(workloads.preset(f"{name}-tiny"), kind, 2, 16) for name, kind in (("bert", "encode"), ("gpt2", "prefill"), ("gpt2", "decode"))
]
LETTERS = {"fp32": "f32", "bf16": "bf16", "int8": "s8", "int32": "s32"}


# ----------------------------------------------------------------------------------------------------------------- counting
@pytest.mark.parametrize("work", WORKLOADS, ids=lambda work: work.kind)
@pytest.mark.parametrize("precision", PRECISIONS)
def test_the_traced_program_contracts_what_the_workload_says(work, precision):
    operations = count.work(work, PRECISIONS[precision]).operations
    assert operations[LETTERS[precision]] == work.operations
    rotations = sum(operations.values()) - work.operations
    assert (rotations > 0) == (precision in ("int8", "int32"))  # the orthogonal matrix, in fp32


@pytest.mark.parametrize("work", WORKLOADS, ids=lambda work: work.kind)
def test_devices_share_the_layers_and_hold_the_rest_whole(work):
    alone, shared = (count.work(work, PRECISIONS["fp32"], devices).operations["f32"] for devices in (1, 4))
    config = work.subject.config
    head = {"encode": 0, "prefill": work.batch, "decode": work.tokens}[work.kind] * 2 * config.width * config.vocab_size
    assert shared == head + (alone - head) / 4


def test_traffic_is_every_weight_once_a_pass_and_the_cache_once_a_step():
    encode, _, decode = (count.work(work, PRECISIONS["fp32"]).bytes for work in WORKLOADS)
    bert, gpt2 = PRESETS["bert-tiny"], PRESETS["gpt2-tiny"]
    layer = 12 * bert.width**2 + 13 * bert.width
    assert encode == 4 * (bert.layers * layer + 2 * 16 * bert.width)
    cache = gpt2.layers * 2 * 2 * (16 + workloads.NEW) * gpt2.width
    weights = gpt2.layers * layer + 2 * gpt2.width + gpt2.vocab_size * gpt2.width
    assert decode == 4 * (workloads.NEW - 1) * (weights + cache + 2 * gpt2.vocab_size)
    narrow = count.work(WORKLOADS[0], PRECISIONS["int8"]).bytes
    assert 0.25 * encode < narrow < 0.4 * encode


def test_the_estimate_is_the_longer_of_arithmetic_and_traffic():
    chip = chips.Chip("c", "tpu", "tpu", {}, {"bf16": 2e12, "f32": 5e11}, 1e9, "source")
    assert count.seconds(count.Work({"bf16": 4e12, "f32": 1e12}, 1e9), chip) == 4
    assert count.seconds(count.Work({"bf16": 4e12, "s32": 1e15}, 9e9), chip) == 9


def test_every_chip_has_a_peak_of_the_floating_precisions_and_a_source():
    for chip in chips.CHIPS.values():
        assert {"f32", "bf16"} <= set(chip.peaks)
        assert chip.peaks["f32"] < chip.peaks["bf16"]
        assert chip.source
    assert chips.CHIPS["v5e"].peaks["s8"] == 393e12


# ------------------------------------------------------------------------------------------------ reading compiled programs
def test_operand_types_are_read_where_the_contraction_is():
    text = """
    %fused (p: f32[8,64]) -> s32[8,16] {
      %p.1 = f32[8,64]{1,0:T(8,128)} parameter(0)
      %narrow = s8[8,64]{1,0:T(8,128)(4,1)} convert(%p.1)
      %weight.3 = s8[16,64]{1,0} parameter(1)
      ROOT %convolution.7 = s32[8,16]{1,0:T(8,128)} convolution(%narrow, %weight.3), dim_labels=bf_oi->bf, metadata={op_name="dot(x)"}
    }
    %a = bf16[8,64]{1,0} parameter(0)
    %b = bf16[16,64]{1,0} parameter(1)
    %dot.1 = f32[8,16]{1,0} dot(bf16[8,64]{1,0} %a, bf16[16,64]{1,0} %b), lhs_contracting_dims={1}
    %gemm = (f32[8,16]{1,0}, s8[1024]{0}) custom-call(%p.1, %b), custom_call_target="__cublas$gemm"
    %other = f32[8,16]{1,0} custom-call(%p.1, %b), custom_call_target="TopK"
    """
    assert worker.operands(text) == {"s8 x s8 -> s32": 1, "bf16 x bf16 -> f32": 1, "f32 x bf16 -> f32": 1}


def test_a_compiled_program_tells_its_operands():
    import jax
    import jax.numpy as jnp

    shape = jax.ShapeDtypeStruct((96, 96), jnp.float32)
    text = jax.jit(lambda a, b: xformer.ops.contract(a, b, jnp.float32)).lower(shape, shape).compile().as_text()
    assert worker.operands(text) == {"f32 x f32 -> f32": 1}


# ------------------------------------------------------------------------------------------------------ workers and watchdog
FAKE = """
import json, sys, time
print("{}", flush=True)
for line in sys.stdin:
    job = json.loads(line)
    if job["kind"] == "hangs":
        time.sleep(60)
    if job["kind"] == "crashes":
        sys.exit("out of memory")
    print(json.dumps({"kind": job["kind"]}), flush=True)
"""


def fake(script=FAKE):
    return pool.Worker({}, [sys.executable, "-c", textwrap.dedent(script)])


def test_a_cell_that_hangs_or_crashes_is_reported_and_the_others_go_on():
    jobs = [{"kind": kind} for kind in ("fine", "hangs", "crashes", "fine")]
    answers = [answer for _, answer in pool.run(jobs, [fake()], budget=2, limit=60)]
    assert answers == [
        {"kind": "fine"},
        {"failed": "over the budget of 2 s"},
        {"failed": "the process ended: out of memory"},
        {"kind": "fine"},
    ]


def test_no_cell_is_begun_after_the_limit():
    jobs = [{"kind": "fine"}] * 3
    assert [answer for _, answer in pool.run(jobs, [fake(), fake()], 2, limit=0)] == [{"failed": "not begun within 0 s"}] * 3


def test_a_reader_that_stops_leaves_no_process_behind():
    workers = [fake(), fake()]
    answers = pool.run([{"kind": "fine"}, *[{"kind": "hangs"}] * 4], workers, 60, 60)
    next(answers)
    processes = [worker.process for worker in workers if worker.process]
    answers.close()
    assert processes
    assert all(process.poll() is not None for process in processes)


def test_a_worker_that_cannot_start_is_a_reason():
    (answer,) = (answer for _, answer in pool.run([{"kind": "fine"}], [fake("raise ImportError('no libtpu')")], 5, 60))
    assert answer == {"failed": "the process ended: ImportError: no libtpu"}


# -------------------------------------------------------------------------------------------------------------------- report
def answer(job, **changes):
    made = {"compile": 12.5, "operands": {"s8 x s8 -> s32": 97}, "memory": {"arguments": 80_000_000, "temporary": 4_000_000}}
    made |= {"collectives": {"all-reduce": 24}, "operations": {"s8": 2.2e10, "f32": 1e9}, "bytes": 8.5e7, "estimate": 1.04e-4}
    return made | changes


def test_rows_are_stored_shown_and_merged_as_those_that_were_measured(tmp_path):
    cells = command.wanted([chips.CHIPS["v5e"]], ["int8", "int32"])
    rows = [command.row(cell, answer(cell)) for cell in cells]
    rows[6].skipped = "over the budget of 9 s"
    where = {"machine": {"CPU": "this"}, "run": {}, "versions": {}}
    result = report.collected("t", rows, {}, where, "compiled")
    data, text = report.store(tmp_path, "ahead", result)
    again = report.read(data)
    assert report.markdown(again) == text.read_text()
    assert [Row(**row) for row in again["rows"]] == rows
    assert "| v5e | 1 | int8 | 12.5 | 84 | 24 all-reduce | 23.0 | 85 | 0.104 | 97 s8 x s8 -> s32 |" in text.read_text()
    assert "s8 393 TOP/s, f32 33 TOP/s, 819 GB/s (https://cloud.google.com/tpu/docs/v5e)" in text.read_text()
    assert "| v5e | 1 | int32 |  |  |  |  |  |  |  |  | over the budget of 9 s |" in text.read_text()
    (merged,) = report.merged([again, again])
    assert merged["rows"] == again["rows"]


def test_all_cells_are_wanted_once_and_those_of_one_device_come_first_and_int32_last():
    names = ["v4", "v5e", "v5p", "v6e", "tpu7x"]
    cells = command.wanted([chips.CHIPS[name] for name in names], list(PRECISIONS))
    assert len({json.dumps(cell) for cell in cells}) == len(cells) == 5 * 4 * 3 * 2
    assert [cell["precision"] for cell in cells[90:]] == ["int32"] * 30
    assert [cell["devices"] for cell in cells] == [1] * 45 + [4] * 45 + [1] * 15 + [4] * 15


@pytest.mark.parametrize("fails", [False, True])
def test_the_command_reports_every_cell_and_fails_where_none_was_compiled(tmp_path, monkeypatch, fails):
    class Compiler:
        def __init__(self, environment):
            assert environment["JAX_PLATFORMS"] == "cpu"

        def run(self, job, budget):
            return {"failed": "no libtpu"} if fails or job["precision"] == "int32" else answer(job)

        def kill(self):
            pass

        stop = kill

    monkeypatch.setattr(pool, "Worker", Compiler)
    result = CliRunner().invoke(command.app, ["--quick", "--output", str(tmp_path)])
    assert result.exit_code == fails
    assert "[12 of 12]" in result.output
    stored = report.read(tmp_path / "ahead-tpu.json")
    assert len(stored["rows"]) == 12
    assert sum(bool(row["skipped"]) for row in stored["rows"]) == (12 if fails else 3)
    assert "gpt2 decode 1x32" in result.output


def test_a_summary_has_a_column_a_chip():
    stored = report.read(Path(__file__).parent.parent / "benchmarks" / "results" / "ahead-tpu.json")
    lines = summary.table(stored).splitlines()
    assert lines[0] == "| workload | precision | devices | v4 | v5e | v5p | v6e | tpu7x |"
    first = stored["rows"][0]
    assert (first["chip"], first["devices"]) == ("v4", 1)
    assert lines[2].startswith(f"| {first['workload']} | {first['precision']} | 1 | ESTIMATE {1e3 * first['estimate']:.3f} ms | ")


@pytest.mark.parametrize("arguments", [["--hardware", "npu"], ["--precision", "fp8"], ["--chip", "h100"], ["--devices", "3"]])
def test_unknown_choices_are_refused_with_the_known_ones(arguments):
    result = CliRunner().invoke(command.app, arguments)
    assert result.exit_code == 2
    assert "known:" in result.output


@pytest.mark.skipif(bool(glob.glob("/dev/accel[0-9]*")), reason="there is a TPU on this machine")
@pytest.mark.parametrize("hardware", ["gpu", "tpu"])
def test_a_session_that_requires_hardware_fails_without_it(hardware, tmp_path):
    environment = {"PATH": str(tmp_path), "HOME": str(tmp_path)}  # no nvidia-smi
    arguments = [sys.executable, "-m", "nox", "-f", str(ROOT / "noxfile.py"), "--envdir", str(tmp_path), "-s", f"bench-{hardware}"]
    done = subprocess.run([*arguments, "--", "--require-hardware"], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "on this machine" in done.stderr
