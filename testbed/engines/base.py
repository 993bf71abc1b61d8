"""What an engine is: the place where the roles of a run live.

`testbed.api` builds a `RunPlan` (everything that decides a run, read once and frozen) and a `RunFolder`, asks the
engine whether it can do it at all, and then calls `run` once. Duties of an engine:

1. `refusals` starts nothing and touches nothing. It names every fault, role or trigger that the engine cannot do.
2. `run` feeds one `chaos.driver.Driver` (see `chaos.actions` for the duties towards it) and carries out its actions.
3. The verifier's verdict document is returned as it came; the engine adds nothing to it and judges nothing.
4. Whatever ends `run` (verdict, exception, Ctrl-C), nothing that it started is left, and every fault is undone.
5. Every wait is bounded. While it lasts, `ProgressSink.waiting` says who is missing, since when, and the deadline;
   when it runs out, `EngineError` or the outcome's `aborted` says the same.
6. History and checkpoints end up in the folder's `history.jsonl` and `checkpoints/`, the same on every engine.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from training.digest import array_digest
from training.errors import GradstormError

if TYPE_CHECKING:
    from chaos.scenario import Scenario
    from services.any_config import AnyRunConfig
    from services.records import Fact
    from testbed.run_folder import RunFolder
    from training.checkpoint import CheckpointState, Damage

NO_VERIFIER = "the run had no verifier: nothing was checked"  # what `aborted` says of a plan without one


class EngineError(GradstormError):
    """The machine or the engine could not carry the run out (exit code 3): no port, no process, a wait ran out."""


@dataclass(frozen=True, slots=True, eq=False)
class ResumeFrom:
    """The checkpoint of an earlier run that this one goes on from, read and checked before anything starts.

    `name` and `run_id` are what `services.roles.coordinator.ResumePoint` wants; `folder` is the checkpoint's own
    folder on this machine. `damages` lists newer checkpoints that were skipped, and why.
    """

    checkpoint: CheckpointState
    name: str
    run_id: str
    folder: str
    damages: tuple[Damage, ...] = ()

    @property
    def promises(self) -> dict[str, str | int]:
        """What the driver tells the verifier of it; the coordinator, which reads it for itself, must find the same."""
        held = self.checkpoint
        return {
            "resumed_step": held.step,
            "resumed_parameters": array_digest(held.parameters),
            "resumed_velocity": array_digest(held.velocity),
            "resumed_sampler": hashlib.sha256(
                json.dumps(held.sampler.to_json(), sort_keys=True, separators=(",", ":")).encode()
            ).hexdigest(),
        }


@dataclass(frozen=True, slots=True)
class RunPlan:
    """One execution of one scenario: what to train, what goes wrong, what is planted.

    `data` is what is trained on (`training.datasets.dataset_to_bytes`, or `training.corpus_bytes.corpus_to_bytes` of
    layer-sharded training); the configuration has its name and SHA-256.
    """

    config: AnyRunConfig
    scenario: Scenario
    data: bytes = field(repr=False)
    token: str = field(repr=False)  # every call between roles carries it; "" is legal in the simulator only
    resume: ResumeFrom | None = None
    plants: tuple[str, ...] = ()  # names of bugs to plant in the running production code
    verifier: bool = True  # without one nothing is recorded or checked, and the verdict is unknown

    @property
    def promises(self) -> dict[str, str | int]:
        """What the driver promises beside the scenario."""
        return {} if self.resume is None else self.resume.promises


@dataclass(frozen=True, slots=True)
class RoleExit:
    """How one launch of one role ended. `exit_code` as the parent sees it: negative is the signal's number."""

    role: str
    launch: int
    exit_code: int
    expected: bool  # a fault or the orderly end asked for it
    reason: str = ""  # "fault 1-kill-worker-2" | "finished" | tail of what it said when it was not expected


@dataclass(frozen=True, slots=True)
class EngineOutcome:
    """What a run came to.

    `verdict` is the verifier's document, or {} when it never concluded; then `aborted` says why and who was missing.
    `stop_condition` is "finished" or the name of what stopped the coordinator ("nobody left", "disk full", …).
    """

    verdict: dict[str, Any]
    exits: tuple[RoleExit, ...]
    stop_condition: str
    stop_reason: str = ""
    aborted: str = ""


class ProgressSink(Protocol):
    """Where an engine tells what happens, for whoever watches. Calls are cheap, never block and never raise."""

    def role(self, role: str, launch: int, state: str) -> None:
        """A role is "starting" | "up" | "held at <phase>" | "stopped" | "killed" | "exited <code>" | "finished"."""
        ...

    def fact(self, role: str, fact: Fact) -> None:
        """A role, or the driver, recorded this."""
        ...

    def judged(self, so_far: Mapping[str, str]) -> None:
        """The verifier's verdict of each invariant so far: "pass" | "violated" | "unknown"."""
        ...

    def note(self, text: str) -> None:
        """One line for people."""
        ...

    def waiting(self, what: str, missing: tuple[str, ...], since_s: float, deadline_s: float) -> None:
        """The engine waits for `missing`, for `since_s` seconds by now, and gives up after `deadline_s` in all."""
        ...


class Silent:
    """A sink for those who do not watch."""

    def role(self, role: str, launch: int, state: str) -> None:
        """Nothing."""

    def fact(self, role: str, fact: Fact) -> None:
        """Nothing."""

    def judged(self, so_far: Mapping[str, str]) -> None:
        """Nothing."""

    def note(self, text: str) -> None:
        """Nothing."""

    def waiting(self, what: str, missing: tuple[str, ...], since_s: float, deadline_s: float) -> None:
        """Nothing."""


class Engine(Protocol):
    """One of `sim`, `local`, later `containers` and `lan`."""

    @property
    def name(self) -> str:
        """As on the command line."""
        ...

    def refusals(self, scenario: Scenario, strategy: str) -> list[str]:
        """Why this engine cannot run that scenario under that strategy, each by name; empty when it can."""
        ...

    def run(self, plan: RunPlan, folder: RunFolder, progress: ProgressSink) -> EngineOutcome:
        """Carry the run out. Raises EngineError when the machine will not; KeyboardInterrupt passes through."""
        ...
