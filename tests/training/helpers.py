"""What the tests of `training` share: small states, a disk that fails on purpose, and bitwise comparison."""

from __future__ import annotations

import os

import numpy as np

from training.checkpoint import CheckpointState, checkpoint_name, publish_plan, write_plan
from training.config import BatchConfig, ModelConfig
from training.disk import Disk, DiskOp, WriteFile, apply_all
from training.models import parameter_count
from training.sampler import Sampler

MODEL = ModelConfig("softmax", 8, 4)
DATASET = "d" * 64
FOLDER = "checkpoints"


def make_state(step: int, generation: int = 1, model: ModelConfig = MODEL, dataset: str = DATASET) -> CheckpointState:
    """A state that differs in every number from that of any other step."""
    generator = np.random.default_rng([step, generation])
    sampler = Sampler(20, 5)
    for _ in range(step):
        sampler.commit(sampler.deal((1,), BatchConfig("global", 3))[1])
    size = parameter_count(model)
    return CheckpointState(
        step, generation, generator.normal(size=size), generator.normal(size=size), sampler.state(), model, dataset
    )


def same(first: CheckpointState, second: CheckpointState) -> bool:
    """Whether two states agree in every bit."""
    return (
        first.parameters.tobytes() == second.parameters.tobytes()
        and first.velocity.tobytes() == second.velocity.tobytes()
        and (first.step, first.generation, first.sampler, first.model, first.dataset_sha256)
        == (second.step, second.generation, second.sampler, second.model, second.dataset_sha256)
    )


def name_of(state: CheckpointState, incarnation: int = 1) -> str:
    """Folder name of the checkpoint of `state`."""
    return checkpoint_name(state.step, state.generation, incarnation)


def whole_plan(folder: str, state: CheckpointState, incarnation: int = 1) -> tuple[DiskOp, ...]:
    """Write and publish."""
    return (*write_plan(folder, state, incarnation), *publish_plan(folder, name_of(state, incarnation)))


def save(disk: Disk, folder: str, *states: CheckpointState) -> None:
    """Write and publish each of these in turn."""
    for state in states:
        apply_all(disk, whole_plan(folder, state))


class FailingDisk:
    """Passes operations on until the one numbered `fail_at`, which fails with `number`; a write is left half done."""

    def __init__(self, disk: Disk, fail_at: int, number: int) -> None:
        self.disk = disk
        self.fail_at = fail_at
        self.number = number
        self.applied = 0

    def apply(self, op: DiskOp) -> None:
        """Do one operation, or fail in the middle of it."""
        if self.applied == self.fail_at:
            if isinstance(op, WriteFile):
                self.disk.apply(WriteFile(op.path, op.content[: len(op.content) // 2]))
            raise OSError(self.number, os.strerror(self.number))
        self.disk.apply(op)
        self.applied += 1

    def read(self, path: str) -> bytes:
        """As the disk underneath."""
        return self.disk.read(path)

    def list(self, path: str) -> tuple[str, ...]:
        """As the disk underneath."""
        return self.disk.list(path)

    def exists(self, path: str) -> bool:
        """As the disk underneath."""
        return self.disk.exists(path)
