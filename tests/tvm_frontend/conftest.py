import numpy as np
import pytest

from xformer.frontends.tvm import target
from xformer.frontends.tvm.building import build
from xformer.frontends.tvm.tracing import trace
from xformer.params import Spec


@pytest.fixture(scope="session")
def machine():
    return target.machine()


@pytest.fixture
def run(machine):
    """A function on NumPy arrays through its compiled program, for their shapes."""

    def compiled(function, *arrays):
        specs = tuple(Spec(array.shape, str(array.dtype)) for array in map(np.asarray, arrays))
        return build(function, specs, machine)(*arrays)

    return compiled


@pytest.fixture
def kernels(machine):
    """How many kernels of each rule a function on NumPy arrays becomes."""

    def counted(function, *arrays):
        specs = tuple(Spec(array.shape, str(array.dtype)) for array in arrays)
        return sorted(trace(function, specs, machine).rules)

    return counted
