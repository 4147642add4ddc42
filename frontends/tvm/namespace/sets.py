"""Arrays as sets."""

from collections import namedtuple

from xformer.frontends.tvm import eager
from xformer.frontends.tvm.array import Array
from xformer.frontends.tvm.elements import astype
from xformer.frontends.tvm.namespace.creation import arange
from xformer.frontends.tvm.namespace.logic import equal, not_equal
from xformer.frontends.tvm.namespace.manipulation import concat, expand_dims, reshape
from xformer.frontends.tvm.namespace.picking import taken
from xformer.frontends.tvm.namespace.reductions import any, cumulative_sum
from xformer.frontends.tvm.namespace.searching import argsort, places_of

UniqueAll = namedtuple("UniqueAll", ["values", "indices", "inverse_indices", "counts"])
UniqueCounts = namedtuple("UniqueCounts", ["values", "counts"])
UniqueInverse = namedtuple("UniqueInverse", ["values", "inverse_indices"])


def unique_all(x: Array, /) -> UniqueAll:
    """The distinct elements in order, where each is first, which each element is, and how many of each. NaN is never equal."""
    flat = reshape(x, (-1,))
    if not flat.size:
        none = arange(0, dtype="int64")
        return UniqueAll(flat, none, reshape(none, x.shape), none)
    order = argsort(flat)
    ordered = taken(flat, order)
    starts = concat([equal(arange(1, dtype="int64"), 0), not_equal(ordered[1:], ordered[:-1])])
    places = eager.known(places_of(starts))
    ends = concat([places[1:], arange(flat.size, flat.size + 1, dtype="int64")])
    group = cumulative_sum(astype(starts, "int32"), axis=0, dtype="int64") - 1
    inverse = taken(group, argsort(order))
    return UniqueAll(taken(ordered, places), taken(order, places), reshape(inverse, x.shape), ends - places)


def unique_counts(x: Array, /) -> UniqueCounts:
    """The distinct elements in order, and how many of each."""
    found = unique_all(x)
    return UniqueCounts(found.values, found.counts)


def unique_inverse(x: Array, /) -> UniqueInverse:
    """The distinct elements in order, and which each element is."""
    found = unique_all(x)
    return UniqueInverse(found.values, found.inverse_indices)


def unique_values(x: Array, /) -> Array:
    """The distinct elements in order."""
    return unique_all(x).values


def isin(x1: Array, x2: Array, /, *, invert: bool = False) -> Array:
    """Whether each element of x1 is among those of x2."""
    found = any(equal(expand_dims(x1, -1), reshape(x2, (-1,))), axis=-1)
    return ~found if invert else found
