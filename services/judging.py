"""The judge as jobs: what the verifier has computed off its own thread.

Unlike other jobs these are not pure: they move the one judge on. Duty of the verifier: one of them at a time, in the
order of the history, and nobody else touches the judge.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from services.history import ARRAYS_PATH, LINES_PATH, Damage, HistoryLine, read_history
from services.judges import AnyJudge
from training.disk import Disk

INLINE_ELEMENTS_MAX = 1 << 16


@dataclass(frozen=True, slots=True, eq=False)
class FeedJob:
    """Feed the judge. Returns `Judge.progress()`."""

    judge: AnyJudge
    lines: Sequence[HistoryLine]
    damage: tuple[Damage, ...] = ()

    @property
    def inline(self) -> bool:
        return sum(array.size for line in self.lines for array in line.arrays.values()) <= INLINE_ELEMENTS_MAX

    def __call__(self) -> dict[str, Any]:
        for damage in self.damage:
            self.judge.damaged(damage)
        for line in self.lines:
            self.judge.feed(line)
        return self.judge.progress()


@dataclass(frozen=True, slots=True, eq=False)
class FinishJob:
    """Returns the verdict document as JSON."""

    judge: AnyJudge

    inline = False

    def __call__(self) -> str:
        return verdict_json(self.judge.finish())


@dataclass(frozen=True, slots=True)
class ReadBackJob:
    """Read lines `first` to `last` (sequence numbers) of the history back from the disk. Returns them in a tuple."""

    first: int
    last: int

    def __call__(self, disk: Disk) -> tuple[HistoryLine, ...]:
        arrays = disk.read(ARRAYS_PATH) if disk.exists(ARRAYS_PATH) else b""
        history = read_history(disk.read(LINES_PATH), arrays)
        return tuple(line for line in history.lines if self.first <= line.seq <= self.last)


def verdict_json(document: dict[str, Any]) -> str:
    """The verdict document as it is stored and sent: sorted keys, so equal documents are equal bytes."""
    return json.dumps(document, indent=1, sort_keys=True, allow_nan=False) + "\n"
