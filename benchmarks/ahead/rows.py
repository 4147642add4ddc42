"""What a report of compiled programs shows: the row, its columns, and what they mean."""

from dataclasses import dataclass, field

MEGA, GIGA = 1e6, 1e9


@dataclass
class Row:
    """One cell's figures: a program compiled for `devices` of a `chip`. `skipped` says why there is none."""

    workload: str
    precision: str
    namespace: str
    chip: str
    devices: int
    compile: float | None = None  # seconds
    operands: dict[str, int] = field(default_factory=dict)  # contractions in the program by the types that they take and give
    memory: dict[str, int] = field(default_factory=dict)  # bytes of one device: arguments, results, temporary
    collectives: dict[str, int] = field(default_factory=dict)
    operations: dict[str, float] = field(default_factory=dict)  # our own count for one device, by operand type
    bytes: float | None = None  # the same of memory traffic
    estimate: float | None = None  # seconds
    peak: str = ""
    skipped: str = ""

    @property
    def note(self) -> str:
        return self.skipped


def _counts(found: dict[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in found.items())


COLUMNS = {  # by name: the head of the column on a terminal of 80 columns (None: not there), and a row's text
    "chip": ("chip", lambda row: row.chip),
    "devices": ("de-\nvices", lambda row: str(row.devices)),
    "precision": ("preci-\nsion", lambda row: row.precision),
    "compile s": ("com-\npile", lambda row: f"{row.compile:.1f}"),
    "memory MB": ("MB", lambda row: f"{sum(row.memory.values()) / MEGA:.0f}"),
    "collectives": ("collectives", lambda row: _counts(row.collectives) or "none"),
    "GOP": ("GOP", lambda row: f"{sum(row.operations.values()) / GIGA:.1f}"),
    "traffic MB": ("traf-\nfic MB", lambda row: f"{row.bytes / MEGA:.0f}"),
    "ESTIMATE ms": ("ESTIMATE\nms", lambda row: f"{1e3 * row.estimate:.3f}"),
    "operands in the compiled program": (None, lambda row: _counts(row.operands)),
    "published peak": (None, lambda row: row.peak),
    "note": (None, lambda row: row.note),
}
NAMES = ("chip", "devices", "precision")  # columns that say which cell it is
LEGEND = (
    "nothing here was run: programs were compiled ahead of time for hardware that is not in this machine",
    "devices: 1, or 4 that share each layer (tensor parallel); a tpu7x chip is two devices, the figures are of one of them",
    "layers are stacked, so that one of them is compiled: what is in the loop over them, collectives too, counts once",
    "MB: memory of one device, for arguments (weights included), results and what is between",
    "GOP, traffic: our own count for one device: additions and multiplications in the contractions; weights read once a pass, the cache "
    "once a step, results written. A decode is the tokens after the first, as where it is measured",
    "ESTIMATE = max(sum over operand types of operations / peak, traffic / bandwidth) of one device, of peaks that are published, not "
    "reached: no program can be faster, a real one is slower. Between devices nothing is counted. fp32 takes six bf16 products (HIGHEST); "
    "operands without a published peak add nothing",
    "operands: the types of the contractions in the compiled program, how many of each",
)
