"""Planted bugs against the verifier: what counts as caught, and the table of it.

A bug is caught when the verdict is "violated" and the invariant that must catch it is violated (others may be, too). A
bug that takes the evidence away is caught when the verdict is "unknown". Pure: documents in, rows and lines out.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from testbed.exit_codes import ExitCode
from testbed.plants.registry import UNKNOWN, VIOLATED, Plant

SCHEMA = "gradstorm.mutations/1"
_WIDTHS = (28, 8, 20, 30, 23, 7, 12)


@dataclass(frozen=True, slots=True)
class Row:
    """One bug in one run. `at`, `said`: first violation, or why nobody can say. `trouble`: why it could not be run."""

    bug: str
    what: str
    must: str  # the invariant that must be violated, or "unknown"
    scenario: str
    strategy: str
    engine: str
    seconds: float
    verdict: str = ""
    caught: bool = False
    at: str = ""
    said: str = ""
    trouble: str = ""
    runs_max: int = 0  # random schedules in which it was looked for at most; 0: it was not
    runs_to_find: int | None = None  # None: it was not found in them

    @property
    def outcome(self) -> str:
        """In words."""
        if self.trouble:
            return "NOT RUN"
        if self.caught:
            return "caught" if self.must != UNKNOWN else "unknown as it should"
        return "NOT CAUGHT"

    @property
    def found(self) -> str:
        """In words: in the how-many-th random schedule."""
        if not self.runs_max:
            return ""
        return f"not in {self.runs_max}" if self.runs_to_find is None else str(self.runs_to_find)


def row_of(
    plant: Plant, engine: str, strategy: str, seconds: float, document: Mapping[str, Any] | None, trouble: str = ""
) -> Row:
    """What the run of a bug came to. `document` is the run's, or that of `gradstorm verify` where the plant says so."""
    blank = Row(
        plant.name, plant.what, plant.invariant or UNKNOWN, plant.scenario, strategy, engine, seconds, trouble=trouble
    )
    if document is None:
        return blank
    verdict = str(document["verdict"])
    found = _invariants(document)
    if plant.expected == UNKNOWN:
        return _with(blank, verdict, verdict == UNKNOWN, "", "; ".join(document["reasons"]))
    first = found.get(plant.invariant, {}).get("first_violation")
    if verdict != VIOLATED or not first:
        violated = [name for name, entry in found.items() if entry["verdict"] == VIOLATED]
        return _with(blank, verdict, False, "", f"violated: {', '.join(violated) or 'nothing'}")
    return _with(blank, verdict, True, f"step {first['step']}, {first['role']}", first["what"])


def _with(row: Row, verdict: str, caught: bool, at: str, said: str) -> Row:
    changes = {"verdict": verdict, "caught": caught, "at": at, "said": said}
    return Row(**{**asdict(row), **changes})


def _invariants(document: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """By name, from a run's document (a mapping) or the verifier's own (a list)."""
    found = document["invariants"]
    return dict(found) if isinstance(found, Mapping) else {entry["name"]: entry for entry in found}


def exit_code(rows: Sequence[Row]) -> ExitCode:
    """0 only if every bug is caught by what should; 1 if one is not, 4 if one could not be run."""
    if any(not row.caught and not row.trouble for row in rows):
        return ExitCode.VIOLATED
    return ExitCode.UNKNOWN if any(row.trouble for row in rows) or not rows else ExitCode.PASS


def document_of(rows: Sequence[Row]) -> dict[str, Any]:
    """What `--json` prints."""
    return {
        "schema": SCHEMA,
        "bugs": len({row.bug for row in rows}),
        "caught": sum(row.caught for row in rows),
        "median_runs_to_find": _median(rows),
        "rows": [{**asdict(row), "outcome": row.outcome} for row in rows],
    }


# ---------------------------------------------------------------- the table


def header() -> str:
    """Names of the columns."""
    columns = _columns("bug", "strategy", "scenario", "outcome", "must be caught by", "seconds", "runs to find")
    return f"{columns}  what it does"


def line_of(row: Row) -> str:
    """One bug."""
    seconds = f"{row.seconds:.1f}"
    columns = _columns(row.bug, row.strategy, row.scenario, _outcome(row), row.must, seconds, row.found)
    return f"{columns}  {row.what}"


def summary(rows: Sequence[Row]) -> list[str]:
    """What was not as it should be, and one sentence."""
    bad = [row for row in rows if not row.caught]
    lines = [
        f"{row.outcome}: {row.bug} ({row.strategy}, {row.scenario}): {row.trouble or row.said}" for row in bad
    ]  # fmt: skip
    bugs, runs = len({row.bug for row in rows}), len(rows)
    ending = "every one is caught as it should be" if not bad else f"{len(bad)} not as they should be"
    looked_for = [row for row in rows if row.runs_max]
    if looked_for:
        hidden = sum(row.runs_to_find is None for row in looked_for)
        lines.append(
            f"under random schedules: {len(looked_for)} looked for, {hidden} not found; median runs to find:"
            f" {_median(rows)}"
        )
    return [*lines, f"{bugs} planted bugs in {runs} runs: {ending}."]


def markdown(rows: Sequence[Row]) -> list[str]:
    """The table for a page."""
    head = ("bug", "what it does", "must be caught by", "scenario", "outcome", "runs to find")
    cells = [
        (f"`{row.bug}`", row.what, row.must, f"{row.scenario}, {row.strategy}", _outcome(row), row.found or "–")
        for row in rows
    ]
    return [f"| {' | '.join(line)} |" for line in (head, ("---",) * len(head), *cells)]


def _outcome(row: Row) -> str:
    return f"{row.outcome}: {row.at}" if row.at else row.outcome


def _median(rows: Sequence[Row]) -> float | None:
    runs = [row.runs_to_find for row in rows if row.runs_to_find is not None]
    return statistics.median(runs) if runs else None


def _columns(*cells: str) -> str:
    return " ".join(cell.ljust(width) for cell, width in zip(cells, _WIDTHS, strict=True)).rstrip()
