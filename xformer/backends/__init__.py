"""What one array library does differently, one file a library, each at most forty lines.

A file defines some of the verbs of `xformer.ops` and of the two ways between NumPy and the library; what it leaves out
is portable. `NAMESPACES` is the only list of the libraries: the error messages, `xformer doctor`, the tests and the
benchmarks read it.
"""

import functools
import importlib
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np
from array_api_compat import array_namespace


@dataclass(frozen=True)
class Library:
    """Where a library's Array API namespace is, and how to install it."""

    module: str
    install: str


NAMESPACES = {
    "numpy": Library("array_api_compat.numpy", "numpy"),
    "jax": Library("jax.numpy", "jax"),
    "torch": Library("array_api_compat.torch", "torch"),
    "cupy": Library("array_api_compat.cupy", "cupy-cuda12x"),
    "array_api_strict": Library("array_api_strict", "array-api-strict"),
}


def find(namespace: str | ModuleType) -> ModuleType:
    """The Array API module named `namespace` (a key of NAMESPACES), or `namespace` itself when it is a module already."""
    if isinstance(namespace, ModuleType):
        return namespace
    if not isinstance(namespace, str):
        raise ValueError(f"namespace must be a name or an Array API module, got {namespace!r}; known: {', '.join(NAMESPACES)}")
    library = NAMESPACES.get(namespace)
    if library is None:
        raise ValueError(f"unknown namespace {namespace!r}; known: {', '.join(NAMESPACES)}")
    try:
        return importlib.import_module(library.module)
    except ImportError as error:
        raise ImportError(f"namespace {namespace!r} needs `pip install {library.install}` ({error})") from error


def library_of(xp: ModuleType) -> str:
    """The library behind an Array API module: 'numpy' for both numpy and array_api_compat.numpy."""
    return xp.__name__.removeprefix("array_api_compat.").split(".")[0]


def verb(xp: ModuleType, name: str) -> Any:
    """What `name` is for the namespace `xp`: its own, else its backend file's, else None."""
    own = getattr(xp, name, None)
    return own if own is not None else getattr(_file(xp), name, None)


def from_numpy(xp: ModuleType, array: np.ndarray, device: Any = None) -> Any:
    """`array`, which may be read-only or mapped from a file, as an array of `xp` on `device`; in fp32 where `xp` lacks its dtype."""
    if verb(xp, array.dtype.name) is None:
        array = array.astype(np.float32)
    native = getattr(_file(xp), "from_numpy", None)
    return native(array, device) if native else xp.asarray(array, device=device)


def to_numpy(x: Any) -> np.ndarray:
    """An array of any namespace as a NumPy array, waiting for the device to finish it."""
    native = getattr(_file(array_namespace(x)), "to_numpy", None)
    return native(x) if native else np.asarray(x)


def devices(xp: ModuleType) -> dict[str, Any]:
    """The devices of `xp` that can compute, by name, the default one first: "cpu", "cpu:0", "cuda:1", "tpu:0"."""
    native = getattr(_file(xp), "devices", None)
    return native() if native else {str(device): device for device in xp.__array_namespace_info__().devices()}


def find_device(xp: ModuleType, name: Any) -> Any:
    """The device called `name`; "cuda" is the first of its kind. Raises ValueError naming the devices there are.

    None, and a device of the library itself, stay what they are.
    """
    if name is None or not isinstance(name, str | int):
        return name
    found = devices(xp)
    for candidate, device in found.items():
        if name in (candidate, candidate.split(":")[0]):
            return device
    raise ValueError(f"{library_of(xp)} has no device {name!r}; found: {', '.join(found) or 'none'}")


@functools.cache
def _file(xp: ModuleType) -> ModuleType | None:
    """The backend file of a library, or None where everything is portable."""
    module = f"{__name__}.{library_of(xp)}"
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name != module:
            raise
        return None
