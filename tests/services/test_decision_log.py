"""The coordinator's log: what was appended is read back, and a torn or damaged line ends it."""

from __future__ import annotations

import pytest

from services.decision_log import LogDamaged, encode_line, read_log
from services.records import Admitted, Closed, Fact, Opened

FACTS: tuple[Fact, ...] = (
    Admitted(1, 1, "n"),
    Opened(1, 1, 0, {"1": (3, 4), "2": ()}, 10),
    Closed(1, 1, 0, ((1, 1, 2),), 2, ((2, "deadline"),)),
)
CONTENT = b"".join(encode_line(fact) for fact in FACTS)


def test_what_was_appended_is_read_back() -> None:
    assert read_log(CONTENT) == (FACTS, False)
    assert read_log(b"") == ((), False)


def test_kind_06_cut_anywhere_it_gives_the_whole_lines_before_the_cut() -> None:
    ends = [len(b"".join(encode_line(fact) for fact in FACTS[:count])) for count in range(len(FACTS) + 1)]
    for cut in range(len(CONTENT)):
        whole = sum(end <= cut + 1 for end in ends[1:])  # a line that lacks only its newline counts
        assert read_log(CONTENT[:cut]) == (FACTS[:whole], cut not in ends)


def test_every_flipped_bit_is_noticed() -> None:
    for at in range(len(CONTENT)):
        for bit in range(8):
            damaged = bytearray(CONTENT)
            damaged[at] ^= 1 << bit
            if at == len(CONTENT) - 1:  # the last newline: nothing is missing, something is torn
                assert read_log(bytes(damaged))[1]
            else:
                with pytest.raises(LogDamaged, match=r"line [123] is damaged"):
                    read_log(bytes(damaged))
