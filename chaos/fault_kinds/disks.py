"""Faults of what lies on disk."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from chaos.fault_kinds.base import FaultBase, PhaseTrigger, TimeTrigger, Trigger, with_role
from services.events import COORDINATOR


class CorruptCheckpoint(FaultBase):
    """The newest checkpoints are damaged. Shows only when the run then needs one: kill everyone at the same point."""

    able: ClassVar[frozenset[str]] = frozenset({"sim", "local", "containers"})

    kind: Literal["corrupt_checkpoint"]
    how: Literal["truncate", "flip", "zero", "remove_pointer"] = "flip"
    """Cut short, one bit flipped, emptied, or the pointer to the newest removed."""
    count: Annotated[int, Field(ge=1)] = 1
    """How many of the newest."""
    trigger: Trigger
    """Where the coordinator stands when it happens."""

    @property
    def label(self) -> str:
        return "checkpoints"

    @property
    def starts(self) -> PhaseTrigger | TimeTrigger:
        return with_role(self.trigger, COORDINATOR)
