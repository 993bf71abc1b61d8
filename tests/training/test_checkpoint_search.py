"""Which checkpoint is resumed from when some are damaged, and which may be removed."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.training.helpers import DATASET, FOLDER, MODEL, make_state, name_of, same, save
from training.checkpoint import CheckpointState, cleanup_plan, newest_good, publish_plan, retention_plan, write_plan
from training.config import ModelConfig
from training.disk import Disk, LossyDisk, MakeDir, Remove, Rename, WriteFile, apply_all
from training.errors import CheckpointError

STATES = [make_state(step) for step in (1, 2, 3, 4)]
NAMES = [name_of(state) for state in STATES]


def full() -> LossyDisk:
    disk = LossyDisk()
    save(disk, FOLDER, *STATES)
    return disk


def search(disk: Disk) -> tuple[str, CheckpointState, dict[str, str]]:
    name, state, damages = newest_good(disk, FOLDER, MODEL, DATASET)
    return name, state, {damage.name: damage.reason for damage in damages}


def empty(disk: Disk, name: str) -> None:
    for file in disk.list(f"{FOLDER}/{name}"):
        disk.apply(WriteFile(f"{FOLDER}/{name}/{file}", b""))


def remove(disk: Disk, name: str) -> None:
    for file in disk.list(f"{FOLDER}/{name}"):
        disk.apply(Remove(f"{FOLDER}/{name}/{file}"))
    disk.apply(Remove(f"{FOLDER}/{name}"))


def test_the_published_one_is_taken_even_if_a_newer_one_was_written() -> None:
    disk = full()
    apply_all(disk, write_plan(FOLDER, make_state(5), 1))
    name, state, skipped = search(disk)
    assert (name, skipped) == (NAMES[3], {})
    assert same(state, STATES[3])


@pytest.mark.parametrize("pointer", ["good", "missing", "dangling", "empty", "zeros", "torn", "flipped", "junk"])
def test_kind_07_two_newest_empty_and_the_pointer_in_any_state(pointer: str) -> None:
    disk, path = full(), f"{FOLDER}/LATEST"
    empty(disk, NAMES[3])
    empty(disk, NAMES[2])
    content = disk.read(path)
    broken = {"empty": b"", "zeros": bytes(len(content)), "torn": content[:20], "junk": b'{"name": "../../etc"}'}
    if pointer == "missing":
        disk.apply(Remove(path))
    elif pointer == "dangling":
        apply_all(disk, publish_plan(FOLDER, name_of(make_state(9))))
    elif pointer == "flipped":
        disk.apply(WriteFile(path, content.replace(NAMES[3].encode(), NAMES[0].encode())))
    elif pointer in broken:
        disk.apply(WriteFile(path, broken[pointer]))
    name, state, skipped = search(disk)
    assert name == NAMES[1]
    assert same(state, STATES[1])
    expected = {NAMES[3], NAMES[2]}
    if pointer == "dangling":
        expected.add(name_of(make_state(9)))
    elif pointer != "good":
        expected.add("LATEST")
    assert set(skipped) == expected
    assert "manifest.json is empty" in skipped[NAMES[3]]


DAMAGES: dict[str, tuple[Callable[[Disk, str], None], str]] = {
    "empty": (empty, "manifest.json is empty"),
    "no manifest": (
        lambda disk, name: disk.apply(Remove(f"{FOLDER}/{name}/manifest.json")),
        "manifest.json is missing",
    ),
    "no tensors": (lambda disk, name: disk.apply(Remove(f"{FOLDER}/{name}/state.safetensors")), "state.safetensors"),
    "gone": (remove, "missing"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_published_one_falls_back_to_the_newest_older_one(damage: str) -> None:
    disk = full()
    harm, reason = DAMAGES[damage]
    harm(disk, NAMES[3])
    apply_all(disk, write_plan(FOLDER, make_state(7), 1))  # written by somebody, never published
    name, _, skipped = search(disk)
    assert name == NAMES[2]
    assert list(skipped) == [NAMES[3]]
    assert reason in skipped[NAMES[3]]


def test_an_unpublished_one_is_the_last_resort() -> None:
    disk = LossyDisk()
    save(disk, FOLDER, STATES[0])
    apply_all(disk, write_plan(FOLDER, STATES[1], 1))
    empty(disk, NAMES[0])
    name, _, skipped = search(disk)
    assert (name, list(skipped)) == (NAMES[1], [NAMES[0]])


def test_folders_swapped_between_steps_are_both_skipped() -> None:
    disk = full()
    for source, target in ((NAMES[3], "t"), (NAMES[2], NAMES[3]), ("t", NAMES[2])):
        disk.apply(Rename(f"{FOLDER}/{source}", f"{FOLDER}/{target}"))
    name, _, skipped = search(disk)
    assert name == NAMES[1]
    assert all("renamed or swapped" in reason for reason in skipped.values())


def test_after_a_rollback_the_higher_generation_is_the_newer_one() -> None:
    disk = LossyDisk()
    void, current = make_state(9, generation=1), make_state(6, generation=2)
    save(disk, FOLDER, void, current)
    disk.apply(Remove(f"{FOLDER}/LATEST"))
    assert search(disk)[0] == name_of(current)


def test_nothing_usable_is_an_error_that_names_everything_tried() -> None:
    with pytest.raises(CheckpointError, match=r"no usable checkpoint in checkpoints .*pointer is missing"):
        newest_good(LossyDisk(), FOLDER, MODEL, DATASET)
    disk = full()
    for name in NAMES:
        empty(disk, name)
    with pytest.raises(CheckpointError) as caught:
        newest_good(disk, FOLDER, MODEL, DATASET)
    assert all(name in str(caught.value) for name in NAMES)


def test_another_model_or_dataset_is_refused_by_name() -> None:
    disk = full()
    with pytest.raises(CheckpointError, match=f"{NAMES[3]} belongs to another model"):
        newest_good(disk, FOLDER, ModelConfig("softmax", 64, 10), DATASET)
    with pytest.raises(CheckpointError, match=f"{NAMES[3]} belongs to another dataset"):
        newest_good(disk, FOLDER, MODEL, "e" * 64)
    assert newest_good(disk, FOLDER, None, None)[0] == NAMES[3]


def test_kind_06_strays_are_ignored_and_cleaned() -> None:
    disk = full()
    apply_all(disk, write_plan(FOLDER, make_state(8), 1)[:-3])  # killed before the rename
    apply_all(disk, publish_plan(FOLDER, name_of(make_state(8)))[:1])
    apply_all(disk, (MakeDir(f"{FOLDER}/notes"), WriteFile(f"{FOLDER}/readme.txt", b"mine")))
    assert search(disk)[0] == NAMES[3]
    apply_all(disk, cleanup_plan(disk, FOLDER))
    assert disk.list(FOLDER) == ("LATEST", *NAMES, "notes", "readme.txt")
    assert cleanup_plan(disk, FOLDER) == ()
    assert cleanup_plan(disk, "nowhere") == ()


def test_retention_keeps_the_newest() -> None:
    disk = full()
    apply_all(disk, retention_plan(disk, FOLDER, 2))
    assert disk.list(FOLDER) == ("LATEST", NAMES[2], NAMES[3])
    assert retention_plan(disk, FOLDER, 2) == ()
    assert retention_plan(disk, "nowhere", 2) == ()
    with pytest.raises(CheckpointError, match="at least 1"):
        retention_plan(disk, FOLDER, 0)


def test_retention_never_removes_the_newest_good_or_the_published_one() -> None:
    disk = full()
    empty(disk, NAMES[3])
    empty(disk, NAMES[2])
    apply_all(disk, publish_plan(FOLDER, NAMES[0]))
    apply_all(disk, retention_plan(disk, FOLDER, 1))
    assert disk.list(FOLDER) == ("LATEST", NAMES[0], NAMES[1], NAMES[3])
    assert search(disk)[0] == NAMES[0]


def test_retention_gets_past_an_earlier_one_that_was_cut_short() -> None:
    disk = full()
    plan = retention_plan(disk, FOLDER, 3)
    apply_all(disk, plan[:3])  # renamed, one file gone
    apply_all(disk, write_plan(FOLDER, STATES[0], 1))  # and the same name is written again
    apply_all(disk, retention_plan(disk, FOLDER, 3))
    assert disk.list(FOLDER) == ("LATEST", *NAMES[1:])
