"""The facts of a saved history, for whoever wants to look at a run rather than judge it.

Arrays stay on disk: a history may hold gigabytes of them, and what is wanted here are decisions, faults and numbers.
Lines that are damaged, say what no fact says, or are not their reporter's to tell are passed over; judging them is the
verifier's business.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from services.fact_reading import UnreadableFact, read_fact
from services.fact_tellers import may_tell
from services.records import Fact


@dataclass(frozen=True, slots=True)
class Told:
    """One fact, the line that tells it, who told it, and when by the verifier's role clock."""

    seq: int
    source: str
    launch: int
    at_ms: float
    fact: Fact


def read_facts(path: Path, kinds: Iterable[type[Fact]]) -> Iterator[Told]:
    """The facts of these kinds in the history at `path`, in order; none when there is no history."""
    wanted = re.compile(f'"kind":"(?:{"|".join(kind.__name__ for kind in kinds)})"'.encode())
    if not path.exists():
        return
    with path.open("rb") as file:
        for line in file:
            if wanted.search(line):
                told = _told(line)
                if told is not None:
                    yield told


def _told(line: bytes) -> Told | None:
    try:
        record = json.loads(line)
        seq, source, launch, at_ms = (record[name] for name in ("seq", "source", "launch", "at_ms"))
        if (type(seq), type(source), type(launch), type(at_ms)) != (int, str, int, float):
            return None
        if _beyond_64_bits(record["body"]):
            return None
        fact = read_fact(record["kind"], json.dumps(record["body"]), {})
        return Told(seq, source, launch, at_ms, fact) if may_tell(source, fact) else None
    except (ValueError, KeyError, TypeError, RecursionError, UnreadableFact):
        return None


def _beyond_64_bits(value: Any) -> bool:
    """Whether there is a whole number in it that no fact has, and that nobody could draw."""
    if isinstance(value, dict):
        return any(map(_beyond_64_bits, value.values()))
    if isinstance(value, list):
        return any(map(_beyond_64_bits, value))
    return isinstance(value, int) and not -(2**63) <= value < 2**63
