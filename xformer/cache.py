"""A key-value cache of fixed capacity: its shape never changes, so one compiled step serves a whole generation.

Columns fill from the left; a prompt shorter than its batch's longest is padded on the left. `real` says which columns
hold a token that may be attended to, `position` which column comes next.
"""

import dataclasses
from typing import Any

from xformer import ops, params
from xformer.annotations import Array, Bool, Float, Int
from xformer.config import Config
from xformer.params import Spec, node
from xformer.precision import FP32, Precision


@node
class Memory:
    """The keys and values (b, h, s, e) of one layer, as the precision keeps them, and the column where the next ones go."""

    key: Any
    value: Any
    position: Int[Array, ""]

    def write(self, key: Float[Array, "b h t e"], value: Float[Array, "b h t e"], precision: Precision) -> "Memory":
        """With `key` and `value` in the next t columns; the memory it came from may be overwritten."""
        key, value = precision.keep(key, value, self.key.shape[-2])
        return Memory(self._written(self.key, key), self._written(self.value, value), self.position)

    def _written(self, states, new):
        parts = params.leaves(new)
        return params.map(lambda path, leaf: ops.write(leaf, parts[path], self.position), states)


@node
class Cache:
    """What a decoder keeps between calls."""

    keys: tuple
    values: tuple
    real: Bool[Array, "b s"]
    position: Int[Array, ""]

    @property
    def layers(self) -> tuple[Memory, ...]:
        return tuple(Memory(key, value, self.position) for key, value in zip(self.keys, self.values, strict=True))

    @property
    def capacity(self) -> int:
        return self.real.shape[1]

    def admit(self, mask: Bool[Array, "b t"]) -> "Cache":
        """With the columns of `mask` marked as real or padding, before their keys and values are written."""
        xp = ops.namespace(mask)
        column, row = (xp.astype(x, xp.int32)[:, :, None] for x in (self.real, mask))
        real = ops.write(column, row, self.position)[:, :, 0] != 0
        return dataclasses.replace(self, real=real)

    def advance(self, layers: tuple[Memory, ...], tokens: int) -> "Cache":
        """With the layers' new keys and values, `tokens` columns further."""
        keys, values = tuple(layer.key for layer in layers), tuple(layer.value for layer in layers)
        return Cache(keys, values, self.real, self.position + tokens)


def spec(config: Config, batch: int, capacity: int, precision: Precision = FP32) -> Cache:
    """The shapes and dtypes of a cache for `batch` rows of at most `capacity` columns."""
    states = precision.stored(Spec((batch, config.heads, capacity, config.width // config.heads)))
    return Cache((states,) * config.layers, (states,) * config.layers, Spec((batch, capacity), "bool"), Spec((), "int32"))


def empty(xp, config: Config, batch: int, capacity: int, device=None, precision: Precision = FP32) -> Cache:
    """A cache without tokens, for programs of this precision. Raises ValueError when the model has fewer positions."""
    if not 1 <= capacity <= config.positions:
        raise ValueError(f"a cache of {capacity} columns: the model has {config.positions} positions")

    def zeros(path: str, leaf: Spec) -> Any:
        return xp.zeros(leaf.shape, dtype=ops.dtype(xp, leaf.dtype), device=device)

    return params.map(zeros, spec(config, batch, capacity, precision))


def visible(real: Bool[Array, "b s"], position: Int[Array, ""] | int, tokens: int) -> Bool[Array, "b 1 t s"]:
    """Causal visibility: the token at column position + i sees the real columns up to its own."""
    columns = ops.count(real.shape[1], real)
    own = ops.count(tokens, real) + position
    return real[:, None, None, :] & (columns[None, :] <= own[:, None])[None, None, :, :]


def places(real: Bool[Array, "b s"], position: Int[Array, ""] | int, tokens: int) -> Int[Array, "b t"]:
    """The place among its row's real tokens of each token at column position + i; a padding token gets a valid place."""
    xp = ops.namespace(real)
    # Summed as int32: in the mask's own type a row of 200 would wrap.
    place = xp.cumulative_sum(xp.astype(real, xp.int32), axis=1, dtype=xp.int32) - 1
    return xp.clip(xp.take(place, ops.count(tokens, real) + position, axis=1), 0, None)
