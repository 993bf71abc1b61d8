"""What every invariant is: a checker that is shown facts and steps, and that counts, remembers and answers.

An invariant never decides by hope. `checks` counts what was compared; `violated` keeps the earliest step's violation;
`cannot_say` makes the answer "unknown" unless something is violated. One that checked nothing answers "unknown". Where
lines are missing or damaged nobody is accused of what the rest of the history seems to show (`blind_from`).
Duty of the caller (`services.judge.Judge`): show facts in the order of the history, steps as the ledger gives them, and
turn an exception into `cannot_say`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from services.ledger import Ledger
from services.lineage import Entry, Step
from services.state_reports import StateReport

PASS = "pass"
VIOLATED = "violated"
UNKNOWN = "unknown"
REASONS_MAX = 8


@dataclass(frozen=True, slots=True)
class Violation:
    """`role` is whose doing or saying it is; `seq` the history line that shows it (0: none in particular)."""

    step: int
    role: str
    what: str
    seq: int


class Invariant:
    """Override the hooks that are needed; `watches` names the facts that `on_fact` wants to see."""

    name: ClassVar[str] = ""
    holds_when: ClassVar[str] = ""
    watches: ClassVar[tuple[type, ...]] = ()

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.checks = 0
        self.violations = 0
        self.first: Violation | None = None
        self.reasons: list[str] = []
        self.gave_up = False
        self.handlers: dict[type, Callable[[Entry], None]] = {}  # for single kinds, instead of `on_fact`
        self.blind_from = 0  # the history line from which on it is not whole; 0: it is, as far as is known

    # ------------------------------------------------------------ hooks

    def on_fact(self, entry: Entry) -> None:
        """A fact of a kind that is watched, in the order of the history."""

    def on_replayed(self, step: Step) -> None:
        """The state after this step is known."""

    def on_complete(self, step: Step) -> None:
        """All the evidence of this step that will ever come is there."""

    def on_deviation(self, report: StateReport, what: str) -> None:
        """A role holds (or is said to hold) another state than the others."""

    def on_unheld(self, report: StateReport, what: str) -> None:
        """Nobody holds the replayed state of a step; `report` is the first of what they hold instead."""

    def finish(self) -> None:
        """Nothing more comes."""

    # ------------------------------------------------------------ answers

    def violated(self, step: int, role: str, what: str, seq: int = 0) -> None:
        if self.blind_from and (not seq or seq >= self.blind_from):
            self.cannot_say(f"not whole from line {self.blind_from} on, the history seems to show: {role}: {what}")
            return
        self.violations += 1
        if self.first is None or step < self.first.step:
            self.first = Violation(step, role, what, seq)

    def cannot_say(self, why: str) -> None:
        self.gave_up = True
        if len(self.reasons) < REASONS_MAX:
            self.reasons.append(why)

    @property
    def verdict(self) -> str:
        if self.first is not None:
            return VIOLATED
        return UNKNOWN if self.gave_up or not self.checks else PASS

    def document(self) -> dict[str, Any]:
        """The invariant's part of the verdict document."""
        reasons = self.reasons or ([] if self.checks else ["nothing was checked"])
        first = self.first
        return {
            "name": self.name,
            "holds_when": self.holds_when,
            "verdict": self.verdict,
            "checks": self.checks,
            "violations": self.violations,
            "first_violation": None
            if first is None
            else {"step": first.step, "role": first.role, "what": first.what, "seq": first.seq},
            "reasons": reasons if self.verdict == UNKNOWN else [],
        }


def worst_of(verdicts: list[str]) -> str:
    """violated over unknown over pass; of nothing: unknown."""
    for verdict in (VIOLATED, UNKNOWN):
        if verdict in verdicts:
            return verdict
    return PASS if verdicts else UNKNOWN
