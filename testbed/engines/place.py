"""Where the processes of a run's roles live: on this machine, or in containers. What the two engines do not share.

`LocalRun` drives a run and does not know where its roles are; it asks a `Place`. Duties of a place:

1. `start`, `kill`, `terminate`, `suspend` and `resume` return at once; those for one role happen in that order.
   `apply` and `undo` return when it is done: what stands at the point of a fault must not go on before it is there.
2. `exited` is called once for each launch whose process is gone, in the loop. What could not be done is `failed`.
3. `close` leaves nothing of what was started, whatever happened before, `open` cut short included.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from chaos.actions import ApplyLinkFault, LinkMeasured
from services.shell.driver_link import LinksSeen
from testbed.engines.base import EngineError


@dataclass(frozen=True, slots=True)
class Ears:
    """Who hears what happens in a place; called in the loop."""

    exited: Callable[[str, int, int], None]  # role, launch, exit code
    failed: Callable[[EngineError], None]
    measured: Callable[[LinkMeasured], None]


class Place(Protocol):
    """Belongs to one asyncio loop. Duty of the caller: `await close()` on every way out."""

    @property
    def driver_listen(self) -> str:
        """Where the driver listens for the control links of the roles ("host:0"); known once the place is open."""
        ...

    @property
    def running(self) -> Mapping[str, bool]:
        """Role -> whether it is suspended, of those whose process runs."""
        ...

    async def open(self, ears: Ears) -> None:
        """Make what the roles need before the first of them starts. Raises EngineError."""
        ...

    def start(self, role: str, launch: int, driver: str) -> None:
        """Start one launch; `driver` is where it finds us."""
        ...

    def kill(self, role: str) -> None:
        """SIGKILL."""
        ...

    def terminate(self, role: str) -> None:
        """SIGTERM: the role ends by itself."""
        ...

    def suspend(self, role: str) -> None:
        """Nothing of it runs any more, its connections stay open."""
        ...

    def resume(self, role: str) -> None:
        """It goes on."""
        ...

    async def arrived(self, role: str, address: str) -> None:
        """A launch of the role listens at `address`; whoever dials it finds it on return. Raises EngineError."""
        ...

    def regrouped(self, generation: int) -> None:
        """The run has a new generation."""
        ...

    def from_here(self, role: str, address: str) -> str:
        """Where this process reaches a role that says it listens at `address`."""
        ...

    def seen(self, role: str, report: LinksSeen) -> None:
        """What a role says that came in over its links."""
        ...

    async def apply(self, fault: ApplyLinkFault) -> None:
        """Put a fault on a link; it is there on return. Raises EngineError."""
        ...

    async def undo(self, fault: str) -> None:
        """Take a fault off every link that it is on; it is gone on return. Raises EngineError."""
        ...

    async def close(self) -> None:
        """End and remove everything that was started. Safe to call twice."""
        ...
