"""Shape annotations: jaxtyping's where something has already loaded it, free stand-ins otherwise.

`Float[Array, "b t d"]` in a signature documents the shape once. The test suite turns the annotations into checks
(`pytest --jaxtyping-packages=xformer,beartype.beartype`, which imports jaxtyping first); an ordinary import of xformer
neither needs jaxtyping nor pays for it.

Axis letters, the same everywhere: b batch, t tokens that ask, s tokens that are asked (cached ones included),
d model width, h heads, e width of one head, f width of the feed-forward layer, v vocabulary.
"""

import sys
from typing import TYPE_CHECKING, Any

Array = Any

if TYPE_CHECKING or "jaxtyping" in sys.modules:
    from jaxtyping import Bool, Float, Int
else:

    class _Unchecked:
        """Stands in for a jaxtyping type: any subscript means any array."""

        def __class_getitem__(cls, shape):
            return Any

    Bool = Float = Int = _Unchecked

__all__ = ["Array", "Bool", "Float", "Int"]
