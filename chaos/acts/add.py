"""Add: a new worker is started one step ahead, and the open of its step waits for it."""

from __future__ import annotations

from chaos.actions import Action, Launch
from chaos.acts.base import Act, Board, Stage, Witness
from chaos.acts.kills import LAUNCH_WAIT_MS
from chaos.fault_kinds.roles import AddWorker
from services.events import worker_id
from services.host import Hold
from services.records import Fact, Opened, Proven


class AddAct(Act):
    """struck (launched) -> up: acted -> proved: undone, in that it stays."""

    def __init__(self, name: str, fault: AddWorker, board: Board) -> None:
        super().__init__(name, fault, board)
        self.role = fault.target
        self.step = fault.step

    def strike(self, hold: Hold | None) -> list[Action]:
        self.stage = Stage.STRUCK
        self.board.awaited_by[self.role] = self.name
        return [Launch(self.role), *self.begin_wait(f"{self.role} to be up", LAUNCH_WAIT_MS)]

    def on_launched(self, role: str, launch: int) -> list[Action]:
        if role != self.role or self.stage is not Stage.STRUCK:
            return []
        self.wait = None
        return self.acted({"role": role, "launch": launch})

    def on_exit(self, role: str, exit_code: int) -> list[Action]:
        if role != self.role or self.stage is not Stage.ACTED or not self.board.is_lost(role):
            return []
        self.no_longer_awaited(role)
        return self.undone({"cut_short_by": self.board.killed_by[role]})

    def on_fact(self, fact: Fact) -> list[Action]:
        match fact:
            case Proven() if self.acting and fact.worker == worker_id(self.role):
                self.no_longer_awaited(self.role)
                stays: Witness = {"how": "nothing to undo: it stays", "proved_after_step": fact.step}
                return self.came_in(self.role, fact.step, self.step) or self.undone(stays)
            case Opened() if self.acting and fact.step >= self.step:
                return self.miss(f"step {fact.step} opened without {self.role}, which was to be new in it")
        return []
