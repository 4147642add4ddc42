"""The verbs of `xformer.padding`, of which the standard has none."""

from xformer.frontends.tvm.array import Array
from xformer.frontends.tvm.namespace.manipulation import contiguous
from xformer.frontends.tvm.padding import Pad, Scan, Unpad
from xformer.padding import Places


def places(mask: Array) -> Places | None:
    """The places of real tokens in a mask (b, t) without values; None for one that has them: nothing is compiled for a number of tokens."""
    return Scan(contiguous(mask)).places() if mask.node.symbolic else None


def unpad_tokens(x: Array, found: Places) -> Array:
    """The real tokens of a batch (b, t, d) as the first of b * t rows (1, b * t, d)."""
    node = Unpad(x, found)
    return Array(node, node.logical)


def pad_tokens(x: Array, found: Places) -> Array:
    """The inverse of `unpad_tokens`, with zeros for padding."""
    node = Pad(x, found)
    return Array(node, node.logical)
