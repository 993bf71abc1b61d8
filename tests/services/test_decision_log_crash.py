"""The coordinator's log, killed, cut off from power or refused at every operation and every system call.

What was told is in the log afterwards, bit by bit, and at most the one decision that was under way beside it; damage is
named. The numbers of points that were tried are printed.
"""

from __future__ import annotations

import errno
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from services.decision_log import PATH, LogDamaged, append_plan, begin_plan, encode_line, read_log
from services.records import Admitted, Closed, Committed, Fact, Opened, Published, Regrouped, RolledBack
from services.shell.rooted_disk import RootedDisk
from tests.counted import COUNTED, RecordProperty
from tests.training.syscalls import Calls, Killed, failing
from training.disk import AppendFile, Disk, DiskOp, LossyDisk, WriteFile, apply_all

D = "d" * 64
FACTS: tuple[Fact, ...] = (
    Admitted(1, 1, "n"),
    Regrouped(1, ((1, 1), (2, 2)), 0, "start"),
    Opened(1, 1, 0, {"1": (3, 4), "2": ()}, 10),
    Closed(1, 1, 0, ((1, 1, 2),), 2, ((2, "deadline"),)),
    Committed(1, 1, 0, 0, ((1, 1, 2),), ((3, 4),), (D,), 2, D, 0.5),
    Published(1, "ckpt-00000001-g1-i1", 1, 1, D, D, "{}"),
    RolledBack(0, 2, "ckpt-00000000-g0-i0", D, D, "{}", "everybody died"),
)
PLANS = (begin_plan(FACTS[:2]), *(append_plan(fact) for fact in FACTS[2:]))
SEEDS = range(6)


def told_after(plans: int) -> int:
    """Decisions that were told once so many plans were carried out."""
    return 0 if plans == 0 else plans + 1


def moments() -> Iterator[tuple[tuple[DiskOp, ...], int]]:
    """Every state in which a kill can leave the disk, with half-written files, and how many plans were done by then."""
    done: tuple[DiskOp, ...] = ()
    for number, plan in enumerate(PLANS):
        for count, op in enumerate(plan):
            yield (*done, *plan[:count]), number
            if isinstance(op, WriteFile | AppendFile):
                for size in range(len(op.content)):
                    yield (*done, *plan[:count], type(op)(op.path, op.content[:size])), number
        done = (*done, *plan)
    yield done, len(PLANS)


def in_log(disk: Disk) -> tuple[tuple[Fact, ...], bool]:
    return read_log(disk.read(PATH) if disk.exists(PATH) else b"")


def require_old_or_new(disk: Disk, plans: int) -> None:
    facts, torn = in_log(disk)
    told = told_after(plans)
    assert facts == FACTS[: len(facts)]
    assert told <= len(facts) <= told_after(plans + 1)
    if torn:
        apply_all(disk, begin_plan(facts))
        assert in_log(disk) == (facts, False)


def test_bug_kind_06_log_killed_at_every_operation_and_every_byte(record_property: RecordProperty) -> None:
    points = 0
    for operations, plans in moments():
        disk = LossyDisk()
        apply_all(disk, operations)
        require_old_or_new(disk, plans)
        points += 1
    record_property(COUNTED, f"decision log: killed at {points} points, all old or new")
    assert points > 1000


def test_bug_kind_06_log_power_cut_at_every_operation(record_property: RecordProperty) -> None:
    points = named = 0
    for operations, plans in moments():
        last = operations[-1] if operations else None
        if isinstance(last, WriteFile | AppendFile) and len(last.content) % 16:
            continue  # every sixteenth byte; every byte is above
        for seed in SEEDS:
            disk = LossyDisk()
            apply_all(disk, operations)
            disk.crash(random.Random(seed).randrange)
            points += 1
            try:
                require_old_or_new(disk, plans)
            except LogDamaged:
                named += 1
    record_property(COUNTED, f"decision log: power cut at {points} points, all old or new, {named} named as damaged")
    assert points > 300


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC, 0], ids=["EIO", "ENOSPC", "killed"])
def test_bug_kind_06_log_at_every_system_call(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, record_property: RecordProperty
) -> None:
    error = failing(number) if number else Killed
    at = 0
    while True:
        (folder := tmp_path / str(at)).mkdir()
        disk = RootedDisk(str(folder))
        calls = Calls(at, error)
        done = 0
        with monkeypatch.context() as patched:
            patched.setattr("training.real_disk.os", calls)
            try:
                for plan in PLANS:
                    apply_all(disk, plan)
                    done += 1
            except (OSError, Killed) as caught:
                assert isinstance(caught, Killed) or caught.errno == number  # noqa: PT017 - whichever it is
        if done == len(PLANS):
            break
        require_old_or_new(disk, done)
        at += 1
    record_property(
        COUNTED, f"decision log: {errno.errorcode.get(number, 'killed')} at {at} system calls, all old or new"
    )
    assert at == calls.count >= 25


def test_bug_kind_06_log_every_bit_and_every_cut(record_property: RecordProperty) -> None:
    content = b"".join(encode_line(fact) for fact in FACTS)
    for bit in range(8 * len(content)):
        damaged = bytearray(content)
        damaged[bit // 8] ^= 1 << bit % 8
        try:
            facts, torn = read_log(bytes(damaged))
        except LogDamaged:
            continue
        assert torn  # the last newline: nothing is missing
        assert facts in (FACTS, FACTS[:-1])
    for cut in range(len(content)):
        facts, torn = read_log(content[:cut])
        assert facts == FACTS[: len(facts)]
        assert torn or content[:cut] == b"".join(encode_line(fact) for fact in facts)
    record_property(COUNTED, f"decision log: {8 * len(content)} flipped bits and {len(content)} cuts, all detected")
