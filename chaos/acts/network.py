"""Faults of links: applied at their point, measured by the injector, undone after a time or at a phase.

At the phase that ends a fault the role stands until its effect was measured, so that a run which is fast does not
outrun the measurement.
"""

from __future__ import annotations

from chaos.actions import Action, ApplyLinkFault, DriverSetTimer, LinkMeasured, ReleaseHold, UndoLinkFault
from chaos.acts.base import Act, Board, Stage, Wait, Witness
from chaos.fault_kinds.base import is_worker
from chaos.fault_kinds.connections import SlowClose
from chaos.fault_kinds.links import Cut, Flap, LastingLinkFault, LinkFault
from services.events import COORDINATOR, worker_id, worker_name
from services.host import Hold
from services.records import Died, Fact, Opened, Proven

MEASURE_WAIT_MS = 10_000.0
SLACK_MS = 10_000.0


class LinkAct(Act):
    """struck (applied) -> measured during: acted -> taken off, measured after: undone. A reset is taken off at once."""

    def __init__(self, name: str, fault: LinkFault, board: Board) -> None:
        super().__init__(name, fault, board)
        self.fault = fault
        self._applied = False
        self._leaving = False  # taken off for good; the last measurement is still to come
        self._held: Hold | None = None  # where a role stands until the effect is measured

    def strike(self, hold: Hold | None) -> list[Action]:
        self.stage = Stage.STRUCK
        return self.apply() + self.after_strike()

    def after_strike(self) -> list[Action]:
        """What ends it."""
        if not isinstance(self.fault, LastingLinkFault):
            return self.leave()
        if self.fault.for_ms is not None:
            return [DriverSetTimer(f"{self.name}:over", self.fault.for_ms)]
        return []

    @property
    def holds_back(self) -> bool:
        return self._held is not None

    def stop(self, hold: Hold | None = None) -> list[Action]:
        if not self.acting or self._leaving:
            return []
        if hold is not None and self.stage is Stage.STRUCK:
            self._held = hold
            return self.begin_wait("its effect to be measured", MEASURE_WAIT_MS)
        return self.leave()

    def on_timer(self, timer: str) -> list[Action]:
        if timer == f"{self.name}:over":
            return self.leave()
        return super().on_timer(timer)

    def on_measured(self, event: LinkMeasured) -> list[Action]:
        if event.fault != self.name or self.settled:
            return []
        if event.moment == "during":
            told = self.acted(dict(event.figures)) if self.stage is Stage.STRUCK else []
            return told + self.leave() if self._held is not None else told
        return self.conclude(dict(event.figures)) if event.moment == "after" and self._leaving else []

    def gave_up(self, wait: Wait) -> list[Action]:
        if self._held is not None:
            return self.leave()
        if self.stage is Stage.ACTED:
            return self.undone({"how": f"taken off; {wait.what} did not come"})
        return super().gave_up(wait)

    def restore(self) -> list[Action]:
        hold, self._held = self._held, None
        let_go: list[Action] = [] if hold is None else [ReleaseHold(hold.role, hold.name)]
        if not self._applied:
            return let_go
        self._applied = False
        return [UndoLinkFault(self.name), *let_go]

    # ------------------------------------------------------------ inside

    def apply(self) -> list[Action]:
        """On every link of it."""
        self._applied = True
        kind, settings = self.fault.injected_kind, self.fault.settings
        return [ApplyLinkFault(self.name, kind, source, target, settings) for source, target in self.fault.links]

    def leave(self) -> list[Action]:
        """Take it off for good, and wait for the last measurement."""
        if self._leaving or not self.acting:
            return []
        self._leaving = True
        return self.restore() + self.begin_wait("the measurement after it", MEASURE_WAIT_MS)

    def conclude(self, figures: Witness) -> list[Action]:
        """The last measurement is there."""
        if self.stage is Stage.ACTED:
            return self.undone(figures)
        if figures.get("affected"):
            return self.acted(figures) + self.undone(figures)
        return self.miss(f"it met no message ({figures.get('messages', 0)} crossed its links while it lasted)")


class EvictingAct(LinkAct):
    """A partition past the lease: taken off once everybody it cuts off is out, undone when they are all back."""

    def __init__(self, name: str, fault: Cut, board: Board) -> None:
        super().__init__(name, fault, board)
        self.returns_at = fault.return_at or 0
        self._cut_off = frozenset(fault.cut_off)
        self._inside = {worker_id(role) for role in fault.cut_off}
        self._outside: set[int] = set()
        self._after: Witness | None = None

    def after_strike(self) -> list[Action]:
        return self.begin_wait(f"the leases of {self._names(self._inside)} to end", 2 * self.board.lease_ms + SLACK_MS)

    def late_in(self, step: int) -> frozenset[str]:
        return self._cut_off if self.acting else frozenset()

    def on_fact(self, fact: Fact) -> list[Action]:
        match fact:
            case Died(worker=worker) if self.acting and worker in self._inside:
                self._inside.discard(worker)
                self._outside.add(worker)
                self.board.awaited_by[worker_name(worker)] = self.name
                return [] if self._inside else self.leave()
            case Proven(worker=worker) if self.acting and worker in self._outside:
                name = worker_name(worker)
                return self.came_in(name, fact.step, self.returns_at) or self._settle(worker)
            case Opened(step=step) if self.acting and step >= self.returns_at and self._inside | self._outside:
                return self.restore() + self.miss(
                    f"step {step} opened without {self._names(self._inside | self._outside)}"
                )
        return []

    def on_exit(self, role: str, exit_code: int) -> list[Action]:
        if not is_worker(role) or worker_id(role) not in self._outside or not self.board.is_lost(role):
            return []
        return self._settle(worker_id(role))

    def gave_up(self, wait: Wait) -> list[Action]:
        if self._leaving:
            return self.conclude({})
        return self.restore() + super().gave_up(wait)

    def conclude(self, figures: Witness) -> list[Action]:
        self._after = figures
        told = self.acted(figures) if self.stage is Stage.STRUCK and figures.get("affected") else []
        if self._outside:  # a slow measurement may come after they are back
            self.begin_open_wait(f"{self._names(self._outside)} to be back in step {self.returns_at}")
        return told + self._all_back()

    def _settle(self, worker: int) -> list[Action]:
        self._outside.discard(worker)
        self.no_longer_awaited(worker_name(worker))
        return self._all_back()

    def _all_back(self) -> list[Action]:
        return super().conclude(self._after) if self._after is not None and not self._outside else []

    def _names(self, workers: set[int]) -> str:
        return ", ".join(worker_name(worker) for worker in sorted(workers))


class FlapAct(LinkAct):
    """Down and up again, `cycles` times."""

    def __init__(self, name: str, fault: Flap, board: Board) -> None:
        super().__init__(name, fault, board)
        self.flap = fault
        self._cycle = 1

    def after_strike(self) -> list[Action]:
        return [DriverSetTimer(f"{self.name}:up", self.flap.down_ms)]

    def on_timer(self, timer: str) -> list[Action]:
        if self.settled or self._leaving:
            return super().on_timer(timer)
        if timer == f"{self.name}:up":
            if self._cycle == self.flap.cycles:
                return self.leave()
            return [*self.restore(), DriverSetTimer(f"{self.name}:down", self.flap.up_ms)]
        if timer == f"{self.name}:down":
            self._cycle += 1
            return self.apply() + self.after_strike()
        return super().on_timer(timer)


class SlowCloseAct(LinkAct):
    """The ends of connections are told late: seen by how late the death of the one who has them is known.

    That is counted from when this driver heard of the death. On a busy machine it hears late itself, of a container
    above all, so half of the delay must be seen; a death that nothing keeps back is known in some tens of ms.
    """

    def __init__(self, name: str, fault: SlowClose, board: Board) -> None:
        super().__init__(name, fault, board)
        self._delay_ms = fault.delay_ms
        self._gone_ms = {source: 0.0 for source, target in fault.links if target == COORDINATOR and is_worker(source)}

    def on_exit(self, role: str, exit_code: int) -> list[Action]:
        if role in self._gone_ms and self.acting:
            self._gone_ms[role] = self.board.now_ms
        return []

    def on_fact(self, fact: Fact) -> list[Action]:
        if not isinstance(fact, Died) or not (gone_ms := self._gone_ms.get(worker_name(fact.worker), 0.0)):
            return []
        known_after_ms = round(self.board.now_ms - gone_ms, 1)
        if not self.acting or known_after_ms < self._delay_ms / 2.0:
            return []
        witness: Witness = {"worker": fact.worker, "known_after_ms": known_after_ms, "lost_by": fact.reason}
        return self.acted(witness) + self.restore() + self.undone({"how": "taken off"})

    def leave(self) -> list[Action]:
        if not self.acting:
            return []
        return self.restore() + self.miss("no death of those whose connections it keeps open was known late")
