"""This library: its frontends as a user has them, and NumPy as the reference."""

from pathlib import Path

import numpy as np

import xformer
from benchmarks.peers.loaded import Decoder, Encoder, Loaded
from xformer import backends
from xformer.model import Model


def load(library: str, role: str, precision: str, variant: str, source: Path, folder: Path) -> Loaded:
    """The folder's model, compiled by the frontend that the library's name ends with."""
    model = _compiled(library, source, precision)
    if role == "encoder":
        return Encoder(lambda ids, mask: lambda: backends.to_numpy(model(ids, mask)))
    return Decoder(
        lambda ids, count: np.asarray(model.generate(ids, count, stop=())),
        lambda ids: backends.to_numpy(model(ids))[:, -1],
    )


def _compiled(library: str, source: Path, precision: str) -> Model:
    if library == "xformer tvm":
        from xformer.frontends import tvm

        return tvm.compile(xformer.load(source), precision=precision)
    if library == "xformer jax":
        from xformer.frontends import jax

        return jax.compile(xformer.load(source), precision=precision)
    return xformer.load(source, precision=precision)
