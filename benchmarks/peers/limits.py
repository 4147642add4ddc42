"""What this machine does at most, measured, and the share of it that a row reaches."""

import contextlib
from collections.abc import Sequence
from pathlib import Path

from benchmarks import workloads
from benchmarks.peers.libraries import LIBRARIES
from benchmarks.peers.points import Point
from benchmarks.peers.remote import PeerError, Remote
from xformer.precision import PRECISIONS

Peaks = dict[str, float]  # "operations" and "bytes" a second


def measured(precisions: Sequence[str]) -> tuple[dict[str, Peaks], dict[str, str]]:
    """The peaks by precision, from a process of its own, and why there are none in the others."""
    if reason := LIBRARIES["xformer tvm"].missing:
        return {}, {f"peak in {precision}": reason for precision in precisions}
    found, missing = {}, {}
    for precision in precisions:
        with contextlib.closing(Remote(Path())) as other:  # which no model is loaded in
            try:
                found[precision] = other.ask("peaks", precision=precision)
            except PeerError as problem:
                missing[f"peak in {precision}"] = problem.row
    return found, missing


def reached(point: Point, precision: str, seconds: float, peaks: Peaks | None) -> float | None:
    """The share of the peak: of a decode that of bytes read, its weights once a step, of others that of operations."""
    if peaks is None:
        return None
    work = point.workload
    if point.kind == "decode":
        return work.passes * workloads.weights(work.subject.config, PRECISIONS[precision]) / seconds / peaks["bytes"]
    return work.operations / seconds / peaks["operations"]
