"""Records on their way into the history: each once, in order, numbered, and encoded for one append.

A reporter may send a record again, and after a reconnect in other pieces than before. Of each (source, launch) only the
next record is taken; what comes again is dropped, what comes too early is left for its reporter to send again.
"""

from __future__ import annotations

from collections.abc import Iterable

from services.history import END_KIND, HistoryLine, encode_line
from services.messages import Numbered, Report

Place = tuple[str, int]  # source, launch


class RecordIntake:
    """Knows the last record of every reporter, and where the next line and the next array go."""

    def __init__(self) -> None:
        self.lines = 0  # numbered so far
        self.taken: dict[Place, int] = {}  # number of the last record in the history
        self.stored: dict[Place, int] = {}  # … that is durable
        self._arrays_offset = 0

    def resume(self, lines: Iterable[HistoryLine], arrays_bytes: int) -> None:
        """Go on after a history that is on disk."""
        for line in lines:
            self.lines = line.seq
            if line.kind != END_KIND:
                self.taken[line.source, line.launch] = line.number
        self.stored = dict(self.taken)
        self._arrays_offset = arrays_bytes

    def take(self, now_ms: float, report: Report) -> tuple[list[HistoryLine], bool]:
        """The lines that are new, and whether a record was missing before one that was reported."""
        place = (report.source, report.launch)
        last = self.taken.get(place, 0)
        found: list[HistoryLine] = []
        for record in report.records:
            if record.sequence <= last:
                continue
            if record.sequence > last + 1 or not _fits_a_line(record):
                self.taken[place] = last
                return found, True
            last += 1
            found.append(self._line(now_ms, report.source, report.launch, record))
        if found:
            self.taken[place] = last
        return found, False

    def own_line(self, now_ms: float, source: str, launch: int, record: Numbered) -> HistoryLine:
        """A line of the verifier's own."""
        return self._line(now_ms, source, launch, record)

    def encode(self, lines: Iterable[HistoryLine]) -> tuple[bytes, bytes]:
        """What to append to the lines and to the arrays. Each line once, in order."""
        texts, chunks = [], []
        for line in lines:
            text, chunk = encode_line(line, self._arrays_offset)
            self._arrays_offset += len(chunk)
            texts.append(text)
            chunks.append(chunk)
        return b"".join(texts), b"".join(chunks)

    def _line(self, now_ms: float, source: str, launch: int, record: Numbered) -> HistoryLine:
        self.lines += 1
        return HistoryLine(
            self.lines, round(now_ms, 3), source, launch, record.sequence, record.kind, record.body_json,
            dict(record.arrays),
        )  # fmt: skip


def _fits_a_line(record: Numbered) -> bool:
    """Whatever else a body is, it must not break the line that it stands in."""
    return record.body_json.isascii() and "\n" not in record.body_json
