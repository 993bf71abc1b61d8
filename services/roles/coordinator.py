"""The coordinator of data-parallel training: how it starts, comes back, saves, rolls back and ends.

The steps themselves are in `stepping`, membership in `coordinator_core`, durable decisions in `deciding`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from services import decision_log
from services.config import RunConfig
from services.events import (
    CancelTimer,
    Compute,
    Load,
    Record,
    SetTimer,
    Started,
)
from services.jobs import (
    CHECKPOINT_FOLDER,
    EncodeCheckpointJob,
    FoundCheckpoint,
    InitialJob,
    RetentionJob,
    State,
    checkpoint_state,
)
from services.messages import (
    CheckpointSaved,
    SaveCheckpoint,
)
from services.records import (
    Published,
    RolledBack,
    RunStarted,
)
from services.roles.peers import Peer
from services.roles.recovery import recover
from services.roles.stepping import Stepping
from services.sampling import sampler_to_json
from training.checkpoint import CheckpointState, checkpoint_name, publish_plan
from training.sampler import Sampler


@dataclass(frozen=True, slots=True, eq=False)
class ResumePoint:
    """Start from this checkpoint of another run instead of from initial parameters."""

    checkpoint: CheckpointState
    name: str
    run_id: str


class Coordinator(Stepping):
    """See the module's docstring. `resume` is ignored by a relaunch that finds its log."""

    def __init__(self, config: RunConfig, launch: int, dataset_blob: bytes, resume: ResumePoint | None = None) -> None:
        super().__init__(config, launch, dataset_blob)
        self._resume_point = resume

    # ------------------------------------------------------------ start and recovery

    def _start(self, event: Started) -> None:
        self._leases_checked_ms = self._now
        self._out.append(SetTimer("lease", self.config.timing.lease_ms / 4))
        try:
            facts, torn = decision_log.read_log(event.files.get(decision_log.PATH, b""))
        except decision_log.LogDamaged as damaged:
            self._stop("log damaged", str(damaged))
            return
        if facts:
            recover(self, facts, torn)
        elif self._resume_point is not None:
            point = self._resume_point
            self.sampler = Sampler.restore(point.checkpoint.sampler)
            self.step = self.high_step = point.checkpoint.step
            state = State.of(point.checkpoint.parameters, point.checkpoint.velocity)
            self._begin(state, f"{point.run_id}/{point.name}")
        else:
            self.starting_state(lambda state: self._begin(state, ""))

    def _begin(self, state: State, resumed_from: str) -> None:
        """The log's first line, and a first checkpoint, so that a total loss always finds one."""
        self.state, self.digests = state, (state.parameters_digest, state.velocity_digest)
        sampler_json = sampler_to_json(self.sampler)
        started = RunStarted(
            self.config.to_json(), self.config.dataset_sha256, self.step, sampler_json, *self.digests,
            state.parameters, state.velocity, resumed_from,
        )  # fmt: skip

        def logged() -> None:
            self._out.append(Record(started))
            self._write_own_checkpoint(state)

        kept = replace(started, parameters=None, velocity=None)
        self._persist("start", decision_log.begin_plan((kept,)), logged)

    def _write_own_checkpoint(self, state: State) -> None:
        held = checkpoint_state(self.config, self.step, self.generation, state, self.sampler.state())
        name = checkpoint_name(self.step, self.generation, 0)
        plan = EncodeCheckpointJob(held, 0)()
        self._persist(f"checkpoint {self.step} {name}", plan, lambda: self._publish(name, 0, 0, self._boundary))

    def _begin_again(self) -> None:
        """A relaunch before the first checkpoint was published: make the starting state and its checkpoint anew."""
        self.starting_state(self._hold_start)

    def starting_state(self, then: Callable[[State], None]) -> None:
        """Make the state that the run started from anew."""
        if self._resume_point is not None:
            point = self._resume_point.checkpoint
            then(State.of(point.parameters, point.velocity))
            return

        def made(state: object) -> None:
            assert isinstance(state, State)
            then(state)

        self._await(lambda token: Compute(token, InitialJob(self.config)), made)

    def _hold_start(self, state: State) -> None:
        self.state = state
        self._write_own_checkpoint(state)

    # ------------------------------------------------------------ checkpoint

    def _ask_for_checkpoint(self) -> None:
        writer = self._writer()
        self._send(writer.name, SaveCheckpoint(self.generation, self.step, sampler_to_json(self.sampler)))

    def _checkpoint_saved(self, peer: Peer, saved: CheckpointSaved) -> None:
        if self.stage != "checkpoint" or saved.step != self.step:
            self._refuse(peer.name, peer.incarnation, saved, "late")
        elif peer is not self._writer() or saved.name != checkpoint_name(
            self.step, saved.generation, peer.incarnation
        ):  # fmt: skip
            self._refuse(peer.name, peer.incarnation, saved, "contract")
        elif saved.error:
            self._stop(f"disk {saved.error}", f"{peer.name} could not write the checkpoint of step {self.step}")
        elif (saved.parameters_digest, saved.velocity_digest) != self.digests:
            self._refuse(peer.name, peer.incarnation, saved, "digest")
        else:
            self._out.append(CancelTimer("resend"))
            self._publish(saved.name, peer.worker, peer.incarnation, self._retain)

    def _publish(self, name: str, writer: int, incarnation: int, then: Callable[[], None]) -> None:
        published = Published(self.step, name, writer, incarnation, *self.digests, sampler_to_json(self.sampler))
        operations = (*publish_plan(CHECKPOINT_FOLDER, name), *decision_log.append_plan(published))

        def durable() -> None:
            self._out.append(Record(published))
            then()

        self._persist(f"publish {self.step} {name}", operations, durable)

    def _retain(self) -> None:
        job = RetentionJob(self.config.checkpoint_keep)
        self._await(lambda token: Load(token, job), self._remove_old)

    def _remove_old(self, operations: object) -> None:
        assert isinstance(operations, tuple)
        if operations:
            self._persist(f"retention {self.step}", operations, self._boundary)
        else:
            self._boundary()

    # ------------------------------------------------------------ rollback and end

    def _roll_back(self, found: FoundCheckpoint, then: Callable[[], None]) -> None:
        """Nobody holds the state after `step`: everybody restarts from the newest good checkpoint."""
        reason = f"nobody holds the state after step {self.step}"
        sampler = Sampler.restore(found.checkpoint.sampler)
        state = found.state
        fact = RolledBack(
            found.checkpoint.step, self.generation, found.name, state.parameters_digest, state.velocity_digest,
            sampler_to_json(sampler), reason, tuple((damage.name, damage.reason) for damage in found.damages),
        )  # fmt: skip

        def durable() -> None:
            self.step, self.sampler, self.state = fact.to_step, sampler, state
            self.digests = (state.parameters_digest, state.velocity_digest)
            then()

        self._decide(f"rollback {fact.to_step}", fact, durable)

    def _finish(self) -> None:
        self.stage = "finished"
        self._stop("finished", "")
