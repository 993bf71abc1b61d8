"""What a standing testbed looks like, and what its driver tells whoever waits for it to be up."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from services.records import Fact, FaultActed, FaultArmed, FaultMissed, FaultUndone
from testbed.run_state import RunState, describe

Tell = Callable[[dict[str, Any]], None]


class Picture(RunState):
    """A `ProgressSink` that remembers, and passes on what a person who waits wants to hear."""

    def __init__(self, steps: int, tell: Tell) -> None:
        super().__init__(steps=steps)
        self._tell = tell
        self._of_faults: dict[str, dict[type[Fact], str]] = {}

    def told(self, fault: str) -> str:
        """How a fault was seen to act, or why it was not; empty when neither was heard yet."""
        said = self._of_faults.get(fault, {})
        return said.get(FaultActed) or said.get(FaultMissed, "")

    def note(self, text: str) -> None:
        super().note(text)
        self._tell({"note": text})

    def waiting(self, what: str, missing: tuple[str, ...], since_s: float, deadline_s: float) -> None:
        super().waiting(what, missing, since_s, deadline_s)
        if line := self.wait_line():
            self._tell({"waiting": line})

    def fact(self, role: str, fact: Fact) -> None:
        super().fact(role, fact)
        if isinstance(fact, FaultArmed | FaultActed | FaultUndone | FaultMissed):
            self._of_faults.setdefault(fact.fault, {})[type(fact)] = describe(role, fact)
