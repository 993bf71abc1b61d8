"""Observations: what is worth telling of a run and is no violation. Gathered by kind: how often, where first, what."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from services.ledger import Ledger
from services.lineage import COORDINATOR, Entry, worker_role
from services.records import Closed, Committed, Died, Opened, Recovered, Refused, RolledBack

LOST = "in-flight gradient lost"
LEFT_OUT = "straggler left out"
RISING = "loss rising"
SHRINKING = "effective batch shrinking"
SKIPPED = "step skipped"
BACK = "rolled back"
CAME_BACK = "coordinator came back"
NOT_REACHED = "fault not reached"
BROKE = "message against the contract refused"
LIES = ("contract", "conflict", "digest", "claimed", "not a contributor")  # no honest member is refused for these


@dataclass(slots=True)
class _Seen:
    count: int
    step: int
    role: str
    what: str


class Observations:
    """Fed the coordinator's facts, repeated ones excepted, and everybody's refusals."""

    watches = (Opened, Closed, Committed, Died, Refused, RolledBack, Recovered)

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._seen: dict[str, _Seen] = {}
        self._opened: Opened | None = None
        self._died: set[int] = set()  # workers that died since the last commit
        self._loss: float | None = None
        self._largest = 0  # samples of the largest step so far

    def add(self, kind: str, step: int, role: str, what: str) -> None:
        seen = self._seen.get(kind)
        if seen is None:
            self._seen[kind] = _Seen(1, step, role, what)
        else:
            seen.count += 1

    def on_fact(self, entry: Entry) -> None:
        match entry.fact:
            case Opened() as opened:
                self._opened = opened
            case Closed() as closed:
                for worker, reason in closed.left_out:
                    if reason == "deadline":
                        self.add(LEFT_OUT, closed.step, worker_role(worker), "was past its deadline; dealt again")
            case Died() as died:
                self._died.add(died.worker)
            case Committed() as committed:
                self._on_committed(committed)
            case Refused() as refused:
                if refused.reason in LIES:
                    what = f"{entry.source} refused its {refused.what}: {refused.reason}"
                    self.add(BROKE, refused.step, refused.source, what)
            case RolledBack() as back:
                self.add(BACK, back.to_step, COORDINATOR, f"to {back.name}: {back.reason}")
            case Recovered() as recovered:
                self.add(CAME_BACK, recovered.step, COORDINATOR, f"in generation {recovered.generation}")
            case _:
                pass

    def document(self) -> list[dict[str, Any]]:
        return [
            {"kind": kind, "count": seen.count, "first_step": seen.step, "role": seen.role, "what": seen.what}
            for kind, seen in sorted(self._seen.items())
        ]

    # ------------------------------------------------------------ inside

    def _on_committed(self, fact: Committed) -> None:
        contributors = {worker for worker, _, _ in fact.contributors}
        if self._opened is not None and self._opened.step == fact.step:
            for name, ids in self._opened.deals.items():
                worker = int(name)
                if ids and worker not in contributors and worker in self._died:
                    what = f"its {len(ids)} samples are dealt again"
                    self.add(LOST, fact.step, worker_role(worker), what)
        self._died.clear()
        if fact.skip:
            named = ", ".join(map(worker_role, fact.offenders))
            self.add(SKIPPED, fact.step, named, "not finite; parameters and momentum unchanged, samples consumed")
            return
        if self._loss is not None and fact.loss > self._loss:
            self.add(RISING, fact.step, COORDINATOR, f"from {self._loss:.6g} to {fact.loss:.6g}")
        self._loss = fact.loss
        remaining = self._opened.remaining if self._opened is not None else 0
        if fact.total < self._largest and remaining > self._largest:  # not the short last batch of an epoch
            what = f"{fact.total} samples where {self._largest} were"
            self.add(SHRINKING, fact.step, COORDINATOR, what)
        self._largest = max(self._largest, fact.total)
