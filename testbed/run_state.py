"""What a run looks like at this moment, put together from what the engine tells. Pure: no clock, no output.

`RunState` is a `ProgressSink` that only remembers; `testbed.live` draws it. `describe` says a fact in one line for
people, or nothing when it is not worth one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from services.events import shard_name, worker_name
from services.records import (
    Admitted,
    Committed,
    Contributed,
    Died,
    Fact,
    FaultActed,
    FaultArmed,
    FaultMissed,
    FaultUndone,
    Finished,
    Healed,
    Recovered,
    Refused,
    Regrouped,
    RolledBack,
    ShardPrepared,
    ShardsCommitted,
    ShardsEvaluated,
    ShardsRolledBack,
    ShardsSwapped,
    ShardSwapped,
    Stale,
    StateApplied,
    StepApplied,
)

_PLAIN_BELOW = 1e6  # what is larger than this reads better with an exponent


@dataclass(slots=True)
class RoleState:
    """One role as last heard of. `step` is the last that it applied (workers) or decided (coordinator)."""

    launch: int = 0
    state: str = "expected"
    step: int = 0
    loss: float | None = None


@dataclass(slots=True)
class Waiting:
    """A wait that goes on."""

    what: str
    missing: tuple[str, ...]
    since_s: float
    deadline_s: float

    def __str__(self) -> str:
        missing = f"missing {', '.join(self.missing)}, " if self.missing else ""
        return f"waiting for {self.what}: {missing}{self.since_s:.0f} s so far, {self.deadline_s:.0f} s at most"


@dataclass(slots=True)
class RunState:
    """The whole picture."""

    steps: int
    roles: dict[str, RoleState] = field(default_factory=dict)
    step: int = 0
    generation: int = 0
    loss: float | None = None
    effective_batch: int = 0
    members: int = 0
    evaluation: float | None = None  # of layer-sharded training
    sharded: bool = False
    faults: dict[str, str] = field(default_factory=dict)  # fault -> "armed" | "acting" | "undone" | "missed: why"
    verdicts: dict[str, str] = field(default_factory=dict)
    last_note: str = ""
    waits_for: Waiting | None = None
    _wait_said: tuple[str, tuple[str, ...]] = ("", ())
    _wait_again_s: float = 0.0

    def role(self, role: str, launch: int, state: str) -> None:
        """Remember it."""
        row = self.roles.setdefault(role, RoleState())
        row.launch, row.state = launch, state

    def note(self, text: str) -> None:
        """Remember the last one."""
        self.last_note = text

    def judged(self, so_far: Mapping[str, str]) -> None:
        """Remember them."""
        self.verdicts = dict(so_far)

    def waiting(self, what: str, missing: tuple[str, ...], since_s: float, deadline_s: float) -> None:
        """Remember it until the next fact."""
        self.waits_for = Waiting(what, missing, since_s, deadline_s)

    def wait_line(self) -> str:
        """How the wait that goes on reads, if it is to be said now: the longer it lasts, the rarer that is."""
        wait = self.waits_for
        if wait is None or (self._wait_said == (wait.what, wait.missing) and wait.since_s < self._wait_again_s):
            return ""
        self._wait_said, self._wait_again_s = (wait.what, wait.missing), 2.0 * wait.since_s
        return str(wait)

    def fact(self, role: str, fact: Fact) -> None:
        """Take what concerns the picture from a fact."""
        self.waits_for, self._wait_said = None, ("", ())
        match fact:
            case Committed():
                self.step, self.generation = fact.step, fact.generation
                self.loss, self.effective_batch = fact.loss, fact.total
                self._row(role).step = fact.step
            case Regrouped() | Recovered():
                self.generation = fact.generation
                if isinstance(fact, Regrouped):
                    self.members = len(fact.members)
            case RolledBack() | ShardsRolledBack():
                self.step, self.generation = fact.to_step, fact.generation
            case FaultArmed() | FaultActed() | FaultUndone() | FaultMissed():
                self.faults[fact.fault] = _fault_state(fact)
            case _:
                self._worker_fact(fact)
                self._shard_fact(role, fact)

    def active_faults(self) -> list[str]:
        """Faults that act and are not undone."""
        return sorted(fault for fault, state in self.faults.items() if state == "acting")

    def _worker_fact(self, fact: Fact) -> None:
        match fact:
            case StepApplied():
                for worker, *_ in fact.applied:
                    self._row(worker_name(worker)).step = fact.step
            case StateApplied():
                self._row(worker_name(fact.worker)).step = fact.step
            case Contributed():
                self._row(worker_name(fact.worker)).loss = fact.loss

    def _shard_fact(self, role: str, fact: Fact) -> None:
        match fact:
            case ShardsCommitted():
                self.step, self.generation, self.loss = fact.step, fact.generation, fact.loss
                self._row(role).step = fact.step
            case ShardsSwapped():
                for shard, *_ in fact.swapped:
                    self._row(shard_name(shard)).step = fact.step
            case ShardSwapped():
                self._row(role).step = fact.step
            case ShardPrepared() if fact.loss:
                self._row(role).loss = fact.loss
            case ShardsEvaluated():
                self.evaluation = fact.loss

    def _row(self, role: str) -> RoleState:
        return self.roles.setdefault(role, RoleState())


def describe(role: str, fact: Fact, sharded: bool = False) -> str:
    """One line about a fact that people want to hear of; empty for the others (steps are told by the clock)."""
    teller = _TELLERS.get(type(fact))
    line = "" if teller is None else teller(role, fact).rstrip()
    about_members = sharded and isinstance(fact, Admitted | Died | Regrouped)  # these know a member by its number
    return line.replace("worker", "shard") if about_members else line


def _fault_state(fact: FaultArmed | FaultActed | FaultUndone | FaultMissed) -> str:
    match fact:
        case FaultArmed():
            return "armed"
        case FaultActed():
            return "acting"
        case FaultUndone():
            return "undone"
        case FaultMissed():
            return f"missed: {fact.reason}"


def _admitted(_: str, fact: Admitted) -> str:
    return f"{worker_name(fact.worker)} admitted, incarnation {fact.incarnation}"


def _died(_: str, fact: Died) -> str:
    return f"{worker_name(fact.worker)} is dead at step {fact.step}: {fact.reason}"


def _regrouped(_: str, fact: Regrouped) -> str:
    names = ", ".join(str(worker) for worker, _ in fact.members) or "none"
    return f"generation {fact.generation}: workers {names} ({fact.reason})"


def _refused(role: str, fact: Refused) -> str:
    return f"{role} refused {fact.what} from {fact.source} at step {fact.step}: {fact.reason}"


def _recovered(_: str, fact: Recovered) -> str:
    return f"coordinator recovered at step {fact.step}, generation {fact.generation}"


def _rolled_back(_: str, fact: RolledBack) -> str:
    return f"rolled back to step {fact.to_step}: {fact.reason}"


def _healed(_: str, fact: Healed) -> str:
    return f"all faults undone; {fact.clean_steps} clean steps must follow within {fact.bound_ms:g} ms"


def _finished(_: str, fact: Finished) -> str:
    return f"coordinator: {fact.condition} at step {fact.step} {fact.reason}"


def _armed(_: str, fact: FaultArmed) -> str:
    trigger = ", ".join(f"{key} {value}" for key, value in fact.trigger.items() if value not in ("", 0))
    return f"fault {fact.fault} armed: {fact.kind} {fact.target} at {trigger}"


def _acted(_: str, fact: FaultActed) -> str:
    return f"fault {fact.fault} acted: " + ", ".join(f"{key} {value}" for key, value in fact.witness.items())


def _undone(_: str, fact: FaultUndone) -> str:
    return f"fault {fact.fault} undone"


def _missed(_: str, fact: FaultMissed) -> str:
    return f"fault {fact.fault} missed: {fact.reason}"


def _shards_rolled_back(_: str, fact: ShardsRolledBack) -> str:
    return f"all shards rolled back to step {fact.to_step}: {fact.reason}"


def _evaluated(_: str, fact: ShardsEvaluated) -> str:
    return f"evaluation after step {fact.step}: loss {fact.loss!r}"


def _stale(_: str, fact: Stale) -> str:
    return (
        f"stale boundary at {shard_name(fact.shard)}: {fact.direction}, step {fact.step},"
        f" micro-batch {fact.micro_batch}, cut {fact.cut}, age {fact.age}, bound {fact.bound}"
    )


_TELLERS: dict[type[Fact], Callable[[str, Any], str]] = {
    Admitted: _admitted,
    Died: _died,
    Regrouped: _regrouped,
    Refused: _refused,
    Recovered: _recovered,
    RolledBack: _rolled_back,
    Healed: _healed,
    Finished: _finished,
    FaultArmed: _armed,
    FaultActed: _acted,
    FaultUndone: _undone,
    FaultMissed: _missed,
    ShardsRolledBack: _shards_rolled_back,
    ShardsEvaluated: _evaluated,
    Stale: _stale,
}


def loss_text(loss: float | None, digits: int = 4, unknown: str = "-") -> str:
    """For people: one of hundreds of digits in the short form."""
    if loss is None:
        return unknown
    return f"{loss:.{digits}f}" if abs(loss) < _PLAIN_BELOW else f"{loss:.6g}"
