"""What is measured with every library: BERT-base and GPT-2 small, some texts with padding, and shapes that nobody tuned for."""

from dataclasses import dataclass

import numpy as np

from benchmarks import ragged
from benchmarks.workloads import Workload, preset

PROMPT = 128  # tokens given to the decoder


@dataclass(frozen=True)
class Point:
    """A workload of `benchmarks.workloads`, by names that go from process to process. `lengths` are those of padded texts."""

    model: str
    kind: str
    batch: int
    length: int
    lengths: tuple[int, ...] = ()

    @property
    def workload(self) -> Workload:
        """Its arithmetic; padding is counted as computed."""
        return Workload(preset(self.model), self.kind, self.batch, self.length)

    @property
    def name(self) -> str:
        return f"{self.workload.name}{' ragged' if self.lengths else ''}"

    @property
    def mask(self) -> np.ndarray:
        """(b, t) bool: True for real tokens."""
        return np.arange(self.length) < np.array(self.lengths or (self.length,) * self.batch)[:, None]

    @property
    def ids(self) -> np.ndarray:
        """(b, t) int64: the same random tokens every time, 0 where there is padding."""
        return np.where(self.mask, self.workload.ids(), 0).astype(np.int64)


def points(extent: str = "usual") -> list[Point]:
    """Grouped by model: "quick" for a first look, "usual", or "full" with every batch, a long text and shapes nobody tuned for."""
    quick = [Point("bert-base", "encode", 1, 128), Point("gpt2", "decode", 1, PROMPT)]
    usual = [
        *(Point("bert-base", "encode", *shape) for shape in ((1, 16), (1, 128), (8, 128), (1, 512))),
        Point("bert-base", "encode", 8, 128, ragged.LENGTHS),
        *(Point("gpt2", kind, batch, PROMPT) for batch in (1, 8) for kind in ("prefill", "decode")),
    ]
    untuned = [Point("bert-base", "encode", 3, 77), Point("gpt2", "prefill", 3, 77)]
    full = sorted(usual + untuned, key=lambda point: point.model)
    return {"quick": quick, "usual": usual, "full": full}[extent]
