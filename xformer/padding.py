"""Leaving padding out: an encoder's work on each token by itself, which is nearly all of it, is done for the real ones alone.

`unpad` puts the real tokens of a batch next to each other, as one row; `pad` puts them back where they stood, with zeros
between them. Only attention needs to know which sequence a token belongs to. A library whose programs have fixed shapes
gains nothing from it: there `places` is None, and both functions give back what they are given.
"""

from xformer import backends, ops
from xformer.annotations import Array, Bool, Float, Int
from xformer.params import node


@node
class Places:
    """Where the real tokens of a batch stand.

    `tokens` has the place of each real token among the b * t of the batch, in order; `rows` the place of each of the
    batch's tokens among the real ones, and any such place for padding, which is False in `mask`.
    """

    mask: Bool[Array, "b t"]
    tokens: Int[Array, " n"]
    rows: Int[Array, "b t"]


def places(mask: Bool[Array, "b t"]) -> Places | None:
    """The places of the tokens that `mask` calls real; None where leaving out the others gains nothing."""
    native = backends.verb(ops.namespace(mask), "places")
    return native(mask) if native else of_values(mask)


def of_values(mask: Bool[Array, "b t"]) -> Places | None:
    """`places` for a library that reads values while it runs; None too where no token is padding, or all are."""
    xp = ops.namespace(mask)
    flat = xp.reshape(mask, (-1,))
    (tokens,) = xp.nonzero(flat)
    if tokens.shape[0] in (0, flat.shape[0]):
        return None
    seen = xp.cumulative_sum(xp.astype(flat, xp.int32), dtype=xp.int32)
    return Places(mask, tokens, xp.reshape(xp.clip(seen - 1, 0, None), mask.shape))


def unpad(x: Float[Array, "b t d"], found: Places | None) -> Float[Array, "_ n d"]:
    """The real tokens of `x`, as a batch of one row; `x` itself without places."""
    if found is None:
        return x
    xp = ops.namespace(x)
    native = backends.verb(xp, "unpad_tokens")
    return native(x, found) if native else xp.take(xp.reshape(x, (-1, x.shape[-1])), found.tokens, axis=0)[None, :, :]


def pad(x: Float[Array, "_ n d"], found: Places | None) -> Float[Array, "b t d"]:
    """The inverse of `unpad`, with zeros for padding."""
    if found is None:
        return x
    xp = ops.namespace(x)
    native = backends.verb(xp, "pad_tokens")
    if native:
        return native(x, found)
    wide = xp.take(x[0, :, :], xp.reshape(found.rows, (-1,)), axis=0)
    return xp.where(found.mask[:, :, None], xp.reshape(wide, (*found.mask.shape, x.shape[-1])), 0.0)
