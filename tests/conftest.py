import importlib.util

import pytest

from xformer import backends
from xformer.precision import PRECISIONS

N = [n for n in ("numpy", "jax", "array_api_strict", "torch") if importlib.util.find_spec(n)]


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
