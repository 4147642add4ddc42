"""Leaving padding out in programs of fixed shapes: real tokens first, their number known while the program runs.

The real tokens of a batch become the first rows of a buffer that has room for all; `live` sees to it that only those are
computed. Padding again is a way of reading: whatever needs the batch reads a row or a zero, and no copy is made.
"""

import functools
from typing import Any

import numpy as np
from tvm import tirx
from tvm.script import tirx as T

from xformer import padding
from xformer.frontends.tvm.array import Array
from xformer.frontends.tvm.elementary import const
from xformer.frontends.tvm.nodes import Indexed, Node


class Scan(Node):
    """One pass over a mask (b, t): the number of real tokens, the extents of its rows, the places and rows of `padding.Places`.

    The extent of a row is the number of places up to its last real token. Everything lies in one buffer of int32.
    """

    def __init__(self, mask: Array):
        batch, length = self.mask_shape = mask.shape
        super().__init__("scan_mask", (mask,), (1, 1 + batch + 2 * batch * length), "int32")

    def places(self) -> padding.Places:
        """Views of what was found."""
        (mask,), (batch, length) = self.operands, self.mask_shape
        whole, size = Array(self, (self.shape[1],)), batch * length
        tokens, rows = whole.view((size,), (1,), 1 + batch), whole.view((batch, length), (length, 1), 1 + batch + size)
        return padding.Places(mask, tokens, rows)

    def of_whole(self) -> np.ndarray:
        """The buffer for a mask without padding."""
        batch, length = self.mask_shape
        every = np.arange(batch * length)
        return np.concatenate([[every.size], np.full(batch, length), every, every])[None, :].astype(np.int32)

    def function(self, gpu: bool = False) -> Any:
        """The kernel, which TE cannot express: what it has counted so far says where it writes."""
        batch, length = self.mask_shape
        first, second, shape = 1 + batch, 1 + batch + batch * length, self.shape
        block, thread = (functools.partial(T.thread_binding, thread=f"{axis}Idx.x") if gpu else T.serial for axis in ("block", "thread"))

        @T.prim_func(s_tir=True)
        def scan(mask_handle: T.handle, found_handle: T.handle):
            M = T.match_buffer(mask_handle, (batch, length), "bool")
            F = T.match_buffer(found_handle, shape, "int32")
            for _ in block(1):
                for _ in thread(1):
                    F[0, 0] = 0
                    for row in T.serial(batch):
                        F[0, 1 + row] = 0
                        for column in T.serial(length):
                            if M[row, column]:
                                F[0, first + F[0, 0]] = row * length + column
                                F[0, second + row * length + column] = F[0, 0]
                                F[0, 0] = F[0, 0] + 1
                                F[0, 1 + row] = column + 1
                            else:
                                F[0, second + row * length + column] = 0
                    for rest in T.serial(batch * length - F[0, 0]):
                        F[0, first + F[0, 0] + rest] = 0

        return scan.without_attr("global_symbol").with_attr("tirx.noalias", True)


class Pad(Indexed):
    """The real tokens x (1, n, d) as a batch (b, t, d), zeros for padding."""

    again = True

    def __init__(self, x: Array, found: padding.Places):
        shape = (*found.mask.shape, x.shape[-1])

        def body(index, read):
            token = read(x, [0, read(found.rows, index[:2]), index[2]])
            return tirx.Select(read(found.mask, index[:2]), token, const(0, x.dtype))

        super().__init__("pad_tokens", body, (x, found.rows, found.mask), shape, x.dtype)


class Unpad(Indexed):
    """The real tokens of a batch x (b, t, d), before rows that mean nothing: (1, b * t, d)."""

    def __init__(self, x: Array, found: padding.Places):
        batch, length, width = x.shape

        def body(index, read):
            token = read(found.tokens, index[1:2])
            return read(x, [token // length, token % length, index[2]])

        super().__init__("unpad_tokens", body, (x, found.tokens), (1, batch * length, width), x.dtype)
