"""What retention removes: first what killed writers left behind, then what is beyond the newest few."""

from __future__ import annotations

from services.jobs import CHECKPOINT_FOLDER, RetentionJob
from tests.training.helpers import make_state, name_of, save
from training.checkpoint import write_plan
from training.disk import LossyDisk, apply_all


def test_strays_go_first_and_then_the_old_ones() -> None:
    disk, states = LossyDisk(), [make_state(step) for step in (1, 2, 3)]
    save(disk, CHECKPOINT_FOLDER, *states)
    killed = write_plan(CHECKPOINT_FOLDER, make_state(4), 1)
    apply_all(disk, killed[:-2])  # before it is renamed
    assert len(disk.list(CHECKPOINT_FOLDER)) == 5
    apply_all(disk, RetentionJob(2)(disk))
    assert disk.list(CHECKPOINT_FOLDER) == ("LATEST", *(name_of(state) for state in states))
    apply_all(disk, RetentionJob(2)(disk))
    assert disk.list(CHECKPOINT_FOLDER) == ("LATEST", *(name_of(state) for state in states[1:]))
    assert RetentionJob(2)(disk) == ()
