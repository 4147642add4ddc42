"""One model in two places: operation by operation, and as a whole."""

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np

from xformer import backends, params
from xformer.model import Model
from xformer.parity.effective import effective
from xformer.parity.figures import Difference, difference
from xformer.parity.places import Place
from xformer.parity.recording import Step, recording


@dataclass(frozen=True)
class Row:
    """One operation. `alone`: given what NumPy gave it; `whole`: at the end of all that came before it in its own place."""

    name: str
    alone: Difference
    whole: Difference


@dataclass(frozen=True)
class Comparison:
    """A place against NumPy in one precision. `output` is what the model returned; `effective` what it computed in."""

    place: str
    precision: str
    rows: list[Row]
    output: Difference
    effective: str

    @property
    def parts_at(self) -> str:
        """The first operation whose result is not NumPy's to the bit; "" if there is none."""
        return next((row.name for row in self.rows if not row.whole.equal), "")


def compare(model: Model, tokens: Any, mask: Any, somewhere: list[Place]) -> list[Comparison]:
    """A model that was loaded on NumPy, in each place, on one batch of ids (b, t) and its mask."""
    inputs = model._checked(tokens, mask, None)
    reference, output = _recorded(model, model.params, inputs)
    arguments = tuple(_numpy(step.arguments) for step in reference)
    found = []
    for place in somewhere:
        whole, other = _whole(model, place, inputs)
        alone = place.transform(functools.partial(_replay, reference))(place.moved(arguments))
        rows = [
            Row(step.name, difference(single, step.result), difference(result, step.result))
            for step, single, result in zip(reference, alone, whole, strict=True)
        ]
        found.append(Comparison(place.name, model.precision.name, rows, difference(other, output), effective(place, model.precision)))
    return found


def _recorded(model, tree, inputs) -> tuple[list[Step], Any]:
    with recording(tree) as steps:
        output = model.functions.forward(tree, *inputs, config=model.config, precision=model.precision)
    return steps, output


def _whole(model, place, inputs):
    def run(tree, *arrays):
        steps, output = _recorded(model, tree, arrays)
        return tuple(step.result for step in steps), output

    return place.transform(run)(place.moved(_numpy(model.params)), *place.moved(inputs))


def _replay(steps, arguments):
    return tuple(step.function(*given) for step, given in zip(steps, arguments, strict=True))


def _numpy(tree):
    return params.map(lambda _, leaf: np.asarray(backends.to_numpy(leaf)), tree)
