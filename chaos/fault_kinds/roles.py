"""Faults of a process: it dies, stops for a while, is slow, or is new."""

from __future__ import annotations

from typing import ClassVar, Literal

from chaos.fault_kinds.base import (
    EVERYONE,
    SIMULATOR,
    FaultBase,
    Milliseconds,
    PhaseTrigger,
    Step,
    TargetName,
    TimeTrigger,
    Trigger,
    WorkerName,
    with_role,
)
from services.events import COORDINATOR


class Killing(FaultBase):
    """What `kill` and `power_cut` share."""

    target: TargetName
    """worker-<n>, shard-<n>, coordinator, server, verifier, or everyone (all but the verifier, in one instant)."""
    trigger: Trigger
    """Where the target stands when it dies; for everyone, where the coordinator stands."""
    relaunch_at: Step | None = None
    """A worker is started again at once and takes part from this step on; the step waits for it."""

    @property
    def label(self) -> str:
        return self.target

    @property
    def starts(self) -> PhaseTrigger | TimeTrigger:
        return with_role(self.trigger, COORDINATOR if self.target == EVERYONE else self.target)


class Kill(Killing):
    """SIGKILL. Shards, coordinator, server and verifier are started again; a worker only with `relaunch_at`."""

    kind: Literal["kill"]


class Stop(Killing):
    """SIGTERM: the worker hands over what it recorded and ends by itself; from then on as dead as after a kill."""

    able: ClassVar[frozenset[str]] = frozenset({"sim", "local", "containers"})
    kind: Literal["stop"]
    target: WorkerName
    """The worker that is asked to end."""


class PowerCut(Killing):
    """The machine loses power: the process dies, and what it had not synced is lost."""

    able: ClassVar[frozenset[str]] = SIMULATOR
    kind: Literal["power_cut"]


class Pause(FaultBase):
    """SIGSTOP, and SIGCONT once the lease has ended (`return_at`) or after a time (`for_ms`)."""

    kind: Literal["pause"]
    target: WorkerName
    """The worker that is stopped."""
    trigger: Trigger
    """Where it stands when it is stopped."""
    return_at: Step | None = None
    """Stopped until its lease has ended; fenced when it returns, it takes part again from this step on."""
    for_ms: Milliseconds | None = None
    """Stopped for this long instead, whatever that does to its lease."""

    @property
    def label(self) -> str:
        return self.target

    @property
    def timed(self) -> bool:
        return self.for_ms is not None or isinstance(self.trigger, TimeTrigger)

    @property
    def starts(self) -> PhaseTrigger | TimeTrigger:
        return with_role(self.trigger, self.target)


class Straggle(FaultBase):
    """The worker holds its gradient and offers it only after the step closed without it."""

    kind: Literal["straggle"]
    target: WorkerName
    """The worker that is slow."""
    step: Step
    """The step that it misses."""

    @property
    def label(self) -> str:
        return self.target

    @property
    def starts(self) -> PhaseTrigger | TimeTrigger:
        return PhaseTrigger(role=self.target, step=self.step, phase="offer")


class AddWorker(FaultBase):
    """A new worker joins: it is started when the step before opens, and takes part from `step` on."""

    kind: Literal["add"]
    target: WorkerName
    """The new worker; its number is above those of the first cast."""
    step: Step
    """The first step that it takes part in; the step waits for it."""

    @property
    def label(self) -> str:
        return self.target

    @property
    def starts(self) -> PhaseTrigger | TimeTrigger:
        return PhaseTrigger(role=COORDINATOR, step=self.step - 1 or 1, phase="opened")
