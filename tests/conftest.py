"""What every test may ask for: an Array API namespace (`namespace`, `xp`), a way to run a model in one (`runner`), a precision.

Namespaces are those of `xformer.backends.NAMESPACES` that are installed here; the header of a run says which are not, and why.
`--namespace NAME` asks for some of them, or for the Array API module of that name, and fails where one is missing.
Tests that docs/contract.md names have the mark `contract`.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

import xformer
from xformer import backends
from xformer.model import Model
from xformer.precision import PRECISIONS

HERE = Path(__file__).parent
APART = {
    HERE / "oracle": "torch and transformers",
    HERE / "tvm_frontend": "apache-tvm",
    HERE / "onnx_nodes": "onnx",
}  # folders of sessions of their own
CONTRACT = set(re.findall(r"`(\w+\.py::\w+)`", (HERE.parent / "docs" / "contract.md").read_text(encoding="utf-8")))


# ------------------------------------------------------------------------------------------------ which namespaces there are
def pytest_addoption(parser):
    parser.addoption("--namespace", action="append", help="run on this namespace only, or on this module (repeatable)")


def pytest_configure(config):
    config.addinivalue_line("markers", "contract: one of the tests that docs/contract.md names")
    asked = config.getoption("namespace")
    for name in set(asked or ()) - backends.NAMESPACES.keys():
        backends.NAMESPACES[name] = backends.Library(name, name)
    absent = {name: reason for name in asked or backends.NAMESPACES if (reason := why_absent(name))}
    if asked and absent:
        raise pytest.UsageError(f"--namespace: {'; '.join(absent.values())}")
    config.stash[ABSENT] = absent
    config.stash[CHOSEN] = [name for name in asked or backends.NAMESPACES if name not in absent]


ABSENT, CHOSEN = pytest.StashKey[dict](), pytest.StashKey[list]()


def why_absent(name: str) -> str | None:
    """Why tests cannot run on a namespace, or None when they can."""
    try:
        xp = backends.find(name)
    except ImportError as error:
        return str(error)
    if name == "cupy":  # it imports without a device, and every call fails
        try:
            xp.zeros(1)
        except xp.cuda.runtime.CUDARuntimeError as error:
            return f"cupy has no usable device ({error})"
    return None


def pytest_report_header(config):
    lines = [f"namespaces: {', '.join(config.stash[CHOSEN])}"]
    lines += [f"namespace left out: {reason}" for reason in config.stash[ABSENT].values()]
    lines += [f"left out: tests/{folder.name}, which needs {what}" for folder, what in APART.items() if not _asks_for(folder, config)]
    return lines


def pytest_itemcollected(item):
    if f"{item.path.name}::{getattr(item, 'originalname', item.name)}" in CONTRACT:
        item.add_marker("contract")


def pytest_ignore_collect(collection_path, config):
    return True if collection_path in APART and not _asks_for(collection_path, config) else None


def _asks_for(folder, config):
    paths = [(config.invocation_params.dir / argument.split("::")[0]).resolve() for argument in config.args]
    return any(path.is_relative_to(folder) for path in paths)


# -------------------------------------------------------------------------------------------------------- what a test asks for
@dataclass(frozen=True)
class Runner:
    """A namespace, and whether a model's functions are called as they are or compiled."""

    namespace: str
    compiled: bool = False

    def __str__(self):
        return f"{self.namespace}-jit" if self.compiled else self.namespace

    @property
    def xp(self):
        return backends.find(self.namespace)

    @property
    def transform(self) -> Callable[[Callable], Callable]:
        """A model's function, bound to its config and precision, as this runner calls it."""
        if not self.compiled:
            return lambda function: function
        from xformer.frontends import jax

        return jax.jit

    def load(self, folder: Path, precision: str = "fp32") -> Model:
        """The model in `folder`."""
        return self._compiled(xformer.load(folder, self.namespace, precision))

    def init(self, config, seed: int = 0, precision: str = "fp32") -> Model:
        """A model with random weights."""
        return self._compiled(xformer.init(config, seed, self.namespace, precision))

    def _compiled(self, model):
        if not self.compiled:
            return model
        from xformer.frontends import jax

        return jax.compile(model)


def pytest_generate_tests(metafunc):
    """`namespace`: each, by name. `runner`: each, and JAX under jit as well. `compiled`: each once, under jit where there is one."""
    names = metafunc.config.stash[CHOSEN]
    values = {
        "namespace": names,
        "runner": [Runner(name) for name in names] + [Runner("jax", compiled=True)] * ("jax" in names),
        "compiled": [Runner(name, compiled=name == "jax") for name in names],
    }
    for fixture in values.keys() & set(metafunc.fixturenames):
        metafunc.parametrize(fixture, values[fixture], ids=str)


@pytest.fixture
def xp(namespace):
    """The Array API module of `namespace`."""
    return backends.find(namespace)


@pytest.fixture(params=PRECISIONS)
def precision(request):
    """Each precision; one that a test's namespace cannot have is an expected failure."""
    if request.param == "bf16" and {"namespace", "runner", "compiled"} & set(request.fixturenames):
        request.getfixturevalue("bfloat16")
    return PRECISIONS[request.param]


@pytest.fixture
def bfloat16(request):
    """For a test that needs this dtype: an expected failure on namespaces without it."""
    places = [request.getfixturevalue(name) for name in ("namespace", "runner", "compiled") if name in request.fixturenames]
    for name in {getattr(place, "namespace", place) for place in places}:
        if backends.verb(backends.find(name), "bfloat16") is None:
            reason = f"{name} has only the standard's own dtypes: no bfloat16"
            request.applymarker(pytest.mark.xfail(strict=True, raises=TypeError, reason=reason))


# ------------------------------------------------------------------------------------------------------------ figures to show
@pytest.fixture
def figure(record_property):
    """figure("what", 1.2e-3): shown in the summary of the run, and kept in its report."""
    return lambda name, value: record_property("figure", f"{name}: {value:.2e}" if isinstance(value, float) else f"{name}: {value}")


def pytest_terminal_summary(terminalreporter):
    reports = [report for kind in ("passed", "xfailed", "failed") for report in terminalreporter.stats.get(kind, ())]
    lines = [value for report in reports for key, value in report.user_properties if key == "figure"]
    if lines:
        terminalreporter.section("figures")
        for line in sorted(set(lines)):
            terminalreporter.write_line(line)
