"""Picking by arrays of integers and by masks, and setting elements: both beside the views of slices, which arrays have themselves."""

import math
import operator
from typing import Any

from tvm import tirx

from xformer.frontends.tvm import eager
from xformer.frontends.tvm.array import Array
from xformer.frontends.tvm.dtypes import KINDS
from xformer.frontends.tvm.elements import astype, broadcast_shapes, result_type
from xformer.frontends.tvm.namespace.creation import asarray
from xformer.frontends.tvm.namespace.logic import where
from xformer.frontends.tvm.namespace.manipulation import broadcast_to, reshape
from xformer.frontends.tvm.namespace.picking import from_front, taken, within
from xformer.frontends.tvm.namespace.reductions import cumulative_sum
from xformer.frontends.tvm.namespace.searching import nonzero
from xformer.frontends.tvm.nodes import Indexed


def get(x: Array, key: Any) -> Array:
    """x[key]: a view for slices, integers, None and ...; a copy where an array picks."""
    keys = tuple(_plain(entry) for entry in (key if isinstance(key, tuple) else (key,)))
    if not any(isinstance(entry, Array) for entry in keys):
        return x.sliced(keys)
    if len(keys) == 1 and keys[0].dtype == "bool":
        return _masked(x, keys[0])
    return _picked(x, keys)


def _plain(entry: Any) -> Any:
    """An array of one integer as that integer. Raises IndexError for a truth value, which Python takes for 0 or 1."""
    if isinstance(entry, bool):
        raise IndexError(f"an index is an integer, a slice, None, ... or an array; got {entry}")
    if isinstance(entry, Array) and entry.ndim == 0 and entry.dtype in KINDS["integral"] and entry.node.tensor is not None:
        return int(entry)
    if isinstance(entry, slice):
        return slice(*(None if limit is None else operator.index(limit) for limit in (entry.start, entry.stop, entry.step)))
    return entry


def _masked(x: Array, mask: Array) -> Array:
    """The elements of x where the mask, over its first axes, is True. Both must have values."""
    if mask.shape != x.shape[: mask.ndim]:
        raise IndexError(f"a mask of shape {mask.shape} for an array of shape {x.shape}")
    rest = x.shape[mask.ndim :]
    flat = reshape(x, (math.prod(mask.shape), *rest))
    (places,) = nonzero(reshape(mask, (-1,)))
    return taken(flat, places)


def _picked(x: Array, keys: tuple[Any, ...]) -> Array:
    """Integer arrays and integers pick together, axis by axis; slices beside them are taken first."""
    if any(entry is None for entry in keys) or any(isinstance(entry, Array) and entry.dtype not in KINDS["integral"] for entry in keys):
        raise IndexError(f"arrays of integers go with integers, slices and ...; got {keys}")
    whole = _filled(keys, x.ndim)
    if len(whole) > x.ndim:
        raise IndexError(f"{len(whole)} indices for an array of rank {x.ndim}")
    x = x.sliced(tuple(entry if isinstance(entry, slice) else slice(None) for entry in whole))
    places = [place for place, entry in enumerate(whole) if not isinstance(entry, slice)]
    picking = [whole[place] for place in places]
    indices = [entry if isinstance(entry, Array) else asarray(operator.index(entry), dtype="int64") for entry in picking]
    shape = broadcast_shapes(*(index.shape for index in indices))
    indices = [broadcast_to(within(index, x.shape[place]), shape) for index, place in zip(indices, places, strict=True)]
    together = places == list(range(places[0], places[0] + len(places)))
    first = places[0] if together else 0
    kept = [extent for place, extent in enumerate(x.shape) if place not in places]
    result = (*kept[:first], *shape, *kept[first:])

    def body(index, read):
        picked = index[first : first + len(shape)]
        rest = iter((*index[:first], *index[first + len(shape) :]))
        found = []
        for place in range(x.ndim):
            if place not in places:
                found.append(next(rest))
                continue
            chosen = indices[places.index(place)]
            found.append(from_front(read(chosen, picked), chosen, x.shape[place]))
        return read(x, found)

    return Array(Indexed("pick", body, (x, *indices), result, x.dtype, tuple(places), first), result)


def put(x: Array, key: Any, value: Any) -> None:
    """x[key] = value: `x` becomes an array with those elements; other arrays, views of it too, stay as they are."""
    given = value if isinstance(value, Array | bool | int | float) else asarray(value)
    result_type(x, given)  # of one kind: nothing is cut off
    new = astype(given, x.dtype) if isinstance(given, Array) else asarray(given, dtype=x.dtype)
    keys = tuple(_plain(entry) for entry in (key if isinstance(key, tuple) else (key,)))
    if len(keys) == 1 and isinstance(keys[0], Array) and keys[0].dtype == "bool":
        changed = _with_mask(x, keys[0], new)
    elif any(isinstance(entry, Array) for entry in keys):
        raise IndexError(f"elements are set by slices, integers or a mask; got {keys}")
    else:
        changed = _with_slices(x, keys, new)
    x.node, x.shape, x.strides, x.offset = changed.node, changed.shape, changed.strides, changed.offset


def _with_mask(x, mask, new):
    if mask.shape != x.shape[: mask.ndim]:
        raise IndexError(f"a mask of shape {mask.shape} for an array of shape {x.shape}")
    wide = broadcast_to(reshape(mask, mask.shape + (1,) * (x.ndim - mask.ndim)), x.shape)
    if new.ndim == 0:
        return where(wide, new, x)
    places = cumulative_sum(astype(reshape(mask, (-1,)), "int32"), axis=0, dtype="int64") - 1
    count = int(eager.item(places[-1])) + 1 if places.size else 0
    new = broadcast_to(new, (count, *x.shape[mask.ndim :]))
    if not count:
        return x
    return where(wide, reshape(taken(new, places), x.shape), x)


def _with_slices(x: Array, keys: tuple[Any, ...], new: Array) -> Array:
    """For each element whether the key names it, and which of the new ones it then is."""
    new = broadcast_to(new, x.sliced(keys).shape)
    axes = _axes(keys, x.shape)

    def body(index, read):
        inside, place = tirx.const(True, "bool"), []
        for own, (start, step, count, kept) in zip(index, axes, strict=True):
            apart = own - start if step > 0 else start - own
            inside = tirx.all(inside, apart >= 0, apart < count * abs(step), tirx.floormod(apart, abs(step)) == 0)
            if kept:
                place.append(tirx.max(tirx.min(tirx.floordiv(apart, abs(step)), count - 1), 0))
        places = iter(place)
        full = [0 if entry is None else next(places) for entry in _result_axes(keys, x.ndim)]
        return tirx.Select(inside, read(new, full), read(x, index))

    if not new.size:
        return x
    return Array(Indexed("put", body, (new, x), x.shape, x.dtype, repr(keys)), x.shape)


def _filled(keys, rank):
    taken = sum(entry is not None and entry is not Ellipsis for entry in keys)
    at = next((place for place, entry in enumerate(keys) if entry is Ellipsis), len(keys))
    return (*keys[:at], *(slice(None),) * (rank - taken), *keys[at + 1 :])


def _axes(keys, shape):
    """For each axis: where the key starts, its step, how many it names, and whether the axis is kept."""
    found = []
    for entry, extent in zip((entry for entry in _filled(keys, len(shape)) if entry is not None), shape, strict=True):
        if isinstance(entry, slice):
            start, stop, step = entry.indices(extent)
            found.append((start, step, len(range(start, stop, step)), True))
        else:
            found.append((operator.index(entry) % max(extent, 1), 1, 1, False))
    return found


def _result_axes(keys, rank):
    """The axes of x[key]: None for a new one."""
    return [entry for entry in _filled(keys, rank) if entry is None or isinstance(entry, slice)]
