"""What `xformer doctor` finds: versions against the metadata, libraries tried in child processes, the machine."""

import json
import subprocess
import sys
from importlib import metadata

import numpy as np
import pytest
from typer.testing import CliRunner

import xformer
from xformer import backends, machine
from xformer.cli import commands, doctor, probe
from xformer.precision import FP32, PRECISIONS, Floating

WORKS = {"state": "works", "why": None}
REQUIRED = [
    "numpy>=2.1",
    'tokenizers>=0.21; extra == "text"',
    'xformer[text]; extra == "cli"',
    'jax>=0.7; extra == "jax"',
    'cupy-cuda12x>=14; extra == "cupy"',
    'apache-tvm==0.27.0.post1; extra == "tvm"',
    'apache-tvm-ffi==0.1.14.post1; extra == "tvm"',
]


@pytest.fixture
def installed(monkeypatch):
    """Replaces what is installed by the versions that a test puts into this dictionary."""
    versions: dict[str, str] = {}

    def version(name):
        if name not in versions:
            raise metadata.PackageNotFoundError(name)
        return versions[name]

    monkeypatch.setattr(metadata, "requires", lambda name: REQUIRED)
    monkeypatch.setattr(metadata, "version", version)
    monkeypatch.setattr(metadata, "packages_distributions", lambda: {"cupy": ["cupy-cuda13x"]} if "cupy-cuda13x" in versions else {})
    return versions


def found():
    return {library["module"]: library for library in doctor.libraries()}


# ---------------------------------------------------------------------------------------------------- what is installed
def test_every_requirement_and_every_namespace_is_listed_once(installed):
    assert sorted(found()) == sorted({*backends.NAMESPACES, "tokenizers", "tvm", "tvm_ffi"})
    assert found()["jax"] == {
        "distribution": "jax",
        "module": "jax",
        "install": "xformer[jax]",
        "installed": None,
        "wanted": ">=0.7",
        "fits": None,
    }
    assert (found()["array_api_strict"]["wanted"], found()["array_api_strict"]["install"]) == ("", "array-api-strict")


def test_C47_versions_are_compared_with_the_metadata(installed):
    installed |= {"numpy": "2.0.1", "jax": "0.10.2", "torch": "2.13.0+cpu", "apache-tvm": "0.27.0.post1"}
    fits = {module: library["fits"] for module, library in found().items() if library["installed"]}
    assert fits == {"numpy": False, "jax": True, "torch": True, "tvm": True}


def test_a_module_may_come_in_another_distribution(installed):
    installed["cupy-cuda13x"] = "14.2.0"
    assert found()["cupy"]["distribution"] == "cupy-cuda13x"
    assert (found()["cupy"]["installed"], found()["cupy"]["fits"]) == ("14.2.0", True)


def test_C62_the_wrong_pair_of_tvm_is_named_with_what_it_breaks(installed):
    installed |= {"apache-tvm": "0.27.0.post1", "apache-tvm-ffi": "0.1.15.post2"}
    libraries = [{**library, "imports": WORKS} for library in found().values()]
    (problem,) = doctor.broken(libraries)
    assert problem.startswith("apache-tvm-ffi 0.1.15.post2 is not ==0.1.14.post1: MetaSchedule and Schedule.tensorize crash")
    installed["apache-tvm-ffi"] = "0.1.14.post1"
    assert doctor.broken([{**library, "imports": WORKS} for library in found().values()]) == []


def test_a_source_tree_that_is_not_installed(installed, monkeypatch):
    def requires(name):
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "requires", requires)
    assert sorted(found()) == sorted(backends.NAMESPACES)
    facts = {"environment": {}, "cpu": {"features": {}}, "libraries": list(found().values())}
    assert any("which versions it wants is unknown" in note for note in doctor.notes(facts))


# ----------------------------------------------------------------------------------------------------------- what works
def test_C53_each_installed_namespace_is_tried_in_every_precision(namespace):
    answer = probe.ask(namespace)
    assert answer["imports"] == WORKS
    if not answer["devices"]:
        pytest.skip(f"{namespace} has no device here: {answer['precisions']['fp32']['why']}")
    states = {name: finding["state"] for name, finding in answer["precisions"].items()}
    without = {"bf16": "missing"} if namespace == "array_api_strict" else {}
    assert states == {**dict.fromkeys(PRECISIONS, "works"), **without}


def child(code):
    """A child process that says what a real one would, and then does something else."""
    said = f"print({probe.MARK + json.dumps(['imports', WORKS])!r}); print('noise'); "
    said += f"print({probe.MARK + json.dumps(['devices', ['cpu']])!r}); print({probe.MARK + json.dumps(['fp32', WORKS])!r}, flush=True); "
    return [sys.executable, "-c", said + code]


@pytest.mark.parametrize(
    ("code", "seconds", "why"),
    [
        ("import os, signal; os.kill(os.getpid(), signal.SIGABRT)", 60, "crashed (SIGABRT)"),
        ("import sys; sys.exit(3)", 60, "ended with code 3"),
        ("import time; time.sleep(600)", 2, "took more than 2 s"),
    ],
)
@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_a_child_that_dies_takes_only_what_it_had_not_said(code, seconds, why):
    answer = probe.ask("numpy", seconds, child(code))
    assert (answer["imports"], answer["devices"], answer["precisions"]["fp32"]) == (WORKS, ["cpu"], WORKS)
    assert answer["precisions"]["int8"] == {"state": "broken", "why": why}


def test_a_library_that_does_not_import_says_why(tmp_path, monkeypatch):
    (tmp_path / "torch.py").write_text("raise ImportError('libmissing.so: not found')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    answer = probe.ask("torch")
    assert answer["imports"] == {"state": "broken", "why": "ImportError: libmissing.so: not found"}
    assert answer["precisions"] == dict.fromkeys(PRECISIONS, answer["imports"])


def test_a_wrong_product_is_found():
    class Wrong(Floating):
        def contract(self, a, b):
            return super().contract(a, b) * np.float32(1.1)

    xp = backends.find("numpy")
    probe.contract(xp, FP32)
    with pytest.raises(ArithmeticError, match=r"wrong by 0\.1 of its largest value"):
        probe.contract(xp, Wrong("fp32", "float32", "float32"))


def test_a_namespace_without_a_device_is_missing_and_not_broken(monkeypatch):
    def devices(xp):
        raise RuntimeError("no driver")

    monkeypatch.setattr(backends, "devices", devices)
    answers = dict(probe.probe("numpy"))
    assert answers["devices"] == []
    assert answers["int8"] == {"state": "missing", "why": "no device (RuntimeError: no driver)"}
    library = {"distribution": "numpy", "installed": "2", "fits": True, "imports": WORKS, "precisions": {"int8": answers["int8"]}}
    assert doctor.broken([library]) == []


# ---------------------------------------------------------------------------------------------------------- what is told
@pytest.fixture
def facts(installed, monkeypatch):
    """Facts of an installation in which only jax and numpy are there, tried by nobody."""
    installed |= {"numpy": "2.4.6", "jax": "0.10.2"}
    answer = {"imports": WORKS, "devices": ["cpu"], "precisions": dict.fromkeys(PRECISIONS, WORKS)}
    monkeypatch.setattr(doctor, "ask", lambda module: json.loads(json.dumps(answer)))
    monkeypatch.setenv("OPENBLAS_CORETYPE", "Haswell")
    return answer


def invoke(*arguments):
    result = CliRunner().invoke(commands.app, ["doctor", *arguments])
    return result.exit_code, result.stdout


def test_all_is_well(facts):
    code, shown = invoke()
    assert code == 0
    assert "Nothing that is installed is broken." in shown
    assert "OPENBLAS_CORETYPE=Haswell" in shown
    assert "pip install xformer[tvm]" in shown
    lines = [line.split() for line in shown.splitlines()]
    assert ["numpy", "works", "works", "works", "works", "cpu"] in lines
    assert ["torch", "-", "-", "-", "-", "not", "installed"] in lines


def test_what_is_broken_is_told_and_is_the_exit_code(facts):
    facts["precisions"]["int8"] = {"state": "broken", "why": "crashed (SIGILL)"}
    code, shown = invoke()
    assert code == 1
    assert "broken: numpy 2.4.6 fails in int8: crashed (SIGILL)" in shown
    code, printed = invoke("--json")
    assert code == 1
    assert json.loads(printed)["broken"] == [f"{name} fails in int8: crashed (SIGILL)" for name in ("numpy 2.4.6", "jax 0.10.2")]


def test_a_real_run_prints_json_alone():
    result = subprocess.run([sys.executable, "-m", "xformer.cli", "doctor", "--json"], capture_output=True, text=True, check=False)
    told = json.loads(result.stdout)
    assert (result.returncode, result.stderr) == (1 if told["broken"] else 0, "")
    assert told["xformer"] == xformer.__version__
    numpy = next(library for library in told["libraries"] if library["module"] == "numpy")
    assert numpy["installed"] == np.__version__
    assert {finding["state"] for finding in numpy["precisions"].values()} == {"works"}


# ------------------------------------------------------------------------------------------------------------ the machine
X86 = """
processor\t: 0
model name\t: Some CPU @ 2 GHz
flags\t\t: fpu avx2 avx512f avx512bw avx512_vnni amx_int8

processor\t: 1
flags\t\t: fpu
"""
ARM = "processor\t: 0\nFeatures\t: fp asimd asimddp i8mm\nCPU implementer\t: 0x41\n"
APPLE = """
machdep.cpu.brand_string: Apple M2
hw.optional.arm.FEAT_DotProd: 1
hw.optional.arm.FEAT_BF16: 0
hw.optional.AdvSIMD: 1
"""


@pytest.mark.parametrize(
    ("text", "kind", "there"),
    [
        (X86, "x86_64", {"AVX2", "AVX-512F", "AVX-512BW", "AVX-512 VNNI", "AMX INT8"}),
        (ARM, "aarch64", {"NEON", "NEON dotprod", "NEON i8mm"}),
        (APPLE, "arm64", {"NEON", "NEON dotprod"}),
    ],
)
def test_features(text, kind, there):
    features = machine.features(text, kind)
    assert {name for name, present in features.items() if present} == there
    assert set(features) == set(machine.FEATURES[kind])


def test_features_that_are_not_told_are_unknown_and_not_absent():
    assert machine.features("", "x86_64") is None
    assert machine.features(X86, "riscv64") is None


def test_model():
    assert machine.model(X86) == "Some CPU @ 2 GHz"
    assert machine.model(APPLE) == "Apple M2"
    assert machine.model("")


@pytest.mark.parametrize(
    ("own", "files", "quota"),
    [
        ("0::/a/b", {"a/b/cpu.max": "250000 100000", "a/cpu.max": "max 100000"}, 2.5),
        ("0::/a/b", {"a/b/cpu.max": "max 100000", "a/cpu.max": "50000 100000"}, 0.5),
        ("0::/not/mounted/here", {"cpu.max": "100000 100000"}, 1.0),
        ("0::/", {"cpu.max": "max 100000"}, None),
        ("1:cpu,cpuacct:/a", {"cpu/a/cpu.cfs_quota_us": "150000", "cpu/a/cpu.cfs_period_us": "100000"}, 1.5),
        ("1:cpu,cpuacct:/", {"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, None),
        ("", {}, None),
    ],
)
def test_cores_respect_the_quota_of_each_group_above(tmp_path, own, files, quota):
    cores = machine.cores(*_groups(tmp_path, own, files))
    assert cores["quota"] == quota
    assert 1 <= cores["usable"] <= cores["allowed"] <= cores["logical"]
    assert quota is None or cores["usable"] <= max(1, -(-quota // 1))


@pytest.mark.parametrize(
    ("own", "files", "limit"),
    [
        ("0::/a", {"a/memory.max": "4096", "memory.max": "max"}, 4096),
        ("4:memory:/a", {"memory/a/memory.limit_in_bytes": "8192", "memory/memory.limit_in_bytes": "9223372036854771712"}, 8192),
        ("0::/", {"memory.max": "max"}, None),
    ],
)
def test_memory_respects_the_limit_of_each_group_above(tmp_path, own, files, limit):
    assert machine.memory("hw.memsize: 65536", *_groups(tmp_path, own, files))["limit"] == limit


def _groups(folder, own, files):
    for name, content in files.items():
        (folder / "root" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "root" / name).write_text(content + "\n")
    (folder / "own").write_text(own + "\n" if own else "")
    return folder / "root", folder / "own"
