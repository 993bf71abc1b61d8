"""Bugs in what a checkpoint holds, and in what is made of it when the run comes back from one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from services.jobs import EncodeCheckpointJob, FindCheckpointJob, FoundCheckpoint, State
from services.roles import coordinator as coordinator_module
from services.roles.coordinator import Coordinator
from testbed.plants.registry import Patch, memory, plant
from training import checkpoint_format, checkpoint_store
from training.checkpoint import CheckpointKey, CheckpointState, publish_plan, write_plan
from training.disk import Disk, DiskOp
from training.sampler import Sampler, SamplerState


@plant("momentum-not-restored", invariant="checkpoint fidelity", scenario="resume")
def momentum_not_restored() -> list[Patch]:
    """A checkpoint's velocity is read as zeros."""
    original = FindCheckpointJob.__call__

    def find(self: FindCheckpointJob, disk: Disk) -> FoundCheckpoint:
        found = original(self, disk)
        state = State.of(found.state.parameters, np.zeros_like(found.state.velocity))
        return replace(found, state=state)

    return [(FindCheckpointJob, "__call__", find)]


@plant("rng-not-restored", invariant="checkpoint fidelity", scenario="resume-later")
def rng_not_restored() -> list[Patch]:
    """A sampler is restored with a fresh generator: this epoch and all that follow are in another order."""

    def restore(state: SamplerState) -> Sampler:
        sampler = Sampler(state.sample_count, state.seed)
        sampler._epoch = state.epoch
        sampler.commit(state.committed)
        return sampler

    return [(Sampler, "restore", staticmethod(restore))]


@plant("sampler-off-by-one", invariant="checkpoint fidelity", scenario="resume")
def sampler_off_by_one() -> list[Patch]:
    """After a rollback the sampler stands one sample too far."""
    original = Coordinator._found

    def found(self: Coordinator, checkpoint: object, then: object) -> None:
        assert isinstance(checkpoint, FoundCheckpoint)
        sampler = Sampler.restore(checkpoint.checkpoint.sampler)
        sampler.commit(sampler.remaining()[:1])
        too_far = replace(checkpoint.checkpoint, sampler=sampler.state())
        original(self, replace(checkpoint, checkpoint=too_far), then)  # type: ignore[arg-type]

    return [(Coordinator, "_found", found)]


def _altered(change: object) -> list[Patch]:
    """A member writes something else than it says: `change(job, state)`."""

    def encode(self: EncodeCheckpointJob) -> tuple[DiskOp, ...]:
        return write_plan("checkpoints", change(self.state), self.incarnation)  # type: ignore[operator]

    return [(EncodeCheckpointJob, "__call__", encode)]


@plant("velocity-of-another-step", invariant="checkpoint fidelity", scenario="resume")
def velocity_of_another_step() -> list[Patch]:
    """The optimizer state that a checkpoint holds is that of the checkpoint before."""
    kept: list[CheckpointState] = []

    def stale(state: CheckpointState) -> CheckpointState:
        before = kept[-1].velocity if kept else np.zeros_like(state.velocity)
        kept.append(state)
        return replace(state, velocity=before)

    return _altered(stale)


@plant("checkpoint-in-float32", invariant="checkpoint fidelity", scenario="resume")
def checkpoint_in_float32() -> list[Patch]:
    """A checkpoint's parameters are rounded to float32 on their way to the disk."""
    return _altered(
        lambda state: replace(state, parameters=state.parameters.astype(np.float32).astype(np.float64))
    )  # fmt: skip


@plant("damage-not-noticed", invariant="checkpoint fidelity", scenario="resume")
def damage_not_noticed() -> list[Patch]:
    """A bit of a checkpoint flips on its way back from the disk, and nobody compares it with its SHA-256."""

    def decode(files: Mapping[str, bytes]) -> tuple[CheckpointKey, CheckpointState]:
        content = bytearray(files[checkpoint_format.TENSORS])
        content[-3] ^= 1
        return checkpoint_format.decode_with_key({**files, checkpoint_format.TENSORS: bytes(content)})

    def intact(name: str, content: bytes | None, promised: object) -> None:
        """Whatever it is."""

    return [(checkpoint_store, "decode_with_key", decode), (checkpoint_format, "_require_intact", intact)]


@plant("rolled-back-too-far", invariant="durability", scenario="resume")
def rolled_back_too_far() -> list[Patch]:
    """The search for a checkpoint begins with the oldest."""
    original = checkpoint_store._candidates

    def candidates(disk: Disk, folder: str, published: str | None) -> list[str]:
        return original(disk, folder, published)[::-1]

    return [(checkpoint_store, "_candidates", candidates)]


@plant("pointer-to-the-one-before", invariant="durability", scenario="resume")
def pointer_to_the_one_before() -> list[Patch]:
    """What is published is the name of the checkpoint before the one that it should be."""
    publish = Coordinator._publish

    def remembered(self: Coordinator, name: str, *rest: object) -> None:
        memory(self)["before"] = memory(self).get("name", name)
        memory(self)["name"] = name
        names[name] = memory(self)["before"]
        publish(self, name, *rest)  # type: ignore[arg-type]

    def plan(folder: str, name: str) -> tuple[DiskOp, ...]:
        return publish_plan(folder, names.get(name, name))

    names: dict[str, str] = {}
    return [(Coordinator, "_publish", remembered), (coordinator_module, "publish_plan", plan)]


# ---------------------------------------------------------------- a run that goes on from an earlier one


def _resumed(change: Callable[[Coordinator, State], State]) -> list[Patch]:
    """A resumed run begins with `change(coordinator, state)` of what the checkpoint holds."""
    original = Coordinator._begin

    def begin(self: Coordinator, state: State, resumed_from: str) -> None:
        original(self, change(self, state) if resumed_from else state, resumed_from)

    return [(Coordinator, "_begin", begin)]


@plant("resumed-without-velocity", invariant="checkpoint fidelity", resumes=True)
def resumed_without_velocity() -> list[Patch]:
    """A run that goes on from an earlier one's checkpoint starts with a velocity of zeros."""
    return _resumed(lambda _, state: State.of(state.parameters, np.zeros_like(state.velocity)))


@plant("resumed-at-the-epochs-start", invariant="checkpoint fidelity", resumes=True)
def resumed_at_the_epochs_start() -> list[Patch]:
    """A run that goes on from an earlier one's checkpoint deals its epoch from the first sample again."""

    def forget(coordinator: Coordinator, state: State) -> State:
        coordinator.sampler = Sampler.restore(replace(coordinator.sampler.state(), committed=()))
        return state

    return _resumed(forget)
