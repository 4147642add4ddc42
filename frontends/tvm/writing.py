"""Writing rows into a cache in its own memory: the one kernel that TE cannot express, since its result is its argument."""

import functools
import math
from typing import Any

from tvm.script import tirx as T

from xformer.frontends.tvm.array import coordinates, unravel
from xformer.frontends.tvm.nodes import Write


def write_function(node: Write, gpu: bool = False) -> Any:
    """cache[..., position + i, :] = new[..., i, :] for the rows i of `new`; on a GPU by a block for each matrix."""
    cache, new, position = node.operands
    lead, (tokens, width) = cache.shape[:-2], new.shape[-2:]
    groups = math.prod(lead)
    cache_shape, new_shape, position_shape = cache.node.shape, new.node.shape, position.node.shape

    def source(group, token, column):
        index = [*unravel(group, lead), token, column]
        return coordinates([*zip(index, new.shape, new.strides, strict=True)], new.offset, new_shape)

    def target(group, row, column):
        return (*unravel(group, lead), row, column)

    outer = functools.partial(T.thread_binding, thread="blockIdx.x") if gpu else T.serial
    inner = functools.partial(T.thread_binding, thread="threadIdx.x") if gpu else T.serial

    @T.prim_func(s_tir=True)
    def write(cache_handle: T.handle, new_handle: T.handle, position_handle: T.handle):
        C = T.match_buffer(cache_handle, cache_shape, cache.dtype)
        N = T.match_buffer(new_handle, new_shape, new.dtype)
        P = T.match_buffer(position_handle, position_shape, "int32")
        for group in outer(groups):
            for token in T.serial(tokens):
                for column in inner(width):
                    C[target(group, P[0] + token, column)] = N[source(group, token, column)]

    # What is written does not lie in the cache. One function of a module that does not say so costs all others their
    # registers: LLVM code of TVM then stores every accumulator in every step.
    return write.without_attr("global_symbol").with_attr("tirx.noalias", True)
