"""Lines that are durable and wait for the judge: the first ones in memory, within bounds, the rest on the disk only."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from services.history import HistoryLine


@dataclass(frozen=True, slots=True)
class VerifierOptions:
    """Durations in milliseconds of the role clock, and bounds."""

    evidence_wait_ms: float = 250.0  # from a commit to the question who holds its value
    conclude_wait_ms: float = 3000.0  # for records that were made and are not here
    tell_every_ms: float = 250.0  # those who watch are told at most so often
    linger_ms: float = 2000.0  # after the verdict: it may be asked for again
    feed_lines_max: int = 2048  # lines of one job
    queue_lines_max: int = 65_536  # lines in memory that wait for the judge
    queue_bytes_max: int = 256 << 20


class JudgeQueue:
    """Durable lines that wait for the judge: the first ones in memory, within bounds, the rest on the disk."""

    def __init__(self, options: VerifierOptions) -> None:
        self._options = options
        self._lines: deque[HistoryLine] = deque()
        self._bytes = 0
        self._first_spilled = 0  # sequence number; 0: nothing is spilled
        self._last = 0

    @property
    def length(self) -> int:
        spilled = self._last - self._first_spilled + 1 if self._first_spilled else 0
        return len(self._lines) + spilled

    @property
    def ready(self) -> bool:
        return bool(self._lines)

    @property
    def spilled(self) -> tuple[int, int]:
        """Sequence numbers of what is to be read back next."""
        return self._first_spilled, min(self._last, self._first_spilled + self._options.queue_lines_max - 1)

    def add(self, line: HistoryLine) -> None:
        self._last = line.seq
        size = _bytes_of(line)
        full = len(self._lines) >= self._options.queue_lines_max or self._bytes + size > self._options.queue_bytes_max
        if self._first_spilled or (full and self._lines):
            self._first_spilled = self._first_spilled or line.seq
            return
        self._lines.append(line)
        self._bytes += size

    def take(self) -> list[HistoryLine]:
        """The next lines, for one job."""
        count = min(len(self._lines), self._options.feed_lines_max)
        lines = [self._lines.popleft() for _ in range(count)]
        self._bytes -= sum(map(_bytes_of, lines))
        return lines

    def refill(self, lines: Sequence[HistoryLine]) -> None:
        """Lines that were read back, the first that are spilled."""
        last = self._last
        self._first_spilled = 0
        for line in lines:
            self.add(line)
        if not self._first_spilled and lines and lines[-1].seq < last:
            self._first_spilled = lines[-1].seq + 1
        self._last = last


def _bytes_of(line: HistoryLine) -> int:
    of_arrays = sum(array.nbytes for array in line.arrays.values()) if line.arrays else 0
    return 512 + len(line.body_json) + of_arrays
