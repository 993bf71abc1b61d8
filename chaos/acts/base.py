"""What every act has in common: its stage, its points, its waits, and the facts that it tells.

An act is one fault of the schedule on its way from armed to undone. The driver calls `strike` when the fault's point
is reached, `stop` when the phase that ends it is, and the `on_…` methods for everything else; each returns actions.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, IntEnum

from chaos.actions import Action, DriverSetTimer, LinkMeasured, Tell
from chaos.fault_kinds.base import FaultBase, PhaseTrigger
from services.host import Hold
from services.records import Fact, FaultActed, FaultArmed, FaultMissed, FaultUndone

Witness = dict[str, str | int | float]


class Stage(Enum):
    """Where a fault is. `ACTED` means that its witness was told."""

    WAITING = "waiting"
    STRUCK = "struck"
    ACTED = "acted"
    UNDONE = "undone"
    MISSED = "missed"


class Keeps(IntEnum):
    """What a strike does to the role that stands at the hold. At one point, acts strike in this order."""

    GOES_ON = 0
    STANDS = 1  # until the act releases it
    DIES = 2


@dataclass(slots=True)
class Board:
    """What the driver knows of the run and all acts share. `killed_by`: exits that were ordered, by fault."""

    lease_ms: float
    deadline_ms: float
    join_wait_ms: float
    now_ms: float = 0.0
    running: dict[str, int] = field(default_factory=dict)  # role -> launch
    killed_by: dict[str, str] = field(default_factory=dict)
    frozen_for: set[str] = field(default_factory=set)  # faults on whose account the coordinator's timers stand still
    awaited_by: dict[str, str] = field(default_factory=dict)  # worker on its way back or in -> the fault that waits
    revivers: set[str] = field(default_factory=set)  # faults that start again whomever they killed

    def is_lost(self, role: str) -> bool:
        """Whether the death of `role` is one that nobody makes good."""
        return self.killed_by.get(role, "") not in self.revivers


@dataclass(frozen=True, slots=True)
class Wait:
    """A bounded wait of an act. `what` completes "waits for …"."""

    timer: str
    what: str
    since_ms: float
    bound_ms: float


class Act:
    """One fault. Subclasses fill in `strike` and whatever they have to hear."""

    keeps = Keeps.GOES_ON

    def __init__(self, name: str, fault: FaultBase, board: Board) -> None:
        self.name = name
        self.board = board
        self.label = fault.label
        self.kind = fault.kind
        self.start = fault.starts
        self.until = fault.ends
        self.stage = Stage.WAITING
        self.armed_ms: float | None = None
        self.wait: Wait | None = None
        self._waits = 0

    # ------------------------------------------------------------ what the driver asks

    @property
    def settled(self) -> bool:
        """Nothing more is to come of it."""
        return self.stage in (Stage.UNDONE, Stage.MISSED)

    @property
    def acting(self) -> bool:
        """It has begun and is not undone."""
        return self.stage in (Stage.STRUCK, Stage.ACTED)

    @property
    def awaits(self) -> str:
        """What it waits for at this moment, for people."""
        if self.wait is not None:
            return f"{self.name} waits for {self.wait.what} since {self.wait.since_ms:.0f} ms"
        if self.stage is Stage.WAITING:
            return f"{self.name} waits for {point_text(self.start)}"
        if self.until is not None and not self.settled:
            return f"{self.name} waits for {point_text(self.until)} to be undone"
        return ""

    def late_in(self, step: int) -> frozenset[str]:
        """Workers that on its account may miss the deadline of this step."""
        return frozenset()

    def arm(self) -> list[Action]:
        """Tell, once, that it is armed."""
        if self.armed_ms is not None:
            return []
        self.armed_ms = self.board.now_ms
        return [Tell(FaultArmed(self.name, self.kind, self.label, point_witness(self.start)))]

    def strike(self, hold: Hold | None) -> list[Action]:
        """Its point is reached. `hold` is the one that its role stands at, None when a time was its point."""
        raise NotImplementedError

    @property
    def holds_back(self) -> bool:
        """Whether the role at the phase that ends it has to stand there for a while; the act releases it."""
        return False

    def stop(self, hold: Hold | None = None) -> list[Action]:
        """The phase that ends it is reached; a role stands at `hold`, or (None) the run has passed the phase."""
        return []

    def on_fact(self, fact: Fact) -> list[Action]:
        """The coordinator recorded this."""
        return []

    def on_launched(self, role: str, launch: int) -> list[Action]:
        """A role is up."""
        return []

    def on_exit(self, role: str, exit_code: int) -> list[Action]:
        """A role is gone, as some fault ordered."""
        return []

    def on_measured(self, event: LinkMeasured) -> list[Action]:
        """Its injector measured something."""
        return []

    def on_timer(self, timer: str) -> list[Action]:
        """One of its own timers fired."""
        if self.wait is None or self.wait.timer != timer:
            return []
        wait, self.wait = self.wait, None
        return self.gave_up(wait)

    def gave_up(self, wait: Wait) -> list[Action]:
        """A bounded wait ran out."""
        return self.miss(f"waited {wait.bound_ms:.0f} ms for {wait.what}, since {wait.since_ms:.0f} ms")

    def restore(self) -> list[Action]:
        """Undo at once what is not undone; the run ends. Told as missed or undone by `close`."""
        return []

    def close(self, reason: str) -> list[Action]:
        """The run ends: restore, and tell what became of it."""
        if self.settled:
            return []
        actions = self.restore()
        if self.stage is Stage.ACTED:
            return [*actions, *self.undone({"how": reason})]
        return [*actions, *self.miss(f"{reason}; {self.awaits}" if self.awaits else reason)]

    # ------------------------------------------------------------ for subclasses

    def begin_wait(self, what: str, bound_ms: float) -> list[Action]:
        """Wait for something, bounded; replaces the wait before."""
        self._waits += 1
        timer = f"{self.name}:{self._waits}"
        self.wait = Wait(timer, what, self.board.now_ms, bound_ms)
        return [DriverSetTimer(timer, bound_ms)]

    def begin_open_wait(self, what: str) -> None:
        """Wait for something in a later step. The opening of that step, or a run that stands still, bounds it."""
        self.wait = Wait("", what, self.board.now_ms, 0.0)

    def came_in(self, role: str, proved_after_step: int, due_step: int) -> list[Action]:
        """A complaint when a worker takes part from another step on than the schedule says."""
        if proved_after_step + 1 == due_step:
            return []
        return self.miss(f"{role} takes part from step {proved_after_step + 1} on, not from step {due_step}")

    def no_longer_awaited(self, role: str) -> None:
        """The worker is there, or is not to come any more."""
        if self.board.awaited_by.get(role) == self.name:
            del self.board.awaited_by[role]

    def acted(self, witness: Witness) -> list[Action]:
        """Tell the witness."""
        self.stage = Stage.ACTED
        return [Tell(FaultActed(self.name, witness))]

    def undone(self, witness: Witness) -> list[Action]:
        """Tell that it is undone."""
        self.stage, self.wait = Stage.UNDONE, None
        return [Tell(FaultUndone(self.name, witness))]

    def miss(self, reason: str) -> list[Action]:
        """Tell that it did not act, or not as scheduled."""
        self.stage, self.wait = Stage.MISSED, None
        for role in [role for role, fault in self.board.awaited_by.items() if fault == self.name]:
            del self.board.awaited_by[role]
        return [Tell(FaultMissed(self.name, reason))]


def point_text(point: object) -> str:
    """A trigger for people."""
    if isinstance(point, PhaseTrigger):
        chunk = f" after chunk {point.chunk}" if point.chunk else ""
        return f"{point.role} at {point.phase}{chunk} of step {point.step}"
    return f"{getattr(point, 'at_ms', 0):g} ms after the first step opened"


def point_witness(point: object) -> Witness:
    """A trigger as the facts have it."""
    if isinstance(point, PhaseTrigger):
        witness: Witness = {"role": point.role or "", "step": point.step, "phase": point.phase}
        return {**witness, "chunk": point.chunk} if point.chunk else witness
    return {"at_ms": getattr(point, "at_ms", 0.0)}
