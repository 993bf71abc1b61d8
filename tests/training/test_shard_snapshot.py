"""A shard's prepared file is there after a power cut, whole, with every folder on the way to it."""

from __future__ import annotations

from services.shard_jobs import InitialShardJob
from tests.services.roles.shard_world import config
from training.disk import LossyDisk, apply_all
from training.shard_snapshot import decode, file_name, write_plan


def test_the_first_prepared_file_of_a_run_survives_a_power_cut() -> None:
    settings = config()
    spec = settings.specs[1]
    snapshot = InitialShardJob(spec, settings.optimizer, settings.seed)().snapshot
    path, disk = file_name(2, 1, 3, 0), LossyDisk()
    apply_all(disk, write_plan(path, spec, snapshot))
    disk.crash(lambda _: 0)
    assert decode(path, disk.read(path), spec).parameters.tobytes() == snapshot.parameters.tobytes()
