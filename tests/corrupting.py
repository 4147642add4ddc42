"""Damage to a file: whichever bytes a disk, a network or an attacker leaves in it."""

import json
import struct
from typing import Any

from hypothesis import strategies as st

HUGE = (2**31 - 1, 2**31, 2**53, 2**63 - 1, 2**64 - 1)
OTHERS = (
    None,
    True,
    False,
    0,
    -1,
    1,
    7,
    2**31,
    2**63,
    10**40,
    0.5,
    1e300,
    float("nan"),
    "",
    "a",
    "../a",
    "/etc/hostname",
    [],
    [0],
    {},
    {"a": 1},
)


def sections(data: bytes) -> list[int]:
    """Where a safetensors file may be cut so that another part of it is missing each time."""
    header = 8 + int.from_bytes(data[:8], "little")
    return [0, 1, 7, 8, 9, header // 2, header - 1, header, header + 1, (header + len(data)) // 2, len(data) - 1]


@st.composite
def damaged(draw: Any, data: bytes) -> bytes:
    """`data` with bits flipped, its end or a piece missing, a piece put in, or a number that is far too large."""
    place = draw(st.integers(0, max(0, min(len(data), draw(st.sampled_from((64, 1024, len(data))))) - 1)))  # mostly in headers
    kind = draw(st.sampled_from(("flip", "cut", "drop", "insert", "number", "text")))
    if kind == "flip" and data:
        return data[:place] + bytes([data[place] ^ 1 << draw(st.integers(0, 7))]) + data[place + 1 :]
    if kind == "cut":
        return data[:place]
    if kind == "drop":
        return data[:place] + data[place + draw(st.integers(1, 40)) :]
    if kind == "number":
        return data[:place] + struct.pack("<Q", draw(st.sampled_from(HUGE))) + data[place + 8 :]
    if kind == "text":  # a number written in a header of text
        return data[:place] + str(draw(st.sampled_from(HUGE))).encode() + data[place:]
    return data[:place] + draw(st.binary(min_size=1, max_size=9)) + data[place:]


def places(value: Any, path: tuple = ()) -> list[tuple]:
    """The path of every value in a JSON value."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(found for key, child in inner for found in places(child, (*path, key)))]


@st.composite
def changed(draw: Any, text: str) -> str:
    """JSON with one value replaced by another kind of value, or left out."""
    whole = json.loads(text)
    path = draw(st.sampled_from(places(whole)))
    if not path:
        return json.dumps(draw(st.sampled_from(OTHERS)))
    holder = whole
    for key in path[:-1]:
        holder = holder[key]
    if draw(st.booleans()):
        holder[path[-1]] = draw(st.sampled_from(OTHERS))
    else:
        del holder[path[-1]]
    return json.dumps(whole)
