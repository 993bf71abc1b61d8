"""The lossy disk keeps the POSIX promise and nothing more; without a power cut it acts as the real one does."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from training.disk import (
    AppendFile,
    Disk,
    DiskOp,
    LossyDisk,
    MakeDir,
    Remove,
    Rename,
    SyncDir,
    SyncFile,
    WriteFile,
    apply_all,
)
from training.real_disk import RealDisk


def lossy(*ops: DiskOp) -> LossyDisk:
    disk = LossyDisk()
    apply_all(disk, ops)
    return disk


def always(number: int) -> Callable[[int], int]:
    """Chooses `number`, or the last possibility if there are fewer."""
    return lambda count: min(number, count - 1)


DURABLE_FILE = (WriteFile("a", b"old"), SyncFile("a"), SyncDir(""))


def test_a_synced_file_survives_and_an_unsynced_name_does_not() -> None:
    disk = lossy(*DURABLE_FILE, WriteFile("b", b"x"), SyncFile("b"))
    disk.crash(always(0))
    assert disk.list("") == ("a",)
    assert disk.read("a") == b"old"


@pytest.mark.parametrize(("choice", "left"), [(0, None), (1, b""), (2, b"ne"), (3, b"ne\0\0")])
def test_unsynced_content_is_missing_empty_torn_or_zero_filled(choice: int, left: bytes | None) -> None:
    disk = lossy(WriteFile("a", b"news"), SyncDir(""))
    answers = iter([choice, 2])
    disk.crash(lambda _: next(answers))
    assert (disk.read("a") if disk.exists("a") else None) == left


def test_an_unsynced_overwrite_may_leave_the_old_content() -> None:
    disk = lossy(*DURABLE_FILE, WriteFile("a", b"new"))
    disk.crash(always(0))
    assert disk.read("a") == b"old"


@pytest.mark.parametrize("seed", range(8))
def test_what_was_synced_before_an_append_is_safe(seed: int) -> None:
    disk = lossy(*DURABLE_FILE, AppendFile("a", b"new"))
    assert disk.read("a") == b"oldnew"
    disk.crash(random.Random(seed).randrange)
    assert disk.read("a").startswith(b"old")
    assert len(disk.read("a")) <= 6


def test_unsynced_renames_and_removals_are_undone() -> None:
    tree = (MakeDir("d"), WriteFile("d/f", b"1"), SyncFile("d/f"), SyncDir("d"), SyncDir(""))
    disk = lossy(*tree, Rename("d", "e"))
    assert disk.read("e/f") == b"1"
    disk.crash(always(0))
    assert disk.read("d/f") == b"1"
    assert not disk.exists("e")
    apply_all(disk, (Rename("d", "e"), SyncDir(""), Remove("e/f")))
    assert disk.list("e") == ()
    disk.crash(always(0))
    assert disk.read("e/f") == b"1"


def test_a_synced_rename_of_unsynced_content_shows_the_classic_empty_file() -> None:
    disk = lossy(*DURABLE_FILE, WriteFile("t", b"new"), Rename("t", "a"), SyncDir(""))
    disk.crash(always(1))
    assert disk.read("a") == b""


def bad_operations(root: str) -> Sequence[tuple[DiskOp, type[OSError]]]:
    return (
        (MakeDir(f"{root}none/d"), FileNotFoundError),
        (MakeDir(f"{root}f"), FileExistsError),
        (WriteFile(f"{root}none/f", b""), FileNotFoundError),
        (WriteFile(f"{root}d", b""), IsADirectoryError),
        (SyncFile(f"{root}none"), FileNotFoundError),
        (SyncDir(f"{root}none"), FileNotFoundError),
        (SyncDir(f"{root}f"), NotADirectoryError),
        (Rename(f"{root}none", f"{root}x"), FileNotFoundError),
        (Rename(f"{root}d", f"{root}full"), OSError),
        (Rename(f"{root}d", f"{root}f"), NotADirectoryError),
        (Rename(f"{root}f", f"{root}d"), IsADirectoryError),
        (Rename(f"{root}d", f"{root}d/e"), OSError),
        (Remove(f"{root}none"), FileNotFoundError),
        (Remove(f"{root}full"), OSError),
        (WriteFile(f"{root}f/g", b""), NotADirectoryError),
    )


@pytest.mark.parametrize("real", [False, True], ids=["lossy", "real"])
def test_both_disks_refuse_the_same(real: bool, tmp_path: Path) -> None:
    disk: Disk = RealDisk() if real else LossyDisk()
    root = f"{tmp_path}/" if real else ""
    apply_all(disk, [MakeDir(f"{root}d"), MakeDir(f"{root}d"), WriteFile(f"{root}f", b"x")])
    apply_all(disk, [MakeDir(f"{root}full"), WriteFile(f"{root}full/g", b"y")])
    for op, expected in bad_operations(root):
        with pytest.raises(expected):
            disk.apply(op)
    for path in (f"{root}none", f"{root}d"):
        with pytest.raises(OSError, match=r"none|d"):
            disk.read(path)
    assert disk.list(root or "") == ("d", "f", "full")
    assert disk.list(f"{root}full") == ("g",)
    assert not disk.exists(f"{root}none")


NAMES = st.sampled_from(["a", "d", "d/a", "d/a/b", "e"])
OPS = st.one_of(
    st.builds(MakeDir, NAMES),
    st.builds(WriteFile, NAMES, st.binary(max_size=3)),
    st.builds(AppendFile, NAMES, st.binary(max_size=3)),
    st.builds(Rename, NAMES, NAMES),
    st.builds(Remove, NAMES),
)


def rooted(op: DiskOp, root: Path) -> DiskOp:
    if isinstance(op, Rename):
        return Rename(f"{root}/{op.source}", f"{root}/{op.target}")
    if isinstance(op, WriteFile | AppendFile):
        return type(op)(f"{root}/{op.path}", op.content)
    return type(op)(f"{root}/{op.path}")


def contents(disk: Disk, path: str) -> dict[str, bytes | None]:
    found: dict[str, bytes | None] = {}
    for name in disk.list(path):
        inside = f"{path}/{name}"
        try:
            found[name] = disk.read(inside)
        except IsADirectoryError:
            found[name] = None
            found |= {f"{name}/{deeper}": content for deeper, content in contents(disk, inside).items()}
    return found


@settings(max_examples=300, suppress_health_check=[HealthCheck.too_slow])
@given(ops=st.lists(OPS, min_size=5, max_size=25))
def test_without_a_power_cut_both_disks_act_alike(ops: list[DiskOp], tmp_path_factory: pytest.TempPathFactory) -> None:
    root = tmp_path_factory.mktemp("disk")
    real, model = RealDisk(), LossyDisk()
    for op in (MakeDir("d"), MakeDir("e"), *ops):
        outcomes = []
        for disk, done in ((real, rooted(op, root)), (model, op)):
            try:
                disk.apply(done)
                outcomes.append(True)
            except OSError:
                outcomes.append(False)
        assert outcomes[0] == outcomes[1], op
        assert contents(real, str(root)) == contents(model, "")
