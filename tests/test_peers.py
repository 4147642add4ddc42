"""What the comparison with other products decides and shows, without those products; nothing here is timed."""

import contextlib
import io
import sys
import types
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import typer
from rich.console import Console
from typer.testing import CliRunner

import xformer
from benchmarks import apart, measure, ragged, report, summary, workloads
from benchmarks.__main__ import SLOW
from benchmarks.measure import Timing
from benchmarks.peers import libraries, limits, remote, rows, run, weights, worker
from benchmarks.peers.__main__ import app, selected
from benchmarks.peers.libraries import LIBRARIES, Library, Way
from benchmarks.peers.loaded import judged
from benchmarks.peers.points import Point, points
from benchmarks.peers.remote import PeerError, Remote
from benchmarks.peers.rows import Row
from xformer import params
from xformer.precision import PRECISIONS

ROOT = Path(__file__).parent.parent
ENCODE = Point("bert-tiny", "encode", 2, 16, (16, 5))
PREFILL, DECODE = (Point("gpt2-tiny", kind, 2, 16) for kind in ("prefill", "decode"))
ABSENT = Library("nowhere", ("no_such_package", "numpy", "nor_this"), libraries.ALL, libraries.WIDE, {"int8": "it has no int8"})


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    return tmp_path_factory.mktemp("models")


@pytest.fixture(autouse=True)
def swiftly(monkeypatch):
    """No pauses for the threads of others, and workers start where `benchmarks` is."""
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(remote, "PAUSE", 0.0)
    monkeypatch.setattr(apart, "PAUSE", 0.0)


@contextlib.contextmanager
def loaded(point, models):
    """NumPy's model for a point in a process of its own."""
    source = weights.source(models, point.model)
    with contextlib.closing(Remote(source)) as other:
        other.load("ours", Way("numpy", libraries.ROLES[point.kind], "fp32"), source)
        yield other


def answering(*answers):
    """A process that gives these answers, then ends."""
    lines = "\n".join(f"sys.stdin.readline(); print({answer!r}, flush=True)" for answer in answers)
    return Remote(Path("source"), [sys.executable, "-c", f"import sys\nprint('{{}}', flush=True)\n{lines}\nsys.exit('no more memory')"])


# ------------------------------------------------------------------------------------------------------------------ workers
def test_an_encoder_is_run_elsewhere_and_compared_where_tokens_are_real(models, tmp_path):
    with loaded(ENCODE, models) as other:
        call = other.call(ENCODE)
        assert (call.probe, call.apart, call.compiles) == (None, None, True)
        assert call.time("run", None)[0] > 0
        other.refer(ENCODE, tmp_path / "made.npz")
        with np.load(tmp_path / "made.npz") as made:
            states = made["states"]
        whole = xformer.load(other.source)(ENCODE.ids, ENCODE.mask)
        np.testing.assert_allclose(states, whole[ENCODE.mask], rtol=0, atol=1e-5)
        np.savez(tmp_path / "half.npz", states=states / 2)
        assert other.judge(tmp_path / "made.npz") == {"error": pytest.approx(0, abs=1e-6), "agreement": None}
        assert other.judge(tmp_path / "half.npz") == {"error": pytest.approx(1), "agreement": None}


def test_a_decoder_is_compared_by_what_was_timed_last(models, tmp_path):
    with loaded(DECODE, models) as other:
        for point in (PREFILL, DECODE):
            other.refer(point, tmp_path / point.kind)
        with np.load(tmp_path / "decode") as made:
            ids, logits = made["ids"], made["logits"]
        model = xformer.load(other.source)
        assert ids.tolist() == model.generate(DECODE.ids, workloads.NEW, stop=())
        np.testing.assert_allclose(logits, model(DECODE.ids)[:, -1], rtol=0, atol=1e-5)
        call = other.call(DECODE)
        assert all(call.time(part, None)[0] > 0 for part in ("probe", "apart", "run"))
        assert other.judge(tmp_path / "decode") == {"error": 0, "agreement": 1}
        other.call(PREFILL).time("run", None)
        assert other.judge(tmp_path / "decode") == {"error": 0, "agreement": 1}  # its one token is the first of those
        ids[:, 0] += 1
        np.savez(tmp_path / "other.npz", ids=ids, logits=logits)
        assert other.judge(tmp_path / "other.npz") == {"error": 0, "agreement": 0}


def test_a_process_that_ended_fails_one_point_and_starts_again_for_the_next(models):
    with loaded(PREFILL, models) as other:
        call = other.call(PREFILL)
        other.worker.kill()
        (timing,) = measure.in_turn([call], 5)
        assert timing.skipped.startswith("failed: the process ended: ")
        assert other.call(PREFILL).time("run", None)[0] > 0


def test_what_a_worker_cannot_load_is_told_in_its_words(models, tmp_path):
    with contextlib.closing(Remote(tmp_path)) as other, pytest.raises(PeerError) as caught:
        other.load("ours", Way("numpy", "encoder", "fp32"), tmp_path)
    assert caught.value.row.startswith("failed: ")
    assert str(tmp_path) in caught.value.row


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        ('{"failed": "NotImplementedError: no bf16 on this CPU"}', "no bf16 on this CPU"),
        ('{"failed": "ValueError: NotImplementedError: x"}', "failed: ValueError: NotImplementedError: x"),
        ("", "failed: the process ended: no more memory"),
    ],
)
def test_what_a_library_does_not_offer_is_no_failure(answer, text):
    with contextlib.closing(answering(*filter(None, [answer]))) as other, pytest.raises(PeerError) as caught:
        other.load("ours", Way("numpy", "encoder", "fp32"), Path("folder"))
    assert caught.value.row == text
    assert measure.failure(caught.value) == text  # where it is found out only while it is timed


def test_a_peer_that_hangs_is_given_up(monkeypatch):
    monkeypatch.setattr(remote, "PATIENCE", 0.5)
    hanging = Remote(Path("source"), [sys.executable, "-c", "import time; print('{}', flush=True); time.sleep(60)"])
    with pytest.raises(PeerError, match="over the budget of 0 s"):
        hanging.refer(ENCODE, Path("reference"))
    assert hanging.worker.process is None


def test_files_are_converted_once_and_whole(monkeypatch, tmp_path):
    fails = iter([True, False])

    def convert(role, source, folder):
        (folder / "one").mkdir()  # which an earlier one may have left
        if next(fails):
            raise MemoryError

    monkeypatch.setitem(sys.modules, "benchmarks.peers.converting", types.SimpleNamespace(convert=convert))
    with pytest.raises(MemoryError):
        worker.Worker().convert("converting", "encoder", "source", str(tmp_path / "made"))
    assert not (tmp_path / "made").exists()
    worker.Worker().convert("converting", "encoder", "source", str(tmp_path / "made"))
    assert [path.name for path in tmp_path.rglob("*")] == ["made", "one"]
    answering().convert("converting", "encoder", tmp_path / "made")  # nobody is asked


def test_every_worker_has_the_same_threads_and_asks_nobody_for_models():
    told = remote.environment()
    assert len({told[name] for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")}) == 1
    assert told["HF_HUB_OFFLINE"] == "1"
    assert [told[name] for name in SLOW] == [None, None]


# -------------------------------------------------------------------------------------------------- what is run, and by whom
def test_padding_is_after_the_real_tokens_and_has_id_0():
    assert ENCODE.mask.sum(1).tolist() == [16, 5]
    assert ENCODE.mask[1, :5].all()
    assert (ENCODE.ids != 0).tolist() == ENCODE.mask.tolist()
    assert (ENCODE.ids[0] == ENCODE.workload.ids()[0]).all()
    whole = replace(ENCODE, lengths=())
    assert whole.mask.all()
    assert whole.mask.shape == whole.ids.shape == (2, 16)
    assert (whole.name, ENCODE.name) == ("bert-tiny encode 2x16", "bert-tiny encode 2x16 ragged")


def test_every_point_has_a_name_of_its_own_and_its_model_can_take_it():
    full = points("full")
    assert len({point.name for point in full}) == len(full)
    assert set(points("quick")) < set(points("usual")) < set(full)
    assert [point.model for point in full] == sorted(point.model for point in full)  # a model is loaded once
    assert (len(ragged.LENGTHS), max(ragged.LENGTHS)) == (8, 128)
    for point in full:
        new = workloads.NEW if point.kind == "decode" else 0
        assert point.length + new <= point.workload.subject.config.positions


def test_every_library_has_a_module_and_a_way_or_a_reason():
    for name, library in LIBRARIES.items():
        assert find_spec(f"benchmarks.peers.{library.module}"), name
        for role in ("encoder", "decoder"):
            for precision in libraries.PRECISIONS:
                assert list(libraries.ways([name], role, precision))


def test_a_way_that_cannot_be_tried_says_why(monkeypatch):
    monkeypatch.setitem(LIBRARIES, "absent", ABSENT)
    (way,) = libraries.ways(["absent"], "decoder", "fp32")
    assert (way.name, way.skipped) == ("absent", "not installed: no_such_package, nor_this")
    (way,) = libraries.ways(["absent"], "decoder", "int8")  # what it would not do is told even where it is not installed
    assert way.skipped == "it has no int8"
    (way,) = libraries.ways(["llama.cpp"], "encoder", "fp32")
    assert way.skipped == LIBRARIES["llama.cpp"].reasons["encoder"]


def test_each_variant_of_an_installed_library_is_a_way(monkeypatch):
    two = Library("ours", ("numpy",), {"int8": ("static", "dynamic")}, {})
    monkeypatch.setitem(LIBRARIES, "two", two)
    found = list(libraries.ways(["two", "xformer jax"], "encoder", "int8"))
    assert [(way.name, way.skipped) for way in found] == [("two static", ""), ("two dynamic", ""), ("xformer jax", "")]
    assert [way.ours for way in found] == [False, False, True]


def test_weights_are_the_same_every_time_and_no_bias_is_zero(models, tmp_path):
    once, again = (xformer.load(weights.source(folder, "gpt2-tiny")).params for folder in (models, tmp_path))
    for (path, leaf), other in zip(params.leaves(once).items(), params.leaves(again).values(), strict=True):
        np.testing.assert_array_equal(leaf, other)
        assert np.all(leaf != 0) or leaf.ndim > 1, path


# ------------------------------------------------------------------------------------------------ shares of the machine's limits
PEAKS = {"operations": 2e9, "bytes": 1e6}


@pytest.mark.parametrize(("precision", "size"), [("fp32", 4), ("bf16", 2), ("int8", 1)])
def test_work_is_counted_as_the_models_arrays_have_it(precision, size):
    assert ENCODE.workload.operations == 2 * 32 * 2 * (4 * 64 * 64 + 2 * 64 * 256) + 2 * 2 * 2 * 2 * 16 * 16 * 64
    model = xformer.init("bert-tiny", precision=precision)
    held = {path: leaf for path, leaf in params.items(model.params) if not path.startswith(("embedding", "pooler"))}
    matrices = sum(leaf.size for path, leaf in held.items() if path.endswith((".weight", ".weight.values")) and leaf.ndim == 2)
    assert matrices == 2 * (4 * 64 * 64 + 2 * 64 * 256)
    assert workloads.weights(model.config, PRECISIONS[precision]) == sum(leaf.nbytes for leaf in held.values())
    rest = sum(leaf.nbytes for leaf in held.values()) - size * matrices
    assert 0 < rest < 4 * 64 * 200  # vectors, and scales of a row each


def test_an_encoder_reaches_a_share_of_operations_and_a_decode_of_bytes():
    assert limits.reached(ENCODE, "int8", 0.5, PEAKS) == ENCODE.workload.operations / 1e9
    assert limits.reached(PREFILL, "fp32", 0.5, PEAKS) == PREFILL.workload.operations / 1e9
    table, layer = 512 * 64, 12 * 64 * 64 + 13 * 64
    assert limits.reached(DECODE, "fp32", 63.0, PEAKS) == pytest.approx(4 * (table + 2 * layer + 2 * 64) / 1e6)  # once for both rows
    assert limits.reached(ENCODE, "fp32", 0.5, None) is None


def test_peaks_that_cannot_be_measured_are_left_out_with_the_reason(monkeypatch):
    lines = iter(['{"operations": 3e9, "bytes": 2e6}', '{"failed": "ValueError: no"}'])
    monkeypatch.setattr(limits, "Remote", lambda source: answering(next(lines)))
    monkeypatch.setitem(LIBRARIES, "xformer tvm", replace(LIBRARIES["xformer tvm"], packages=("numpy",)))
    found = limits.measured(["fp32", "bf16"])
    assert found == ({"fp32": {"operations": 3e9, "bytes": 2e6}}, {"peak in bf16": "failed: ValueError: no"})
    monkeypatch.setitem(LIBRARIES, "xformer tvm", replace(LIBRARIES["xformer tvm"], packages=("no_such_package",)))
    assert limits.measured(["fp32"]) == ({}, {"peak in fp32": "not installed: no_such_package"})


def test_the_best_of_ours_is_told_for_large_batches_and_for_decoding():
    found = [
        *(row(way, 1.0, workload="m encode 8x128", reached=share) for way, share in (("xformer tvm", 0.5), ("xformer jax", 0.75))),
        row("openvino", 1.0, workload="m encode 8x128", reached=0.99),
        row("xformer jax", 1.0, workload="m encode 8x128", precision="int8", reached=0.254),
        row("xformer tvm", 1.0, workload="m encode 8x128 ragged", reached=0.9),
        row("xformer tvm", 1.0, workload="m decode 1x128", reached=0.875),
        row("xformer tvm", 1.0, workload="m decode 8x128"),
    ]
    assert rows.summary(found)[2:] == [
        "m encode 8x128: ours reach 75% in fp32, 25% in int8 of the fastest contraction of this machine",
        "m decode 1x128: ours reach 88% in fp32 of the bandwidth of this machine",
    ]


# --------------------------------------------------------------------------------------------------------- rows and verdicts
def row(way, *samples, precision="fp32", workload="w", **figures):
    library = way if way in LIBRARIES else way.split(" ")[0]
    return Row(workload, precision, library, way, list(samples), **{"skipped": "" if samples else "why not"} | figures)


@pytest.mark.parametrize(
    ("ratio", "verdict"),
    [(None, "undecided"), (1.04, "won"), (1.02, "tied"), (1.0, "tied"), (1 / 1.02, "tied"), (1 / 1.04, "lost")],
)
def test_a_cell_within_three_percent_is_tied_either_way(ratio, verdict):
    assert rows.verdict(ratio) == verdict


def test_the_best_is_the_fastest_of_the_others_that_has_figures():
    found = [row("xformer tvm", 1.0), row("xformer jax", 2.0), row("onnxruntime", 5.0), row("openvino"), row("ctranslate2", 3.0, 9.0, 3.0)]
    assert rows.best(found) is found[-1]  # by the median
    assert rows.best(found[:2]) is None


def test_only_the_same_cell_is_compared_turn_by_turn():
    ours = row("xformer tvm", 1.0, 2.0, 4.0)
    others = [row("openvino", 2.0, 4.0, 4.0), row("llama.cpp", 0.1, precision="int8"), row("ctranslate2", 0.1, workload="v")]
    assert rows.ratio(ours, [ours, *others]) == 2
    assert rows.ratio(ours, [ours, *others[1:]]) is None
    assert rows.ratio(row("xformer tvm"), others) is None


def test_cells_are_counted_for_each_of_our_frontends():
    found = [
        *(row("xformer tvm", 1.0), row("xformer jax", 2.02), row("openvino", 2.0), row("onnxruntime", 4.0)),
        *(row(name, 1.0, precision="int8") for name in ("xformer tvm", "llama.cpp")),
        *(row("xformer tvm", 3.0, workload="v"), row("xformer jax", workload="v"), row("openvino", 1.0, workload="v")),
    ]
    assert rows.summary(found) == [
        "xformer tvm: 1 won, 1 tied, 1 lost, 0 undecided",
        "xformer jax: 0 won, 1 tied, 0 lost, 1 undecided",
    ]


def test_a_row_holds_what_follows_from_its_samples():
    one, point = row("openvino"), DECODE
    run.fill(one, Timing(1.5, [2.0, 4.0, 3.0]), Timing(None, [1.0, 1.0, 1.0]), 0.5, point)
    assert (one.tokens_per_second, one.ahead, one.compile, one.load, one.skipped) == (2 * 63 / 3, 3, 1.5, 0.5, "")
    run.fill(one, Timing(None, [1.0]), None, 0.5, point)
    assert one.ahead is None
    run.fill(one, Timing(skipped="failed: x"), None, 0.5, point)
    assert (one.samples, one.skipped) == ([], "failed: x")


def test_ids_agree_until_the_first_that_differs():
    logits, reference = np.array([[3.0, 4.5]]), np.array([[3.0, 4.0]])
    ids = np.array([[1, 2, 3, 4], [1, 9, 3, 4]])
    found = judged({"logits": logits, "ids": ids}, {"logits": reference, "ids": np.array([[1, 2, 3, 4, 5], [1, 2, 3, 4, 5]])})
    assert found == {"error": pytest.approx(0.1), "agreement": 5 / 8}
    assert judged({"states": logits}, {"states": reference}) == {"error": pytest.approx(0.1), "agreement": None}


@pytest.mark.parametrize(
    ("error", "skipped"), [(0.1, ""), (0.9, "failed: wrong, its error is 0.9"), (float("nan"), "failed: wrong, its error is nan")]
)
def test_who_computes_something_else_has_no_figure(error, skipped):
    line = f'{{"error": {str(error).replace("nan", "NaN")}, "agreement": null}}'
    one = row("onnxruntime", 1.0)
    with contextlib.closing(answering(line)) as other:
        run.judge(one, other, Path("reference"))
    assert (one.samples, one.skipped) == ([] if skipped else [1.0], skipped)
    assert rows.best([one]) is (None if skipped else one)


def test_who_cannot_be_compared_has_no_figure():
    one = row("onnxruntime", 1.0)
    with contextlib.closing(answering()) as other:
        run.judge(one, other, Path("reference"))
    assert (one.samples, one.skipped) == ([], "failed: the process ended: no more memory")


# ----------------------------------------------------------------------------------------------------------------- the whole
def test_all_ways_of_a_point_are_rows_and_the_processes_end(monkeypatch, models):
    monkeypatch.setitem(LIBRARIES, "absent", ABSENT)
    monkeypatch.setitem(LIBRARIES, "broken", Library("nowhere", ("numpy",), libraries.ALL, libraries.ALL))
    monkeypatch.setitem(LIBRARIES, "numpy", Library("ours", ("numpy",), libraries.ALL, libraries.ALL))
    started = []
    monkeypatch.setattr(run, "Remote", lambda source: started.append(Remote(source)) or started[-1])
    seconds = {"run": 0.25, "probe": 0.1875, "apart": 0.125}  # not the measured ones: another process may disturb those
    monkeypatch.setattr(Remote, "_time", lambda self, part: (self.ask("time", part=part) and seconds[part], None))
    told = []
    names = ["absent", "broken", "numpy", "xformer jax"]
    found = dict(run.measured([PREFILL, DECODE], names, ["fp32"], 5.0, models, lambda *now: told.append(now)))
    assert list(found) == [PREFILL, DECODE]
    for point, new in found.items():
        absent, broken, *ran = new
        assert [(one.workload, one.way) for one in new] == [(point.name, name) for name in names]
        assert absent.skipped == "not installed: no_such_package, nor_this"
        assert broken.skipped == "failed: ModuleNotFoundError: No module named 'benchmarks.peers.nowhere'"
        for one in ran:
            assert (one.skipped, one.agreement, set(one.samples)) == ("", 1, {0.25 if point is PREFILL else 0.125})
            assert one.error < 1e-5
        assert ran[0].ahead is None  # without our first frontend
    assert sum(share for _, share in told) == pytest.approx(PREFILL.workload.effort + DECODE.workload.effort)
    assert len(started) == 4
    assert all(other.worker.process is None for other in started)


def test_references_are_kept_and_those_that_are_missing_made(models, tmp_path):
    source = weights.source(tmp_path, "bert-tiny")
    paths = run._references([ENCODE], source)
    before = paths[ENCODE].stat().st_mtime_ns
    longer = replace(ENCODE, length=20, lengths=())
    again = run._references([ENCODE, longer], source)
    assert again[ENCODE].stat().st_mtime_ns == before
    with np.load(again[longer]) as made:
        assert made["states"].shape == (40, 64)
    assert sorted(path.name for path in source.parent.iterdir()) == sorted(["source", *(path.name for path in again.values())])


def figures():
    full = row(
        "onnxruntime", 1.1, 1.2, tokens_per_second=2333.3, ahead=10.25, reached=0.876, error=3e-2, agreement=1.0, compile=117.6, load=5.3
    )
    return [replace(full, way="onnxruntime dynamic per channel"), row("xformer tvm", 0.1, tokens_per_second=9.0), row("openvino")]


def test_a_table_fits_a_terminal():
    console = Console(width=80, record=True, file=io.StringIO())
    report.show("title", figures(), console)
    text = console.export_text()
    assert "…" not in text
    for figure in ("onnxruntime dynamic per channel", "1150.0", "9%", "2333", "10.25", "88%", "3e-02", "100%", "117.6"):
        assert figure in text
    assert "openvino fp32: why not" in text


def test_results_are_stored_and_read_again_and_summed_up(tmp_path):
    where = {"machine": {"CPU": "a CPU"}, "run": {"measured": "today"}, "versions": {"numpy": "2.4"}}
    where["peaks"] = {"fp32": {"operations": 2.26e11, "bytes": 3.5e10}}
    result = report.collected("t", figures(), {}, where, "peers")
    data, text = report.store(tmp_path, "peers", result)
    again = report.read(data)
    assert report.rows_of(again) == figures()
    assert report.markdown(again) == text.read_text()
    assert "| openvino | fp32 |  |  |  |  |  |  |  |  |  |  | why not |" in text.read_text()
    assert "| xformer tvm | fp32 | 100.0 | 100.0 |  | 9 |  |  |  |" in text.read_text()  # nothing reached, as nothing was measured
    assert "- peak in fp32: 2.26e+11 operations a second" in text.read_text()
    assert summary.table(again).splitlines()[2] == "| w | onnxruntime dynamic per channel | 1150.0 ms (10.25) |"
    (merged,) = report.merged([again, again | {"peaks": {"int8": PEAKS}}])
    assert merged["rows"] == again["rows"]
    assert merged["peaks"] == {**where["peaks"], "int8": PEAKS}


# --------------------------------------------------------------------------------------------------------- command line
def test_points_are_selected_by_parts_of_their_names():
    every = points("usual")
    assert selected(every, None) == every
    assert [point.name for point in selected(every, ["1x512", "prefill 1x"])] == ["bert-base encode 1x512", "gpt2 prefill 1x128"]
    with pytest.raises(typer.BadParameter) as caught:
        selected(points("quick"), ["bert", "llama", "t5"])
    assert caught.value.message == "'llama', 't5'; known: bert-base encode 1x128, gpt2 decode 1x128"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--precision", "int32"], "'int32'; known: fp32, bf16, int8"),
        (["--library", "xformer jax"], "'xformer jax'; known: torch eager, torch.compile"),  # which is always there
        (["--workload", "llama", "--quick"], "'llama'; known: bert-base encode 1x128"),
        (["--quick", "--full"], "--quick and --full exclude each other"),
    ],
)
def test_unknown_choices_are_refused_with_the_known_ones(arguments, told):
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 2
    assert told in " ".join(result.output.replace("│", " ").split())


@pytest.mark.parametrize("fails", [False, True])
def test_a_run_writes_its_results_and_fails_where_a_way_did(tmp_path, monkeypatch, fails):
    def measured(wanted, names, precisions, *_):
        assert (names, precisions) == (["xformer tvm", "xformer jax", "openvino"], ["fp32", "int8"])
        for point in wanted:
            yield point, [replace(one, workload=point.name) for one in figures()[1:]]
        if fails:
            yield wanted[0], [row("openvino", skipped="failed: ValueError: x")]

    monkeypatch.setattr(run, "measured", measured)
    monkeypatch.setattr(limits, "measured", lambda precisions: ({"int8": PEAKS}, {"peak in fp32": "failed: x"}))
    result = CliRunner().invoke(app, ["--quick", "--library", "openvino", "--output", str(tmp_path)])
    assert result.exit_code == fails
    assert "xformer tvm: 0 won, 0 tied, 0 lost, 2 undecided" in result.output
    stored = report.read(tmp_path / "peers.json")
    assert len(stored["rows"]) == 4 + fails
    assert (stored["peaks"], stored["left_out"]) == ({"int8": PEAKS}, {"peak in fp32": "failed: x"})
    assert [row["reached"] is None for row in stored["rows"][:4]] == [
        row["precision"] == "fp32" or bool(row["skipped"]) for row in stored["rows"][:4]
    ]
