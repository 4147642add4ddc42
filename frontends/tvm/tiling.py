"""What the rule for contractions leaves open, and what tuning chooses from."""

import itertools
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from typing import Any


@dataclass(frozen=True)
class Tiling:
    """The open sizes of a contraction's schedule, with the values that untuned kernels have.

    `rows` of a register tile: 0 fills the registers and divides the rows evenly. `unroll`: steps of the inner axis that are
    written out, where it is a multiple of them. `panels` of the right operand that a tile of rows meets before the next tile
    does: with more of them the left operand is read from a nearer cache, and the right one from a farther.
    """

    rows: int = 0
    unroll: int = 4
    panels: int = 1


CHOICES = {"rows": (0, 1, 2, 3, 4, 5, 6, 8, 10, 12, 14), "unroll": (1, 2, 4, 8), "panels": (1, 2, 4, 8)}
DEFAULT = Tiling()


def space(count: int, panels: int, steps: int, most: int) -> Iterator[Tiling]:
    """Every tiling of a contraction of `count` rows, `panels` and `steps` of the inner axis that differs from the others.

    `most` is the number of rows that fill the registers. The one of untuned kernels comes first.
    """
    yield DEFAULT
    own = -(-count // -(-count // most))
    rows = [number for number in CHOICES["rows"] if number == 0 or (number <= min(most, count) and number != own)]
    unrolls = [number for number in CHOICES["unroll"] if steps % number == 0]
    chunks = [number for number in CHOICES["panels"] if panels % number == 0]
    for chosen in itertools.product(rows, unrolls, chunks):
        if Tiling(*chosen) != DEFAULT:
            yield Tiling(*chosen)


def read(value: Any) -> Tiling:
    """A tiling from its JSON form. Raises ValueError for anything that tuning would not choose."""
    names = [field.name for field in fields(Tiling)]
    if not isinstance(value, dict) or sorted(value) != sorted(names):
        raise ValueError(f"a tiling has {', '.join(names)}, got {value!r}")
    for name in names:
        if type(value[name]) is not int or value[name] not in CHOICES[name]:
            raise ValueError(f"{name} = {value[name]!r} is not among {', '.join(map(str, CHOICES[name]))}")
    return Tiling(**value)


def written(tiling: Tiling) -> dict[str, int]:
    """Its JSON form."""
    return asdict(tiling)
