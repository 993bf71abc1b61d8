"""Bugs in the state: replicas, optimizer, checkpoints."""

from __future__ import annotations

import numpy as np

from services.jobs import EncodeCheckpointJob, FindCheckpointJob, FoundCheckpoint, State
from services.roles.worker import Worker
from testbed.plants.registry import Patch, plant
from training.checkpoint import CheckpointState, write_plan
from training.disk import Disk, DiskOp


@plant("one-ulp", invariant="replica agreement")
def one_ulp() -> list[Patch]:
    """Worker 2's first parameter is one unit in the last place off after step 5."""
    original = Worker._apply

    def apply(self: Worker, state: State) -> None:
        if self.worker == 2 and self.step + 1 == 5:
            parameters = state.parameters.copy()
            parameters[0] = np.nextafter(parameters[0], np.inf)
            state = State.of(parameters, state.velocity)
        original(self, state)

    return [(Worker, "_apply", apply)]


@plant("momentum-not-restored", invariant="checkpoint fidelity", scenario="resume")
def momentum_not_restored() -> list[Patch]:
    """A checkpoint's velocity is read as zeros."""
    original = FindCheckpointJob.__call__

    def find(self: FindCheckpointJob, disk: Disk) -> FoundCheckpoint:
        found = original(self, disk)
        state = State.of(found.state.parameters, np.zeros_like(found.state.velocity))
        return FoundCheckpoint(found.name, found.checkpoint, state, found.damages)

    return [(FindCheckpointJob, "__call__", find)]


@plant("checkpoint-of-another-step", invariant="checkpoint fidelity", scenario="resume")
def checkpoint_of_another_step() -> list[Patch]:
    """The optimizer state that a checkpoint holds is that of the checkpoint before."""
    kept: list[State] = []

    def encode(self: EncodeCheckpointJob) -> tuple[DiskOp, ...]:
        held = self.state
        kept.append(State.of(held.parameters, held.velocity))
        velocity = kept[max(0, len(kept) - 2)].velocity
        stale = CheckpointState(
            held.step, held.generation, held.parameters, velocity, held.sampler, held.model, held.dataset_sha256
        )
        return write_plan("checkpoints", stale, self.incarnation)

    return [(EncodeCheckpointJob, "__call__", encode)]
