"""Damage to the history that is saved. The run's own verdict does not see it; `gradstorm verify RUN` must."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from services.history import END_KIND, HistoryLine
from services.roles.record_intake import RecordIntake
from testbed.plants.registry import UNKNOWN, Patch, plant

Lines = list[bytes]


def _edited(edit: Callable[[Lines, list[HistoryLine]], Lines]) -> list[Patch]:
    """The lines that are about to be appended, as bytes, edited."""
    original = RecordIntake.encode

    def encode(self: RecordIntake, lines: Iterable[HistoryLine]) -> tuple[bytes, bytes]:
        listed = list(lines)
        text, arrays = original(self, listed)
        return b"".join(edit(text.splitlines(keepends=True), listed)), arrays

    return [(RecordIntake, "encode", encode)]


def _commits(lines: list[HistoryLine]) -> list[int]:
    return [place for place, line in enumerate(lines) if line.kind == "Committed" and '"step":3,' in line.body_json]


@plant("history-line-dropped", expected=UNKNOWN, saved=True)
def line_dropped() -> list[Patch]:
    """The line of step 3's commit is missing from the saved history."""
    return _edited(lambda texts, lines: [text for place, text in enumerate(texts) if place not in _commits(lines)])


@plant("history-lines-swapped", expected=UNKNOWN, saved=True)
def lines_swapped() -> list[Patch]:
    """In the saved history step 3's commit and the line beside it have changed places."""

    def swap(texts: Lines, lines: list[HistoryLine]) -> Lines:
        for place in _commits(lines):
            other = place - 1 if place else min(1, len(texts) - 1)
            texts[place], texts[other] = texts[other], texts[place]
        return texts

    return _edited(swap)


@plant("history-bit-flipped", expected=UNKNOWN, saved=True)
def bit_flipped() -> list[Patch]:
    """A bit of step 3's commit is flipped in the saved history."""

    def flip(texts: Lines, lines: list[HistoryLine]) -> Lines:
        for place in _commits(lines):
            text = bytearray(texts[place])
            text[len(text) // 2] ^= 1
            texts[place] = bytes(text)
        return texts

    return _edited(flip)


@plant("history-tail-cut", expected=UNKNOWN, saved=True)
def tail_cut() -> list[Patch]:
    """The saved history lacks its end record, and with it the count of its lines."""
    return _edited(lambda texts, lines: texts[:-1] if lines[-1].kind == END_KIND else texts)
