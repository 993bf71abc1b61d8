"""The facts of a saved history, for whoever wants to look at a run rather than judge it.

Arrays stay on disk: a history may hold gigabytes of them, and what is wanted here are decisions, faults and numbers.
Lines that are damaged, say what no fact says, or are not their reporter's to tell are passed over; judging them is the
verifier's business.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from services.history import read_line
from services.records import Fact
from services.roles.told import told_fact


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
    names = frozenset(kind.__name__ for kind in kinds)
    wanted = re.compile(f'"kind":"(?:{"|".join(sorted(names))})"'.encode())
    if not path.exists():
        return
    with path.open("rb") as file:
        for raw in file:
            line = read_line(raw) if wanted.search(raw) else None
            fact = told_fact(line, names) if line is not None else None
            if line is not None and fact is not None:
                yield Told(line.seq, line.source, line.launch, line.at_ms, fact)
