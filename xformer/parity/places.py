"""Where a model can run: each installed namespace, and JAX under jit as well."""

from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from xformer import backends, params

PLACES = (*backends.NAMESPACES, "jax-jit")


@dataclass(frozen=True)
class Place:
    """A namespace, and how functions of arrays are called there."""

    name: str
    xp: ModuleType
    transform: Callable[[Callable], Callable] = lambda function: function

    def moved(self, tree: Any) -> Any:
        """A tree of NumPy arrays as arrays of this place."""
        return params.map(lambda _, leaf: backends.from_numpy(self.xp, leaf), tree)


def places(names: list[str] | None = None) -> list[Place]:
    """The places called `names`, or all but NumPy that are installed. Raises ValueError or ImportError for one that is not there."""
    found = []
    for name in names or [name for name in PLACES if name != "numpy"]:
        try:
            found.append(_place(name))
        except ImportError:
            if names:
                raise
    return found


def _place(name: str) -> Place:
    if name not in PLACES:
        raise ValueError(f"unknown namespace {name!r}; known: {', '.join(PLACES)}")
    if name != "jax-jit":
        return Place(name, backends.find(name))
    xp = backends.find("jax")
    import jax

    import xformer.frontends.jax  # noqa: F401 - makes parameter trees known to JAX

    return Place(name, xp, jax.jit)
