"""What a standing testbed looks like, and what its driver tells whoever waits for it to be up."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from chaos.fault_kinds.links import LinkFault
from chaos.faults import AnyFault
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

    def why_unseen(self, fault: AnyFault, heard: Collection[tuple[str, str]]) -> str:
        """What keeps a fault from being seen: who is not there, or a link over which nothing came; "" if neither."""
        links = fault.links if isinstance(fault, LinkFault) else ()
        states = {role: self.roles[role].state for link in links for role in link if role in self.roles}
        away = [f"{role} {state}" for role, state in sorted(states.items()) if not _goes_on(state)]
        if away:
            return f"nothing travels there while {', '.join(away)}; gradstorm heal starts again who is dead"
        quiet = [f"{source}→{target}" for source, target in links if (source, target) not in heard]
        return f"nothing has come over {', '.join(quiet)} so far" if quiet else ""

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


def _goes_on(state: str) -> bool:
    """Whether messages come and go: also of a role that stands at a hold."""
    return state == "up" or state.startswith("held at")
