"""Transformer blocks written once against the Python Array API standard.

    model = xformer.load("folder", namespace="jax", precision="int8")
    model.embed(["one text", "another"])

This package knows the Array API and nothing else; `xformer.frontends` compiles the same functions.
"""

from xformer.build import init, load, spec
from xformer.config import Config
from xformer.model import Model
from xformer.precision import BF16, FP32, INT8, INT32, PRECISIONS, Precision

__version__ = "0.1.0"
__all__ = ["BF16", "FP32", "INT8", "INT32", "PRECISIONS", "Config", "Model", "Precision", "init", "load", "spec"]
