"""What training needs beside the models' functions: parameters that are each one leaf, and gradients through integers.

The functions compute in the precision that they are given, and prepare weights that are not prepared at each use: with
parameters in fp32, BF16 is the usual mixed precision, and `straight_through(INT8)` trains for integer operands.
"""

import functools
from typing import Any

import jax

from xformer import params
from xformer.frontends.jax import trees
from xformer.model import Model
from xformer.precision import FP32, Integer, Quantized, rotate


def parameters(model: Model) -> Any:
    """The parameters of a model in fp32, in JAX, to take gradients of: an output layer that is tied to the token table is None there.

    Raises ValueError for a model in another precision: its weights are rounded.
    """
    if model.precision is not FP32:
        raise ValueError(f"training needs fp32 weights, this model's are prepared for {model.precision.name}")
    tree, seen = trees.place(model.params, model.device), set()

    def once(path, leaf):
        if id(leaf) in seen:
            return None
        seen.add(id(leaf))
        return leaf

    return params.map(once, tree)


def straight_through(precision: Integer) -> Integer:
    """`precision` with gradients: its results, bit for bit, and the derivatives of the exact products of its rounded operands.

    Rounding counts as the identity there (Bengio et al. 2013, arXiv:1308.3432).
    """
    return StraightThrough(precision.name, precision.operand, precision.accumulator)


class StraightThrough(Integer):
    """What `straight_through` returns. It narrows no weight ahead of time: weights are what is trained."""

    def prepare(self, x):
        if isinstance(x, Quantized):
            raise TypeError("training needs fp32 weights, this one is quantised")
        return rotate(x)

    def contract(self, a, b):
        return _contract(self, a, b)

    def combine(self, weights, value):
        return _combine(self, weights, value)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _contract(precision, a, b):
    return Integer.contract(precision, a, b)


def _contract_forward(precision, a, b):
    return _contract(precision, a, b), (a, b)


def _contract_backward(precision, operands, gradient):
    rounded = (_rounded(precision.narrow(x)) for x in operands)
    return jax.vjp(FP32.contract, *rounded)[1](gradient)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _combine(precision, weights, value):
    return Integer.combine(precision, weights, value)


def _combine_forward(precision, weights, value):
    return _combine(precision, weights, value), (weights, value)


def _combine_backward(precision, operands, gradient):
    weights, value = operands
    rounded = _rounded(precision.narrow(value, terms=value.shape[-2]))
    return jax.vjp(FP32.combine, weights, rounded)[1](gradient)


def _rounded(x: Quantized):
    return x.values * x.scale


_contract.defvjp(_contract_forward, _contract_backward)
_combine.defvjp(_combine_forward, _combine_backward)
