"""Is the history all there, and did the scenario do what it says? What is missing makes the verdict "unknown".

Nothing here can make a run violated: it only says why the invariants' "pass" would not be worth its name.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from services.arrivals import Arrivals
from services.invariants.base import REASONS_MAX
from services.invariants.fencing import STALE
from services.ledger import Ledger
from services.lineage import COORDINATOR, Entry, worker_role
from services.records import (
    BoundaryUsed,
    Closed,
    Died,
    Ended,
    Expectation,
    FaultActed,
    FaultArmed,
    FaultMissed,
    Proven,
    Refused,
    Regrouped,
    RolledBack,
    ShardProven,
)

EXCUSED = "excused"
KILLING = ("kill", "stop", "power_cut", "power cut")
DRAWN = re.compile(r"random-\d+")  # names of `chaos.random_schedule`: not every fault of theirs has to be reached

PROMISED = (
    "kills", "relaunches", "returns", "joins", "stragglers", "refused_late", "rollbacks", "damaged_checkpoints",
    "min_generations", "min_accuracy", "min_age",
)  # fmt: skip
"""Promises that are judged here. `refused_stale` is fencing's, `condition` liveness's, and the exit code follows."""

Place = tuple[str, int]  # source, launch


class Evidence:
    """Fed every line (`on_line`) and the facts that it watches (`on_fact`); `finish` gives the reasons."""

    watches = (
        Ended, Expectation, FaultArmed, FaultActed, FaultMissed, Died, Refused, RolledBack, Regrouped, Proven,
        ShardProven, Closed,
    )  # fmt: skip

    def __init__(self, ledger: Ledger, role_of: Callable[[int], str] = worker_role) -> None:
        self._role_of = role_of
        self.reasons: list[str] = []
        self.missed: list[tuple[str, str]] = []  # faults of a sweep that were not reached
        self.lines = 0
        self.last: dict[Place, int] = {}  # number of the last record
        self.expectation: Expectation | None = None
        self._ledger = ledger
        self._ended: Ended | None = None
        self._armed: dict[str, FaultArmed] = {}
        self._acted: dict[str, Mapping[str, object]] = {}
        self._missed: dict[str, str] = {}
        self._died: set[str] = set()
        self._counts: dict[str, int] = {}
        self._late: set[tuple[int, int]] = set()  # (step, worker) that a deadline left out
        self._arrivals = Arrivals()
        self.accuracy: float | None = None  # of the final state on held-out data, when that is known

    def unknown(self, why: str) -> None:
        if why not in self.reasons and len(self.reasons) < REASONS_MAX:
            self.reasons.append(why)

    def on_line(self, seq: int, source: str, launch: int, number: int, kind: str) -> bool:
        """False when a record before this one is missing."""
        self.lines += 1
        if kind == "Ended":
            return True
        place = (source, launch)
        due = self.last.get(place, 0) + 1
        if number != due:
            self.unknown(f"line {seq}: record {number} of {source} (launch {launch}) where {due} is due")
        self.last[place] = max(number, due)
        return number == due

    def on_fact(self, entry: Entry) -> None:
        match entry.fact:
            case Ended() as ended:
                self._ended = ended
            case Expectation() as expectation:
                self.expectation = expectation
            case FaultArmed() as armed:
                self._armed[armed.fault] = armed
            case FaultActed() as acted:
                self._acted[acted.fault] = acted.witness
            case FaultMissed() as missed:
                self._missed[missed.fault] = missed.reason
            case Died() as died:
                self._died.add(self._role_of(died.worker))
            case _:
                self._count(entry)

    def finish(self) -> list[str]:
        """Every reason why the history does not carry a verdict."""
        if not self.lines:
            self.unknown("the history is empty")
        elif self._ledger.started is None and not self._ledger.trouble:
            self.unknown("the run was never started: no RunStarted")
        if self.lines and self._ended is None:
            self.unknown("the history has no end record")
        elif self._ended is not None:
            self._check_end(self._ended)
        self._check_faults()
        self._check_promises()
        for trouble in self._ledger.trouble:
            self.unknown(trouble)
        return self.reasons

    # ------------------------------------------------------------ completeness

    def _check_end(self, ended: Ended) -> None:
        if ended.lines != self.lines - 1:
            self.unknown(f"the end record counts {ended.lines} lines before it, {self.lines - 1} are there")
        for name, count in sorted(ended.reporters.items()):
            source, _, launch = name.rpartition("/")
            have = self.last.get((source, int(launch)) if launch.isdigit() else (name, 1), 0)
            if have < count and not ended.excused.get(name):
                self.unknown(f"{source} (launch {launch}): {have} of {count} records are there, and nothing excuses it")
        heard = {source for source, _ in self.last}
        excused = {name.rpartition("/")[0] for name, why in ended.excused.items() if why}
        members = {self._role_of(worker) for known in self._ledger.members.values() for worker in known}
        for role in sorted({COORDINATOR, *members} - heard - excused - self._died):
            self.unknown(f"{role} took part and never reported")

    # ------------------------------------------------------------ faults and promises

    @property
    def _is_sweep(self) -> bool:
        return self.expectation is not None and DRAWN.fullmatch(self.expectation.scenario) is not None

    def _check_faults(self) -> None:
        for fault in sorted(self._armed.keys() | self._acted.keys() | self._missed.keys()):
            if fault in self._missed:
                if self._is_sweep:
                    self.missed.append((fault, self._missed[fault]))
                else:
                    self.unknown(f"fault {fault} never acted: {self._missed[fault]}")
            elif not self._acted.get(fault):
                self.unknown(f"fault {fault} has no witness that it acted")

    def _count(self, entry: Entry) -> None:
        match entry.fact:
            case Refused() as refused:
                if refused.reason in STALE:
                    self._add("refused_stale")
                elif refused.reason == "late":
                    self._add("refused_late")
            case RolledBack() as back:
                self._add("rollbacks")
                self._add("damaged_checkpoints", len(back.damaged))
            case Regrouped() as regrouped:
                self._counts["min_generations"] = max(self._counts.get("min_generations", 0), regrouped.generation)
            case Proven() as proven:
                self._arrivals.proved(proven.worker, proven.incarnation)
            case BoundaryUsed() as used:
                self._counts["min_age"] = max(self._counts.get("min_age", 0), used.age)
            case ShardProven() as proven:
                self._arrivals.proved(proven.shard, proven.incarnation)
            case Closed() as closed:
                self._late.update((closed.step, worker) for worker, why in closed.left_out if why == "deadline")
            case _:
                pass

    def _add(self, name: str, count: int = 1) -> None:
        self._counts[name] = self._counts.get(name, 0) + count

    def _check_promises(self) -> None:
        if self.expectation is None or self._is_sweep:  # a drawn schedule promises what it may not reach
            return
        promises = self.expectation.promises
        kills = sum(armed.kind in KILLING and bool(self._acted.get(name)) for name, armed in self._armed.items())
        arrived = self._arrivals.counts(self._ledger.config.get("workers", 0), self.last, self._role_of)
        have: dict[str, float] = {**self._counts, **arrived, "kills": kills, "stragglers": len(self._late)}
        if self.accuracy is not None:
            have["min_accuracy"] = self.accuracy
        for name in PROMISED:
            promised = promises.get(name, 0)
            if not isinstance(promised, str) and have.get(name, 0) < promised:
                self.unknown(f"the scenario promises {name} {promised}, there were {have.get(name, 0)}")
