"""What the coordinator knows of the step under way."""

from __future__ import annotations

from dataclasses import dataclass, field

from services.messages import Applied, Offer, Ready
from services.records import Closed, Committed, Opened


@dataclass(slots=True)
class StepState:
    """What is known of the step under way."""

    opened: Opened
    offers: dict[int, Offer] = field(default_factory=dict)
    left_out: dict[int, str] = field(default_factory=dict)
    attempt: int = 0  # number of the next attempt
    closed: Closed | None = None
    readies: dict[int, Ready] = field(default_factory=dict)
    committed: Committed | None = None
    applied: dict[int, Applied] = field(default_factory=dict)
    mismatched: int = 0

    def may_offer(self, worker: int) -> bool:
        """Dealt in this step, and not left out by an earlier close."""
        return str(worker) in self.opened.deals and worker not in self.left_out

    def reduced_values(self) -> str:
        """Who says that it holds which reduced value."""
        holders: dict[str, list[str]] = {}
        for worker in sorted(self.readies):
            holders.setdefault(self.readies[worker].reduced_digest, []).append(str(worker))
        return "; ".join(f"workers {', '.join(who)} hold {digest[:12]}…" for digest, who in holders.items())
