"""What the namespace says of itself."""

from typing import Any

from xformer.frontends.tvm import dtypes


class Info:
    """The standard's `__array_namespace_info__`: one device, and the dtypes that TVM computes with."""

    def capabilities(self) -> dict[str, Any]:
        """Boolean indexing and shapes that depend on values: both, but not while a function is traced."""
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": None}

    def default_device(self) -> str:
        """The CPU."""
        return "cpu"

    def devices(self) -> list[str]:
        """The CPU."""
        return ["cpu"]

    def default_dtypes(self, *, device: Any = None) -> dict[str, str]:
        """The dtype of Python numbers, by kind."""
        return dict(dtypes.DEFAULTS)

    def dtypes(self, *, device: Any = None, kind: str | tuple | None = None) -> dict[str, str]:
        """All dtypes of the standard that there are, or those of a kind; 16-bit floats are not among the standard's."""
        return {name: name for name in dtypes.ALL if name not in dtypes.HALF and (kind is None or dtypes.isdtype(name, kind))}


def __array_namespace_info__() -> Info:
    """The standard's inspection of a namespace."""
    return Info()
