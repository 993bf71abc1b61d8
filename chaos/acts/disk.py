"""Damaged checkpoints: the witness is the rollback that had to pass them over."""

from __future__ import annotations

from chaos.actions import Action
from chaos.actions import CorruptCheckpoint as Corrupt
from chaos.acts.base import Act, Board, Stage, Witness
from chaos.acts.kills import BACK_WAIT_MS
from chaos.fault_kinds.disks import CorruptCheckpoint
from services.host import Hold
from services.records import Fact, RolledBack


class CorruptAct(Act):
    """struck (damaged) -> the run went back past it: acted and undone."""

    def __init__(self, name: str, fault: CorruptCheckpoint, board: Board) -> None:
        super().__init__(name, fault, board)
        self.how = fault.how
        self.count = fault.count

    def strike(self, hold: Hold | None) -> list[Action]:
        self.stage = Stage.STRUCK
        return [Corrupt(self.name, self.how, self.count), *self.begin_wait("a rollback", BACK_WAIT_MS)]

    def on_fact(self, fact: Fact) -> list[Action]:
        if not isinstance(fact, RolledBack) or self.stage is not Stage.STRUCK:
            return []
        named = len(fact.damaged)
        if self.how != "remove_pointer" and named < self.count:
            return self.miss(f"{self.count} checkpoints were damaged, the rollback to {fact.name} named {named}")
        witness: Witness = {"how": self.how, "used": fact.name, "rolled_back_to": fact.to_step}
        if named:
            witness["damaged"] = "; ".join(f"{name}: {why}" for name, why in fact.damaged)
        return self.acted(witness) + self.undone({"how": "the run went back past it"})
