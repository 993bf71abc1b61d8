"""Straggle and pause: a worker that is late for one step, or stopped for longer than its lease."""

from __future__ import annotations

from chaos.actions import Action, DriverSetTimer, ReleaseHold, Resume, Suspend
from chaos.acts.base import Act, Board, Keeps, Stage, Wait, Witness, point_witness
from chaos.fault_kinds.roles import Pause, Straggle
from services.events import worker_id
from services.host import Hold
from services.records import Closed, Died, Fact, Opened, Proven

SLACK_MS = 10_000.0  # beyond twice what the protocol itself allows


class StraggleAct(Act):
    """struck (stands at `offer`) -> the step closed without it: acted, released, undone."""

    keeps = Keeps.STANDS

    def __init__(self, name: str, fault: Straggle, board: Board) -> None:
        super().__init__(name, fault, board)
        self.role = fault.target
        self.step = fault.step
        self._hold: Hold | None = None
        self._closed: Closed | None = None

    def strike(self, hold: Hold | None) -> list[Action]:
        assert hold is not None, "a straggler stands at a hold"
        self.stage, self._hold = Stage.STRUCK, hold
        if self._closed is not None:
            return self._release()
        return self.begin_wait(f"step {self.step} to close without {self.role}", 2 * self.board.deadline_ms + SLACK_MS)

    def late_in(self, step: int) -> frozenset[str]:
        return frozenset({self.role}) if step == self.step else frozenset()

    def on_fact(self, fact: Fact) -> list[Action]:
        if not isinstance(fact, Closed) or fact.step != self.step or self._closed is not None:
            return []
        self._closed = fact  # perhaps before we hear that it stands: its records are stored first
        return self._release() if self.stage is Stage.STRUCK else []

    def gave_up(self, wait: Wait) -> list[Action]:
        return self.restore() + super().gave_up(wait)

    def restore(self) -> list[Action]:
        if self._hold is None:
            return []
        hold, self._hold = self._hold, None
        return [ReleaseHold(self.role, hold.name)]

    def _release(self) -> list[Action]:
        assert self._closed is not None
        released = self.restore()
        reason = dict(self._closed.left_out).get(worker_id(self.role))
        if reason is None:
            return released + self.miss(f"step {self.step} closed and did not name {self.role} as left out")
        witness: Witness = {**point_witness(self.start), "left_out": reason, "attempt": self._closed.attempt}
        return released + self.acted(witness) + self.undone({"how": "released when the step had closed"})


class PauseAct(Act):
    """struck (stopped) -> lease ended, or time over: acted, continued -> proved again: undone."""

    keeps = Keeps.STANDS

    def __init__(self, name: str, fault: Pause, board: Board) -> None:
        super().__init__(name, fault, board)
        self.role = fault.target
        self.returns_at = fault.return_at
        self.for_ms = fault.for_ms
        self._hold: Hold | None = None
        self._stopped_ms: float | None = None

    def strike(self, hold: Hold | None) -> list[Action]:
        if self.role not in self.board.running:
            return self.miss(f"{self.role} was not running")
        self.stage, self._hold, self._stopped_ms = Stage.STRUCK, hold, self.board.now_ms
        if self.for_ms is not None:
            return [Suspend(self.role), DriverSetTimer(f"{self.name}:over", self.for_ms)]
        bound_ms = 2 * self.board.lease_ms + SLACK_MS
        return [Suspend(self.role), *self.begin_wait(f"the lease of {self.role} to end", bound_ms)]

    def on_timer(self, timer: str) -> list[Action]:
        if timer == f"{self.name}:over" and self.stage is Stage.STRUCK:
            witness: Witness = {**point_witness(self.start), "stopped_ms": self._stopped_for()}
            return self.acted(witness) + self.restore() + self.undone({"how": "continued after its time"})
        return super().on_timer(timer)

    def late_in(self, step: int) -> frozenset[str]:
        return frozenset({self.role}) if self.acting else frozenset()

    def on_fact(self, fact: Fact) -> list[Action]:
        match fact:
            case Died() if self.stage is Stage.STRUCK and self.for_ms is None and self._is_mine(fact.worker):
                witness: Witness = {
                    **point_witness(self.start),
                    "incarnation": fact.incarnation,
                    "lost_by": fact.reason,
                    "stopped_ms": self._stopped_for(),
                }
                self.board.awaited_by[self.role] = self.name
                self.begin_open_wait(f"{self.role} to be back in step {self.returns_at}")
                return self.acted(witness) + self.restore()
            case Proven() if self.stage is Stage.ACTED and self._is_mine(fact.worker):
                self.no_longer_awaited(self.role)
                done = {"proved_after_step": fact.step, "incarnation": fact.incarnation}
                return self.came_in(self.role, fact.step, self.returns_at or 0) or self.undone({**done})
            case Opened() if self.stage is Stage.ACTED and fact.step >= (self.returns_at or 0):
                return self.miss(f"step {fact.step} opened without {self.role}, which had to be back")
        return []

    def on_exit(self, role: str, exit_code: int) -> list[Action]:
        if role != self.role or not self.acting:
            return []
        self._stopped_ms = self._hold = None
        if self.stage is Stage.STRUCK:
            return self.miss(f"{role} was killed while it was stopped")
        if not self.board.is_lost(role):
            return []
        self.no_longer_awaited(role)
        return self.undone({"cut_short_by": self.board.killed_by[role]})

    def gave_up(self, wait: Wait) -> list[Action]:
        return self.restore() + super().gave_up(wait)

    def restore(self) -> list[Action]:
        """Continue it, and let it go on from its hold; once."""
        if self._stopped_ms is None:
            return []
        hold, self._hold, self._stopped_ms = self._hold, None, None
        resume: list[Action] = [Resume(self.role)]
        return resume if hold is None else [*resume, ReleaseHold(self.role, hold.name)]

    def _is_mine(self, worker: int) -> bool:
        return worker == worker_id(self.role)

    def _stopped_for(self) -> float:
        return round(self.board.now_ms - (self._stopped_ms or 0.0), 3)
