"""A run's history on disk: one JSON line for each record, and large arrays beside it.

    history.jsonl     {"seq", "at_ms", "source", "launch", "n", "kind", "body", "arrays": {name: [offset, count, crc]},
                      "crc"} in this order, no spaces, ASCII, one line feed at the end
    history.arrays    little-endian float64, appended; `offset` is in bytes, `count` in elements

`seq` counts the lines from 1. `n` is the record's number within (source, launch). `at_ms` is the verifier's role clock
when the record arrived. `crc` is the CRC-32, in eight hex digits, of the line's bytes before `,"crc"`; an array's is
that of its bytes. The last line is an `Ended` record: a CRC on each line does not show that lines are missing at the
end.

Pure: bytes in, bytes out. Duty of the writer: the bytes of a line's arrays are durable before the line is.
Whatever a reader is given, it answers with the lines that it can vouch for and a named `Damage` for everything else.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from services.checksum import crc32
from services.messages import Array

LINES_PATH = "history.jsonl"
ARRAYS_PATH = "history.arrays"
END_KIND = "Ended"

_ELEMENT = np.dtype("<f8")
_CRC_MARK = b',"crc":"'
_CRC_TAIL = len(_CRC_MARK) + 8 + 2  # eight hex digits and `"}`
_BODY_MARK = b',"body":'
_ARRAYS_MARK = b',"arrays":'
_HEAD_FIELDS = ("seq", "at_ms", "source", "launch", "n", "kind")
_QUOTED: dict[str, str] = {}


@dataclass(frozen=True, slots=True)
class HistoryLine:
    """One record with its place in the history. `body_json` is the record's body as it was reported."""

    seq: int
    at_ms: float
    source: str
    launch: int
    number: int
    kind: str
    body_json: str
    arrays: Mapping[str, Array] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Damage:
    """What is wrong with a history. `line` counts from 1 in the file; 0 stands for the file as a whole.

    kind: "torn" (last line) | "crc" | "form" | "gap" | "duplicate" | "arrays" | "end" | "empty"
    """

    line: int
    kind: str
    what: str

    def __str__(self) -> str:
        return f"line {self.line}: {self.what}" if self.line else self.what


@dataclass(frozen=True, slots=True)
class History:
    """What could be read. `good_bytes` is the length of the part of the file before a torn tail."""

    lines: tuple[HistoryLine, ...]
    damage: tuple[Damage, ...]
    good_bytes: int

    @property
    def ended(self) -> bool:
        return bool(self.lines) and self.lines[-1].kind == END_KIND


class _BadLine(Exception):
    def __init__(self, kind: str, what: str) -> None:
        super().__init__(what)
        self.damage = (kind, what)


# ---------------------------------------------------------------- writing


def encode_line(line: HistoryLine, arrays_offset: int) -> tuple[bytes, bytes]:
    """The line and the bytes that go to `history.arrays` at `arrays_offset`."""
    described: list[str] = []
    chunks: list[bytes] = []
    for name, array in line.arrays.items():
        content = np.ascontiguousarray(array, dtype=_ELEMENT).tobytes()
        described.append(f'{_quoted(name)}:[{arrays_offset},{array.size},"{crc32(content):08x}"]')
        chunks.append(content)
        arrays_offset += len(content)
    head = (
        f'{{"seq":{line.seq},"at_ms":{float(line.at_ms)!r},"source":{_quoted(line.source)},"launch":{line.launch}'
        f',"n":{line.number},"kind":{_quoted(line.kind)},"body":{line.body_json},"arrays":{{{",".join(described)}}}'
    ).encode("ascii")
    return b'%s,"crc":"%08x"}\n' % (head, crc32(head)), b"".join(chunks)


def _quoted(text: str) -> str:
    """JSON for a short name; there are few of them, again and again."""
    known = _QUOTED.get(text)
    if known is None:
        known = json.dumps(text)
        if len(_QUOTED) < 1024:
            _QUOTED[text] = known
    return known


# ---------------------------------------------------------------- reading


def read_history(lines_content: bytes, arrays_content: bytes) -> History:
    """Read a whole history. Never raises on any bytes; see `Damage`."""
    lines: list[HistoryLine] = []
    damage: list[Damage] = []
    bad_since_good: list[Damage] = []
    good_bytes = 0
    position = 0
    for number, raw in enumerate(_split(lines_content), start=1):
        position += len(raw)
        try:
            line = _decode(raw, arrays_content)
        except _BadLine as bad:
            bad_since_good.append(Damage(number, *bad.damage))
            continue
        damage.extend(bad_since_good)
        bad_since_good = []
        good_bytes = position
        order = _order(lines, line, number)
        if order is not None:
            damage.append(order)
        if order is None or order.kind == "gap":
            lines.append(line)
    damage.extend(_tail(bad_since_good))
    damage.extend(_ending(lines))
    return History(tuple(lines), tuple(damage), good_bytes)


def _split(content: bytes) -> Iterator[bytes]:
    """Lines with their line feed; the last one may lack it."""
    start = 0
    while start < len(content):
        stop = content.find(b"\n", start) + 1 or len(content)
        yield content[start:stop]
        start = stop


def read_line(raw: bytes) -> HistoryLine | None:
    """One line, its line feed included, without its arrays. None when it is damaged."""
    try:
        return _parsed(raw)[0]
    except _BadLine:
        return None


def _decode(raw: bytes, arrays_content: bytes) -> HistoryLine:
    line, described = _parsed(raw)
    return replace(line, arrays=_arrays(described, arrays_content)) if described else line


def _parsed(raw: bytes) -> tuple[HistoryLine, dict[str, Any]]:
    """The line without its arrays, and where these are."""
    if not raw.endswith(b"\n"):
        raise _BadLine("torn", "the line has no end")
    text = raw[:-1]
    head, tail = text[:-_CRC_TAIL], text[-_CRC_TAIL:]
    if len(tail) != _CRC_TAIL or not tail.startswith(_CRC_MARK) or not tail.endswith(b'"}'):
        raise _BadLine("form", "not a history line: it does not end with its CRC")
    if tail[len(_CRC_MARK) : -2] != b"%08x" % crc32(head):
        raise _BadLine("crc", "the CRC does not fit the line")
    body_at, arrays_at = head.find(_BODY_MARK), head.rfind(_ARRAYS_MARK)
    if not 0 < body_at < arrays_at:
        raise _BadLine("form", "not a history line: no body or no arrays")
    try:
        fields = json.loads(head[:body_at] + b"}")
        described = json.loads(head[arrays_at + len(_ARRAYS_MARK) :])
        body_json = head[body_at + len(_BODY_MARK) : arrays_at].decode("ascii")
    except (ValueError, RecursionError) as error:
        raise _BadLine("form", f"not a history line: {error}") from None
    _require_fields(fields)
    if not isinstance(described, dict):
        raise _BadLine("form", "arrays must be an object")
    seq, at_ms, source, launch, number, kind = (fields[name] for name in _HEAD_FIELDS)
    return HistoryLine(seq, at_ms, source, launch, number, kind, body_json), described


def _require_fields(fields: object) -> None:
    if not isinstance(fields, dict) or tuple(fields) != _HEAD_FIELDS:
        raise _BadLine("form", f"not a history line: it must begin with the fields {', '.join(_HEAD_FIELDS)}")
    counts = [fields[name] for name in ("seq", "launch", "n")]
    if any(type(value) is not int or value < 0 for value in counts):
        raise _BadLine("form", "seq, launch and n must be whole numbers of at least 0")
    if type(fields["source"]) is not str or type(fields["kind"]) is not str:
        raise _BadLine("form", "source and kind must be strings")
    if type(fields["at_ms"]) is not float or not math.isfinite(fields["at_ms"]):
        raise _BadLine("form", "at_ms must be a finite number with a decimal point")


def _arrays(described: dict[str, Any], content: bytes) -> dict[str, Array]:
    found: dict[str, Array] = {}
    for name, place in described.items():
        if not isinstance(place, list) or [type(item) for item in place] != [int, int, str] or min(place[:2]) < 0:
            raise _BadLine("form", f"array {name[:80]!r}: its place must be [offset, count, crc]")
        offset, count, crc = place
        if offset + count * _ELEMENT.itemsize > len(content):
            raise _BadLine("arrays", f"array {name[:80]!r}: {count} elements at byte {offset} are not in {ARRAYS_PATH}")
        array = np.frombuffer(content, _ELEMENT, count, offset) if count else np.empty(0, _ELEMENT)
        if crc != f"{crc32(array.data):08x}":
            raise _BadLine("arrays", f"array {name[:80]!r}: the CRC does not fit its bytes in {ARRAYS_PATH}")
        found[name] = array
    return found


def _order(before: list[HistoryLine], line: HistoryLine, number: int) -> Damage | None:
    due = before[-1].seq + 1 if before else 1
    if line.seq < due:
        return Damage(number, "duplicate", f"sequence number {line.seq} again, {due} is due")
    if line.seq > due:
        return Damage(
            number, "gap", f"sequence number {line.seq} where {due} is due: {line.seq - due} lines are missing"
        )
    return None


def _tail(bad: list[Damage]) -> list[Damage]:
    """Bad lines with no good one after them: what a crash leaves of an append, one damage however long it is."""
    if not bad:
        return []
    first = bad[0]
    return [Damage(first.line, "torn", f"torn tail: {first.what}")]


def _ending(lines: list[HistoryLine]) -> list[Damage]:
    if not lines:
        return [Damage(0, "empty", "the history is empty")]
    ends = [line.seq for line in lines if line.kind == END_KIND]
    if not ends:
        return [Damage(0, "end", "the history has no end record: lines may be missing at its end")]
    if ends[0] != lines[-1].seq:
        return [Damage(0, "end", f"lines after the end record, which has sequence number {ends[0]}")]
    return []
