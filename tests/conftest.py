import importlib.util

import pytest

from xformer import backends
from xformer.precision import PRECISIONS

TVM = importlib.util.find_spec("tvm") is not None
collect_ignore = [] if TVM else ["tvm_frontend"]
N = [n for n in ("numpy", "jax", "array_api_strict", "torch") if importlib.util.find_spec(n)]


def pytest_report_header():
    return [] if TVM else "tests/tvm_frontend is left out: apache-tvm is not installed (nox -s tests-tvm)"


@pytest.fixture(params=N)
def xp(request):
    return backends.find(request.param)


@pytest.fixture(params=PRECISIONS)
def precision(request):
    p = PRECISIONS[request.param]
    if "xp" in request.fixturenames and p.name == "bf16":
        request.getfixturevalue("bfloat16")
    return p


@pytest.fixture
def bfloat16(request, xp):
    if xp.__name__ == "array_api_strict":
        request.applymarker(pytest.mark.xfail(strict=True, raises=TypeError, reason="array_api_strict has no bfloat16"))
