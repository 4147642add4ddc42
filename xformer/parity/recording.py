"""What each operation of a model takes and gives, in the order of the calls, without an edit to the model.

The functions that blocks call are wrapped while one call runs. Recording is for one thread at a time.
"""

import contextlib
import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from xformer import blocks, ops, padding, params, precision
from xformer.blocks import Linear, Norm

FUNCTIONS: dict[Any, dict[str, str]] = {  # what is wrapped where its callers look it up, and what it is called here
    ops: {"softmax": "softmax", "layer_norm": "layer_norm", "rms_norm": "rms_norm", "mean": "mean", "contract": "dot"},
    blocks: {"embed": "embed"},
    precision.Precision: {"project": "project", "combine": "combine"},
    precision.Floating: {"contract": "contract"},
    precision.Integer: {"combine": "combine", "contract": "contract", "narrow": "narrow"},
}


@dataclass(frozen=True)
class Step:
    """One call: `function` of `arguments` (arrays and trees of arrays; all else is bound) gave `result`.

    `name` is the path of the parameters that took part, or of the layer, and the operation; "a > b" is an operation b
    inside of another, a.
    """

    name: str
    function: Callable
    arguments: tuple
    result: Any


@contextlib.contextmanager
def recording(tree: Any) -> Iterator[list[Step]]:
    """The steps of what runs inside, on a model whose parameters are `tree`: of whole batches, which have one shape everywhere."""
    recorder = Recorder(tree)
    with contextlib.ExitStack() as stack:
        for owner, labels in FUNCTIONS.items():
            for name, label in labels.items():
                stack.callback(setattr, owner, name, getattr(owner, name))
                setattr(owner, name, recorder.wrapped(getattr(owner, name), label))
        stack.callback(setattr, padding, "places", padding.places)
        padding.places = lambda mask: None
        stack.callback(ops.ACTIVATIONS.update, dict(ops.ACTIVATIONS))
        ops.ACTIVATIONS.update({name: recorder.wrapped(function, name) for name, function in ops.ACTIVATIONS.items()})
        yield recorder.steps


class Recorder:
    """Wraps functions so that their calls become steps."""

    def __init__(self, tree: Any):
        self.steps: list[Step] = []
        self._open: list[str] = []
        self._layer = ""
        self._paths = {id(leaf): path for path, leaf in params.items(tree)}
        params.map(lambda path, node: self._paths.setdefault(id(node), path), tree, at=(Linear, Norm))

    def wrapped(self, function: Callable, label: str) -> Callable:
        """`function`, whose calls are written down; a precision narrows what is narrow already at no cost: no step."""

        @functools.wraps(function)
        def record(*arguments, **options):
            if label == "narrow" and isinstance(arguments[1], precision.Quantized):
                return function(*arguments, **options)
            place = len(self.steps)
            self._open.append(self._name(arguments, label))
            try:
                result = function(*arguments, **options)
                step = Step(" > ".join(self._open), *_split(function, arguments, options), result)
            finally:
                self._open.pop()
            self.steps.insert(place, step)
            return result

        return record

    def _name(self, arguments, label):
        path = next((self._paths[id(argument)] for argument in arguments if id(argument) in self._paths), None)
        if path is None or self._open:
            return label if self._open else f"{self._layer}{label}"
        parts = path.split(".")
        self._layer = f"{parts[0]}.{parts[1]}." if parts[0] == "layers" else ""
        return path.removesuffix(".scale").removesuffix(".weight")


def _split(function, arguments, options):
    """The function of arrays alone, and the arrays. A dtype of NumPy becomes that of the arrays' own library."""
    varies = [_holds_arrays(argument) for argument in arguments]

    def of_arrays(*arrays):
        given, xp = iter(arrays), ops.namespace(next(leaf for _, leaf in params.items(arrays)))
        filled = (next(given) if changes else _native(argument, xp) for changes, argument in zip(varies, arguments, strict=True))
        return function(*filled, **options)

    return of_arrays, tuple(argument for argument, changes in zip(arguments, varies, strict=True) if changes)


def _holds_arrays(argument):
    return (hasattr(argument, "shape") and not isinstance(argument, type)) or type(argument) in params.NODES


def _native(argument, xp):
    is_dtype = isinstance(argument, np.dtype) or (isinstance(argument, type) and issubclass(argument, np.generic))
    return ops.dtype(xp, np.dtype(argument).name) if is_dtype else argument
