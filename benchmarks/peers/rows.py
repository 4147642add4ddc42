"""What a report of peers shows: the row, its columns, and who is ahead in a cell."""

import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from benchmarks import measure
from benchmarks.peers.libraries import OURS

TIE = 0.03  # medians that are closer say nothing
VERDICTS = ("won", "tied", "lost", "undecided")


@dataclass
class Row:
    """One way's figures in one cell. `ahead` is how many times as long it takes as `OURS[0]`, `reached` the share of what this
    machine does at most; `skipped` says why there are none.
    """

    workload: str
    precision: str
    namespace: str  # the library
    way: str
    samples: list[float] = field(default_factory=list)  # seconds, every one
    tokens_per_second: float | None = None
    ahead: float | None = None
    reached: float | None = None
    error: float | None = None
    agreement: float | None = None
    compile: float | None = None  # seconds
    load: float | None = None  # seconds
    skipped: str = ""

    @property
    def seconds(self) -> float:
        return statistics.median(self.samples)

    @property
    def ours(self) -> bool:
        return self.namespace in OURS

    @property
    def note(self) -> str:
        return self.skipped


def best(rows: Iterable[Row]) -> Row | None:
    """The fastest of the others; None where none has figures."""
    return min((row for row in rows if not row.ours and not row.skipped), key=lambda row: row.seconds, default=None)


def ratio(own: Row, rows: Sequence[Row]) -> float | None:
    """How many times as long as `own` the best peer of the same cell takes, turn by turn; None where one of them has no figures."""
    peer = best(row for row in rows if (row.workload, row.precision) == (own.workload, own.precision))
    return None if peer is None or own.skipped else measure.speedup(peer.samples, own.samples)


def verdict(ratio: float | None) -> str:
    """One of VERDICTS."""
    if ratio is None:
        return "undecided"
    return "won" if ratio > 1 + TIE else "lost" if ratio < 1 / (1 + TIE) else "tied"


def counted(rows: Sequence[Row]) -> dict[str, Counter]:
    """By frontend, how many cells have which verdict."""
    found: dict[str, Counter] = {}
    for row in (row for row in rows if row.ours):
        found.setdefault(row.namespace, Counter())[verdict(ratio(row, rows))] += 1
    return found


def summary(rows: Sequence[Row]) -> list[str]:
    """Lines that say what all cells come to."""
    verdicts = [f"{name}: {', '.join(f'{count[verdict]} {verdict}' for verdict in VERDICTS)}" for name, count in counted(rows).items()]
    return verdicts + reaches(rows)


def reaches(rows: Sequence[Row]) -> list[str]:
    """What the best of ours reaches in encoders of 8x128 and in decoding, by precision."""
    found: dict[str, dict[str, float]] = {}
    for row in rows:
        if row.ours and row.reached is not None and (" decode " in row.workload or row.workload.endswith(" encode 8x128")):
            shares = found.setdefault(row.workload, {})
            shares[row.precision] = max(row.reached, shares.get(row.precision, 0.0))
    told = {name: ", ".join(f"{share:.0%} in {precision}" for precision, share in shares.items()) for name, shares in found.items()}
    limits = {True: "the bandwidth", False: "the fastest contraction"}
    return [f"{name}: ours reach {shares} of {limits[' decode ' in name]} of this machine" for name, shares in told.items()]


def _shown(text: str, figure: float | None) -> str:
    return "" if figure is None else text.format(figure)


COLUMNS = {  # by name: the head of the column on a terminal of 80 columns (None: not there), and a row's text
    "way": ("way", lambda row: row.way),
    "precision": (None, lambda row: row.precision),
    "ms": ("ms", lambda row: f"{1e3 * row.seconds:.1f}"),
    "least": (None, lambda row: f"{1e3 * min(row.samples):.1f}"),
    "spread": ("spr-\nead", lambda row: f"{measure.spread(row.samples):.0%}" if len(row.samples) > 1 else ""),
    "tokens/s": ("tokens\n/s", lambda row: f"{row.tokens_per_second:.0f}"),
    "this / tvm": ("this\n/ tvm", lambda row: _shown("{:.2f}", row.ahead)),
    "reached": ("rea-\nched", lambda row: _shown("{:.0%}", row.reached)),
    "error": ("error", lambda row: _shown("{:.0e}", row.error)),
    "same ids": ("same\nids", lambda row: _shown("{:.0%}", row.agreement)),
    "first s": ("first", lambda row: _shown("{:.1f}", row.compile)),
    "load s": (None, lambda row: _shown("{:.1f}", row.load)),
    "note": (None, lambda row: row.note),
}
NAMES = ("way", "precision")  # columns that say which cell it is
LEGEND = (
    "every way has a process of its own and as many threads as there are cores; one works at a time, in turn",
    "ms: median; least: the fastest sample; spread: slowest less fastest sample, as a share of the median",
    "prefill: until the first token; decode: the tokens after the first, greedily",
    "reached: share of what this machine does at most in that precision, as our TVM frontend measures it before the rest: "
    "of the operations a second of a large contraction, padding counted as computed; in decoding of the bytes a second that all "
    "cores read, our weights in that precision once a step",
    "this / tvm: how many times as long as our TVM frontend, in turn with it",
    f"won, tied, lost: against the fastest of the others in the same precision, tied within {TIE:.0%}",
    "error against NumPy in fp32: norm of the difference over the norm, of the hidden states of real tokens or of the first logits",
    "same ids: share of the generated ids before the first that differs from those of NumPy in fp32; a near tie may decide it",
    "first: what the first run took beyond the second; load: until the model is ready, the library imported, from files in its own format",
)
