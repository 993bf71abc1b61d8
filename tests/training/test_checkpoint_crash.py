"""Killed, or cut off from power, at every single operation: a reader finds the old checkpoint or the new one, whole."""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.counted import COUNTED, RecordProperty
from tests.training.helpers import (
    DATASET,
    FOLDER,
    MODEL,
    FailingDisk,
    make_state,
    name_of,
    same,
    save,
    whole_plan,
)
from tests.training.syscalls import Calls, Killed, failing
from training.checkpoint import cleanup_plan, newest_good, retention_plan, write_plan
from training.disk import Disk, DiskOp, LossyDisk, MakeDir, SyncDir, SyncFile, WriteFile, apply_all
from training.real_disk import RealDisk

OLD, NEW = make_state(4), make_state(5)
PLAN = whole_plan(FOLDER, NEW)
SEEDS = range(12)


def prefixes(plan: tuple[DiskOp, ...]) -> Iterator[tuple[DiskOp, ...]]:
    """Every state in which a kill can leave the disk, half-written files included."""
    for count, op in enumerate(plan):
        yield plan[:count]
        if isinstance(op, WriteFile):
            for size in (0, 1, len(op.content) // 2, len(op.content) - 1):
                yield (*plan[:count], WriteFile(op.path, op.content[:size]))
    yield plan


def disk_with_old() -> LossyDisk:
    disk = LossyDisk()
    apply_all(disk, (MakeDir(FOLDER), SyncDir("")))
    save(disk, FOLDER, OLD)
    return disk


def found(disk: Disk, folder: str = FOLDER) -> str:
    """ "old" or "new", after bitwise comparison."""
    name, state, _ = newest_good(disk, folder, MODEL, DATASET)
    for word, expected in (("old", OLD), ("new", NEW)):
        if name == name_of(expected):
            assert same(state, expected)
            return word
    raise AssertionError(f"neither old nor new: {name}")


def test_kind_06_killed_at_every_operation(record_property: RecordProperty) -> None:
    outcomes = []
    for prefix in prefixes(PLAN):
        disk = disk_with_old()
        apply_all(disk, prefix)
        outcomes.append(found(disk))
    record_property(COUNTED, f"checkpoint: killed at {len(outcomes)} points, all old or new")
    assert outcomes == sorted(outcomes, reverse=True)  # old, old, ..., new: never back
    assert (outcomes[0], outcomes[-1]) == ("old", "new")


@pytest.mark.parametrize("seed", SEEDS)
def test_kind_06_power_cut_at_every_operation(seed: int, record_property: RecordProperty) -> None:
    points = list(prefixes(PLAN))
    record_property(COUNTED, f"checkpoint: power cut at {len(points)} points, seed {seed}, all old or new")
    for prefix in points:
        disk = disk_with_old()
        apply_all(disk, prefix)
        disk.crash(random.Random(seed).randrange)
        outcome = found(disk)
        if prefix == PLAN:
            assert outcome == "new"
        apply_all(disk, cleanup_plan(disk, FOLDER))
        assert not [name for name in disk.list(FOLDER) if name.startswith("tmp-")]
        assert found(disk) == outcome


@pytest.mark.parametrize("seed", SEEDS)
def test_kind_06_power_cut_while_the_very_first_one_is_written(seed: int) -> None:
    for prefix in prefixes(PLAN):
        disk = LossyDisk()
        apply_all(disk, prefix)
        disk.crash(random.Random(seed).randrange)
        published = disk.exists(f"{FOLDER}/LATEST")
        assert published or prefix != PLAN
        if published:
            assert found(disk) == "new"


SYNCS = [number for number, op in enumerate(PLAN) if isinstance(op, SyncFile | SyncDir)]


@pytest.mark.parametrize("missing", SYNCS, ids=lambda number: f"{number}-{type(PLAN[number]).__name__}")
def test_kind_06_a_missing_fsync_would_be_seen(missing: int) -> None:
    """Each sync is needed: without it some power cut loses a checkpoint that was published, or shows a mix."""
    plan = (*PLAN[:missing], *PLAN[missing + 1 :])
    losses = 0
    for seed in SEEDS:
        disk = LossyDisk()
        apply_all(disk, plan)
        disk.crash(random.Random(seed).randrange)
        try:
            losses += found(disk) != "new" or not disk.exists(f"{FOLDER}/LATEST") or damaged_pointer(disk)
        except Exception:  # noqa: BLE001 - whatever it is, it is a loss
            losses += 1
    shadowed = PLAN[missing] == SyncDir(FOLDER) and missing != SYNCS[-1]
    assert losses or shadowed  # the folder's first sync orders "named" before "published"; the last one covers both


def damaged_pointer(disk: Disk) -> bool:
    return any(damage.name == "LATEST" for damage in newest_good(disk, FOLDER, MODEL, DATASET)[2])


def test_kind_06_killed_at_every_operation_on_a_real_disk(tmp_path: Path) -> None:
    disk = RealDisk()
    outcomes = []
    for number in range(len(PLAN) + 1):
        folder = str(tmp_path / f"{number}")
        save(disk, folder, OLD)
        plan = whole_plan(folder, NEW)
        stopped = FailingDisk(disk, number, errno.EINTR)
        if number < len(plan):
            with pytest.raises(InterruptedError):
                apply_all(stopped, plan)
        else:
            apply_all(stopped, plan)
        assert stopped.applied == number
        outcomes.append(found(disk, folder))
        apply_all(disk, cleanup_plan(disk, folder))
        apply_all(disk, whole_plan(folder, make_state(6)))
        assert same(newest_good(disk, folder, MODEL, DATASET)[1], make_state(6))
    assert outcomes == sorted(outcomes, reverse=True)
    assert (outcomes[0], outcomes[-1]) == ("old", "new")


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC], ids=["EIO", "ENOSPC"])
@pytest.mark.parametrize("real", [False, True], ids=["lossy", "real"])
def test_kind_06_an_error_at_every_operation_propagates_and_the_old_one_stays(
    number: int, real: bool, tmp_path: Path
) -> None:
    for fail_at in range(len(PLAN)):
        disk: Disk = RealDisk() if real else LossyDisk()
        folder = str(tmp_path / f"{fail_at}") if real else FOLDER
        save(disk, folder, OLD)
        with pytest.raises(OSError, match=os.strerror(number)) as caught:
            apply_all(FailingDisk(disk, fail_at, number), whole_plan(folder, NEW))
        assert caught.value.errno == number
        assert found(disk, folder) == ("new" if fail_at == len(PLAN) - 1 else "old")  # there only the sync is missing
        assert same(newest_good(disk, folder, MODEL, DATASET)[1], OLD if fail_at < len(PLAN) - 1 else NEW)


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC, 0], ids=["EIO", "ENOSPC", "killed"])
def test_bug_kind_06_checkpoint_at_every_system_call(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, record_property: RecordProperty
) -> None:
    at, outcomes = 0, []
    while True:
        folder = str(tmp_path / str(at))
        save(RealDisk(), folder, OLD)
        calls = Calls(at, failing(number) if number else Killed)
        with monkeypatch.context() as patched:
            patched.setattr("training.real_disk.os", calls)
            try:
                apply_all(RealDisk(), whole_plan(folder, NEW))
                break
            except (OSError, Killed) as caught:
                assert isinstance(caught, Killed) or caught.errno == number  # noqa: PT017 - whichever it is
        outcomes.append(found(RealDisk(), folder))
        apply_all(RealDisk(), cleanup_plan(RealDisk(), folder))
        assert found(RealDisk(), folder) == outcomes[-1]
        at += 1
    record_property(
        COUNTED, f"checkpoint: {errno.errorcode.get(number, 'killed')} at {at} system calls, all old or new"
    )
    assert at == calls.count >= 20
    assert outcomes == sorted(outcomes, reverse=True)
    assert {"fsync", "rename", "write", "open", "mkdir"} == set(calls.names)


@pytest.mark.parametrize("seed", SEEDS)
def test_retention_cut_off_at_every_operation_leaves_whole_checkpoints_only(seed: int) -> None:
    def full() -> LossyDisk:
        disk = disk_with_old()
        save(disk, FOLDER, NEW)
        return disk

    plan = retention_plan(full(), FOLDER, 1)
    for count in range(len(plan) + 1):
        disk = full()
        apply_all(disk, plan[:count])
        disk.crash(random.Random(seed).randrange)
        assert newest_good(disk, FOLDER, MODEL, DATASET)[2] == ()
        assert found(disk) == "new"
        for name in disk.list(FOLDER):
            if name.startswith("ckpt-"):
                assert disk.list(f"{FOLDER}/{name}") == ("manifest.json", "state.safetensors")


def test_the_plan_says_what_the_protocol_demands() -> None:
    words = [f"{type(op).__name__} {getattr(op, 'path', None) or getattr(op, 'target', '')}" for op in PLAN]
    name = name_of(NEW)
    assert words == [
        "MakeDir checkpoints",
        "SyncDir ",
        f"MakeDir checkpoints/tmp-{name}",
        f"WriteFile checkpoints/tmp-{name}/state.safetensors",
        f"SyncFile checkpoints/tmp-{name}/state.safetensors",
        f"WriteFile checkpoints/tmp-{name}/manifest.json",
        f"SyncFile checkpoints/tmp-{name}/manifest.json",
        f"SyncDir checkpoints/tmp-{name}",
        f"Rename checkpoints/{name}",
        "SyncDir checkpoints",
        "WriteFile checkpoints/tmp-LATEST",
        "SyncFile checkpoints/tmp-LATEST",
        "Rename checkpoints/LATEST",
        "SyncDir checkpoints",
    ]
    assert write_plan(FOLDER, NEW, 1) == PLAN[:10]
