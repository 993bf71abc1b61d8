"""Histories that somebody has edited: lines dropped, doubled, swapped, cut; values of other types and sizes; arrays
that are not where they should be. By structure, with CRCs made anew: what is edited gets past the first checks.
"""

from __future__ import annotations

import json
import zlib
from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import strategies as st

from services.fact_codec import FACT_KINDS

Record = dict[str, Any]

NESTED: Any = [[[[{"a": [{"b": None}]}]]]]
VALUES: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 2, 7, 10**6, 2**31, 10**12, 2**63 - 1, 2**63, -(10**12), 10**400, 0.5, -0.0, 1e308,
    1e-320, float("nan"), float("inf"), "", "x", "NaN", "0", "worker-1", "coordinator/1", "1" * 5000, "{", "{}", "null",
    "[" * 3000, "\ud800", "\x00", "d" * 64, "ckpt-00000001-g1-i1", "ckpt-99999999999-g1-i1", [], {}, NESTED, [1, "a"],
    {"float": "x"},
)  # fmt: skip
SOURCES = (
    "coordinator", "server", "verifier", "driver", "worker-1", "worker-9", "shard-1", "", "nobody", "\n", 7, None,
)  # fmt: skip
NUMBERS = (0.0, -0.0, 1.0, 1e308, -1e308, 5e-324, float("nan"), float("inf"), -float("inf"))


@dataclass
class Edited:
    """A history under edit. `bytes()` is what stands on the disk."""

    records: list[Record]
    arrays: bytearray
    raw: list[tuple[str, int, int]]  # edits of the bytes themselves: (what, line, place)

    @classmethod
    def of(cls, lines: bytes, arrays: bytes) -> Edited:
        return cls([json.loads(line) for line in lines.splitlines()], bytearray(arrays), [])

    def bytes(self) -> tuple[bytes, bytes]:
        texts = [line_of(record) for record in self.records]
        for what, at, place in self.raw:
            if not texts:
                break
            line = bytearray(texts[at % len(texts)])
            cut = place % (len(line) + 1)
            if what == "cut":
                del line[cut:]
            elif what == "flip" and line:
                line[cut % len(line)] ^= 1 << (place % 8)
            else:
                line[cut:cut] = b"\n"
            texts[at % len(texts)] = bytes(line)
        return b"".join(texts), bytes(self.arrays)


def line_of(record: Record) -> bytes:
    """As `services.history.encode_line` writes it, whatever the values are."""
    fields = ",".join(
        f'"{name}":{json.dumps(value, separators=(",", ":"))}' for name, value in record.items() if name != "crc"
    )
    head = f"{{{fields}".encode()
    return b'%s,"crc":"%08x"}\n' % (head, zlib.crc32(head))


# ---------------------------------------------------------------- edits


def edit_value(draw: st.DrawFn, value: Any) -> Any:
    """The value with something in it changed; JSON that stands in a string is looked into."""
    if isinstance(value, str) and value.startswith("{") and draw(st.integers(0, 3)):
        try:
            return json.dumps(edit_value(draw, json.loads(value)))
        except (ValueError, RecursionError):
            return draw(st.sampled_from(VALUES))
    if not isinstance(value, dict | list) or not value or not draw(st.integers(0, 5)):
        return draw(st.sampled_from(VALUES))
    changed: Any = value.copy()
    key = draw(st.sampled_from(sorted(value) if isinstance(value, dict) else range(len(value))))
    how = draw(st.integers(0, 9))
    if how == 0:
        del changed[key]
    elif how == 1 and isinstance(changed, dict):
        changed[draw(st.sampled_from(("step", "x", "", "worker", str(key) * 2)))] = changed.pop(key)
    elif how == 1:
        changed.insert(key, changed[key])
    else:
        changed[key] = edit_value(draw, value[key])
    return changed


def edit_head(draw: st.DrawFn, record: Record) -> None:
    field = draw(st.sampled_from(("seq", "at_ms", "source", "launch", "n", "kind")))
    choices = {"source": SOURCES, "kind": (*FACT_KINDS, *VALUES[:4])}.get(field, VALUES)
    record[field] = draw(st.sampled_from(choices))


def edit_places(draw: st.DrawFn, edited: Edited, record: Record) -> None:
    """What the line says of its arrays."""
    places = record["arrays"]
    if not isinstance(places, dict) or not places:
        others = [one["arrays"] for one in edited.records if isinstance(one["arrays"], dict) and one["arrays"]]
        record["arrays"] = draw(st.sampled_from(others)) if others else draw(st.sampled_from(VALUES))
        return
    name = draw(st.sampled_from(sorted(places)))
    how = draw(st.integers(0, 3))
    if how == 0:
        record["arrays"] = {**places, draw(st.sampled_from(("value", "gradient", "step", "\x00"))): places[name]}
    elif how == 1:
        record["arrays"] = {other: place for other, place in places.items() if other != name}
    else:
        record["arrays"] = {**places, name: edit_value(draw, places[name])}


def edit_numbers(draw: st.DrawFn, edited: Edited, record: Record) -> None:
    """An array's elements, or how many of them are its own; its CRC is made anew."""
    places = record["arrays"]
    for name, place in places.items() if isinstance(places, dict) else ():
        try:
            offset, count, _ = place
            values = np.frombuffer(bytes(edited.arrays), "<f8", count, offset).copy()
        except (TypeError, ValueError):
            continue
        if how := draw(st.integers(0, 2)):
            values[draw(st.integers(0, max(0, count - 1))) : None if how == 1 else draw(st.integers(0, count))] = draw(
                st.sampled_from(NUMBERS)
            )
            edited.arrays[offset : offset + values.nbytes] = values.tobytes()
        else:
            values = values[: draw(st.integers(0, count))]
        places[name] = [offset, int(values.size), f"{zlib.crc32(values.tobytes()):08x}"]


def edit_lines(draw: st.DrawFn, edited: Edited, at: int) -> None:
    records = edited.records
    other = draw(st.integers(0, len(records) - 1))
    how = draw(st.sampled_from(("drop", "double", "swap", "tail", "move")))
    if how == "drop":
        del records[at]
    elif how == "double":
        records.insert(other, json.loads(json.dumps(records[at])))
    elif how == "swap":
        records[at], records[other] = records[other], records[at]
    elif how == "tail":
        del records[max(1, at) :]
    else:
        records.insert(other, records.pop(at))


def edit_once(draw: st.DrawFn, edited: Edited) -> None:
    if not edited.records:
        return
    at = draw(st.integers(0, len(edited.records) - 1))
    record = edited.records[at]
    match draw(st.integers(0, 11)):
        case 0 | 1:
            edit_lines(draw, edited, at)
        case 2:
            edit_head(draw, record)
        case 3:
            edit_places(draw, edited, record)
        case 4 | 5:
            edit_numbers(draw, edited, record)
        case 6:
            edited.raw.append((draw(st.sampled_from(("cut", "flip", "break"))), at, draw(st.integers(0, 4000))))
        case _:
            record["body"] = edit_value(draw, record["body"])


def in_order(edited: Edited) -> None:
    """As if it had been written so: sequence numbers, numbers of records and the end record fit."""
    counts: Counter[str] = Counter()
    for seq, record in enumerate(edited.records, start=1):
        record["seq"] = seq
        if record["kind"] != "Ended":
            place = f"{record['source']}/{record['launch']}"
            counts[place] += 1
            record["n"] = counts[place]
        elif isinstance(record["body"], dict):
            record["body"] = {**record["body"], "lines": seq - 1, "reporters": dict(counts)}


@st.composite
def edited_histories(draw: st.DrawFn, lines: bytes, arrays: bytes) -> tuple[bytes, bytes]:
    """history.jsonl and history.arrays after one to four edits, half of the time put in order again."""
    edited = Edited.of(lines, arrays)
    for _ in range(draw(st.integers(1, 4))):
        edit_once(draw, edited)
    if draw(st.booleans()):
        in_order(edited)
    if not draw(st.integers(0, 9)):
        del edited.arrays[draw(st.integers(0, len(edited.arrays))) :]
    return edited.bytes()
