"""Checks on the host before any kernel runs: libraries clamp, wrap or crash on what is refused here by name."""

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from array_api_compat import is_array_api_obj

from xformer import backends
from xformer.config import Config


def batch(tokens: Any, mask: Any, config: Config) -> tuple[np.ndarray, np.ndarray]:
    """Ids (b, t) as int32 and their mask as bool, from lists or arrays of any namespace; no mask means all are real.

    Raises ValueError for a wrong rank, an empty batch, an id outside the vocabulary, or more tokens than positions.
    """
    tokens = ids(tokens, config)
    if mask is None:
        if config.pad_token is not None and (tokens[:, -1] == config.pad_token).any():
            warnings.warn(f"tokens end in the padding id {config.pad_token} but no mask is given: padding is attended to", stacklevel=5)
        return tokens, np.ones(tokens.shape, bool)
    mask = _array(mask, "mask")
    if mask.shape != tokens.shape:
        raise ValueError(f"mask has shape {mask.shape}, tokens have {tokens.shape}")
    if not ((mask == 0) | (mask == 1)).all():
        raise ValueError(f"mask must be 0 or 1, got {mask[(mask != 0) & (mask != 1)][0].item()!r}")
    return tokens, mask.astype(bool)


def ids(tokens: Any, config: Config) -> np.ndarray:
    """Token ids (b, t) as int32. Raises as `batch` does."""
    tokens = _array(tokens, "tokens")
    if tokens.ndim != 2:
        raise ValueError(f"tokens must be of rank 2 (batch, length), got shape {tokens.shape}")
    if 0 in tokens.shape:
        raise ValueError(f"tokens must not be empty, got shape {tokens.shape}")
    if tokens.dtype.kind not in "iu" and not _too_large(tokens):
        raise ValueError(f"tokens must be integers, got {tokens.dtype}")
    length(tokens.shape[1], config)
    bad = (tokens < 0) | (tokens >= config.vocab_size)
    if bad.any():
        row, column = np.argwhere(bad)[0]
        raise ValueError(f"token id {tokens[row, column]} at [{row}, {column}] is outside the vocabulary [0, {config.vocab_size})")
    return tokens.astype(np.int32)


def token_types(types: Any, shape: tuple[int, ...], config: Config) -> np.ndarray:
    """Token types as int32, of the same shape as the tokens. Raises ValueError for one that the model has not."""
    types = _array(types, "token_types")
    if types.shape != shape:
        raise ValueError(f"token_types have shape {types.shape}, tokens have {shape}")
    if types.dtype.kind not in "iu":
        raise ValueError(f"token_types must be integers, got {types.dtype}")
    bad = (types < 0) | (types >= config.token_types)
    if bad.any():
        raise ValueError(f"token type {types[bad][0]} is outside [0, {config.token_types})")
    return types.astype(np.int32)


def length(tokens: int, config: Config, new: int = 0) -> None:
    """Raise ValueError when `tokens` and `new` further ones do not fit the model's positions."""
    if tokens + new > config.positions:
        what = f"{tokens} tokens" if not new else f"a prompt of {tokens} tokens and {new} new"
        raise ValueError(f"{what}: the model has {config.positions} positions")


def texts(values: Any) -> list[str]:
    """A list of texts from one or several. Raises ValueError when there is none, TypeError for anything else."""
    if not isinstance(values, str | Sequence | np.ndarray):
        raise TypeError(f"expected a text or a list of texts, got {type(values).__name__}")
    values = [values] if isinstance(values, str) else list(values)
    if not values:
        raise ValueError("no texts: the batch is empty")
    for index, value in enumerate(values):
        if not isinstance(value, str):
            raise TypeError(f"text {index} is {type(value).__name__}, expected str")
        if not value.isprintable() and any("\ud800" <= character <= "\udfff" for character in value):
            raise ValueError(f"text {index} holds half of a surrogate pair, which is no character: {value[:40]!r}")
    return values


def count(value: Any, name: str) -> int:
    """A positive integer. Raises ValueError naming what it is for."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
        raise ValueError(f"{name} must be a positive integer, got {value!r}")
    return int(value)


def _too_large(values: np.ndarray) -> bool:
    """Integers that no integer dtype holds, which NumPy keeps as objects."""
    return values.dtype.kind == "O" and all(isinstance(value, int) for value in values.flat)


def _array(values, name) -> np.ndarray:
    if isinstance(values, np.ma.MaskedArray):
        raise ValueError(f"{name} are a masked array, whose mask would be lost: pass it as `mask`")
    if isinstance(values, str):
        raise ValueError(f"{name} must be integers, got the text {values[:40]!r}: texts go to embed and generate")
    if is_array_api_obj(values):
        return backends.to_numpy(values)
    try:
        return np.asarray(values)
    except ValueError as error:
        lengths = sorted({len(row) for row in values if isinstance(row, Sequence)})
        raise ValueError(f"{name} have rows of different lengths {lengths}: pad them and pass a mask") from error
