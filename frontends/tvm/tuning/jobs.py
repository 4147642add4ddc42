"""What there is to tune: the functions of a model, or one of a user's own."""

import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from xformer import config as presets
from xformer import models
from xformer import precision as precisions
from xformer.config import Config
from xformer.frontends.tvm import compiler, packing
from xformer.frontends.tvm.target import machine
from xformer.frontends.tvm.tuning import records, search
from xformer.frontends.tvm.tuning.records import Record, Records
from xformer.precision import Precision

Target = str | Mapping[str, Any] | None


def tune(
    what: str | Config | Callable,
    *shapes: tuple,
    target: Target,
    precision: str | Precision,
    trials: int,
    minutes: float | None,
    known: Records | None,
    told: Callable[[search.Event], Any],
) -> list[Record]:
    """As `xformer.frontends.tvm.tune` says."""
    machine(target).require_programs()
    kept = records.load(shipped=False) if known is None else known
    jobs = list(_of_model(presets.find(what), shapes, target, precision)) if isinstance(what, str | Config) else [(what, shapes)]
    touched = set()
    for event in search.search(jobs, target, kept, trials, minutes):
        touched.add(getattr(event, "workload", None))
        told(event)
    return [records.fastest(same) for (workload, *_), same in kept.found.items() if workload in touched]


def _of_model(config: Config, shapes: tuple, target: Target, precision: str | Precision) -> Iterator[search.Job]:
    chosen, module = precisions.find(precision), models.find(config.model_type)
    tree = packing.specs(config, chosen, machine(target))
    for shape in shapes:
        for name, arguments in compiler.functions(config, chosen, hasattr(module, "decode"), *compiler.asked(config, *shape)):
            yield functools.partial(getattr(module, name), config=config, precision=chosen), (tree, *arguments)
