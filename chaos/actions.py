"""What the driver hears from an engine, and what it asks of one.

The driver (`chaos.driver.Driver`) is a pure state machine like the roles: it decides when a fault of the schedule is
armed, acts and is undone. An engine carries out its actions and feeds it what happened. The same driver runs on every
engine, so that a schedule means the same thing on each. Duties of the engine:

1. Feed one event at a time with a `now_ms` that never falls; carry out the actions in order.
2. `ArmHold` reaches a role before it handles its next event, and holds are armed again by the driver after a relaunch.
3. Report a `RoleStood` only after the records so far of that role are stored (or the verifier is not up).
4. While `FreezeTimers` is in force the coordinator's clock and timers stand still, until `ThawTimers`.
5. Answer every `Kill` with one `RoleExited`; `Launch` with one `RoleLaunched`.
6. At the end, and on any exit, undo everything that is not undone.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from services.host import Hold
from services.records import Fact

# ---------------------------------------------------------------- events


@dataclass(frozen=True, slots=True)
class RunBegan:
    """Every role of the first cast is about to be launched. Holds may be armed now."""


@dataclass(frozen=True, slots=True)
class RoleLaunched:
    role: str
    launch: int


@dataclass(frozen=True, slots=True)
class RoleStood:
    """The role stands at the hold (or, with `stand` False, passed it)."""

    role: str
    hold: str


@dataclass(frozen=True, slots=True)
class RoleObserved:
    """A fact that a role recorded (coordinator facts always; others as the engine finds convenient)."""

    role: str
    fact: Fact


@dataclass(frozen=True, slots=True)
class RoleExited:
    """The role's process is gone. `exit_code` as the parent sees it (-9 for SIGKILL; the simulator says -9 too)."""

    role: str
    launch: int
    exit_code: int


@dataclass(frozen=True, slots=True)
class DriverTimer:
    name: str


@dataclass(frozen=True, slots=True)
class LinkMeasured:
    """What an injector measured of a network fault: "before" | "during" | "after", and figures with units in names."""

    fault: str
    moment: str
    figures: dict[str, str | int | float]


DriverEvent = RunBegan | RoleLaunched | RoleStood | RoleObserved | RoleExited | DriverTimer | LinkMeasured


# ---------------------------------------------------------------- actions


@dataclass(frozen=True, slots=True)
class ArmHold:
    hold: Hold


@dataclass(frozen=True, slots=True)
class ReleaseHold:
    """Let the role go on from the hold it stands at, or disarm a hold that it has not reached."""

    role: str
    hold: str


@dataclass(frozen=True, slots=True)
class FreezeTimers:
    """The coordinator's timers stand still."""


@dataclass(frozen=True, slots=True)
class ThawTimers:
    pass


@dataclass(frozen=True, slots=True)
class Kill:
    """SIGKILL. `lossy`: the machine loses power, so what the role had not synced is lost too (simulator only).

    `gently`: SIGTERM instead; the role ends by itself.
    """

    role: str
    lossy: bool = False
    gently: bool = False


@dataclass(frozen=True, slots=True)
class Suspend:
    """SIGSTOP: nothing of the process runs, its sockets stay open."""

    role: str


@dataclass(frozen=True, slots=True)
class Resume:
    role: str


@dataclass(frozen=True, slots=True)
class Launch:
    """Start the role (a new one, or a killed one again with the next launch number and its folder as it was)."""

    role: str


@dataclass(frozen=True, slots=True)
class ApplyLinkFault:
    """Put a network fault on the directed link `source` -> `target`. kind: latency, drop, duplicate, reorder, …"""

    fault: str
    kind: str
    source: str
    target: str
    settings: dict[str, str | int | float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class UndoLinkFault:
    fault: str


@dataclass(frozen=True, slots=True)
class CorruptCheckpoint:
    """Damage the newest `count` checkpoints on disk. how: "truncate" | "flip" | "zero" | "remove_pointer"."""

    fault: str
    how: str
    count: int = 1


@dataclass(frozen=True, slots=True)
class Tell:
    """Report a fact to the verifier in the driver's own name."""

    fact: Fact


@dataclass(frozen=True, slots=True)
class DriverSetTimer:
    name: str
    after_ms: float


@dataclass(frozen=True, slots=True)
class AbortRun:
    """The run cannot go on as scheduled (a wait ran out). The engine undoes all and ends with this reason."""

    reason: str


Action = (
    ArmHold | ReleaseHold | FreezeTimers | ThawTimers | Kill | Suspend | Resume | Launch | ApplyLinkFault
    | UndoLinkFault | CorruptCheckpoint | Tell | DriverSetTimer | AbortRun
)  # fmt: skip
