"""Bugs after which a run does not go on, or goes on too late, or ends too early."""

from __future__ import annotations

from services.roles.coordinator import Coordinator
from services.roles.peers import Peer
from testbed.plants.registry import Patch, plant


@plant("lease-never-ends", invariant="liveness", scenario="impatient-kill")
def lease_never_ends() -> list[Patch]:
    """Neither a broken link nor the end of a lease is ever taken for a death."""
    original = Coordinator._lose

    def lose(self: Coordinator, peer: Peer, reason: str) -> None:
        if reason not in ("link broken", "lease ended"):
            original(self, peer, reason)

    return [(Coordinator, "_lose", lose)]


@plant("dead-joiner-awaited", invariant="liveness", scenario="impatient-joiner")
def dead_joiner_awaited() -> list[Patch]:
    """An open waits for a joiner that has died on its way in."""
    original = Coordinator._awaited

    def awaited(self: Coordinator) -> list[int]:
        return sorted({*original(self), *self._given_up})

    return [(Coordinator, "_awaited", awaited)]


@plant("finished-early", invariant="liveness")
def finished_early() -> list[Patch]:
    """The run is over one step before its last."""
    original = Coordinator._open_next

    def open_next(self: Coordinator) -> None:
        if self.step >= self.config.steps - 1:
            self._finish()
        else:
            original(self)

    return [(Coordinator, "_open_next", open_next)]


@plant("dead-server-awaited", invariant="liveness", scenario="impatient-server", strategy="ps")
def dead_server_awaited() -> list[Patch]:
    """An attempt whose server died is not tried again, neither by the new server nor by the clock."""
    original = Coordinator._try_again

    def try_again(self: Coordinator, reason: str) -> None:
        if "server" not in reason and "stalled" not in reason:
            original(self, reason)

    return [(Coordinator, "_try_again", try_again)]
