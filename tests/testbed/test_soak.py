"""Soaks: a schedule from a seed, what is watched while it runs, and the two minutes of it that CI has."""

from __future__ import annotations

import json
import re
import resource
import subprocess
import sys
import time
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import pytest

from chaos.fault_kinds.links import Partition
from chaos.fault_kinds.roles import Kill, Pause
from chaos.faults import AnyFault
from chaos.membership import Position, faults_on, returns_at
from chaos.soaking import FAULTS_MAX, soak_scenario
from chaos.training_setup import STEPS_MAX
from testbed.cli import run_command
from testbed.soaking import soaked
from testbed.usage import Sample, UsageWatch, growth_of, read_answer


def used(minutes: int, mib: float, mib_per_minute: float, descriptors: int = 20, more: float = 0.0) -> list[Sample]:
    """What a role uses, looked at every six seconds."""
    tenths = [number / 10 for number in range(10 * minutes)]
    return [Sample(60 * at, "1", mib + mib_per_minute * at, round(descriptors + more * at)) for at in tenths]


def test_a_schedule_follows_from_its_seed() -> None:
    first = soak_scenario(7, 40, "containers", partitions=True)
    assert first == soak_scenario(7, 40, "containers", partitions=True)
    assert first != soak_scenario(8, 40, "containers", partitions=True)
    assert {type(fault) for fault in first.faults} == {Kill, Pause, Partition}
    assert first.fixed
    back = [returns_at(fault) or 0 for fault in first.faults]
    assert 0 not in back
    assert all(earlier <= later for earlier, later in pairwise(back))


def test_the_longest_fits_one_run_and_more_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    longest = soak_scenario(1, FAULTS_MAX, "sim", partitions=True)
    assert len(longest.faults) >= FAULTS_MAX
    assert STEPS_MAX // 2 < longest.training.steps <= STEPS_MAX
    assert run_command(["soak", "--faults", str(FAULTS_MAX + 1), "--engine", "sim"]) == 2
    assert capsys.readouterr().err == (
        "gradstorm: 22223 faults: a run of 1,000,000 steps, the longest, has room for 22,222;"
        " make several runs, each with a seed of its own\n"
    )


@pytest.mark.parametrize("minutes", ["60", "inf"])
def test_minutes_that_one_run_cannot_hold_are_said(
    minutes: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def pace_s(*_: object) -> float:
        return 0.06

    monkeypatch.setattr("testbed.soaking.pace_s", pace_s)
    monkeypatch.setattr(
        "testbed.soaking.soaked",
        lambda _, faults, *__: soaked(1, faults // FAULTS_MAX, "sim", "ring", tmp_path / "run", print),
    )
    assert run_command(["soak", "--minutes", minutes, "--engine", "sim"]) == 0
    assert (
        "one fault every 0.06 s: 22222 of them are 22.2 minutes, and one run holds no more" in capsys.readouterr().err
    )


def test_planning_looks_at_each_worker_as_often_however_many_faults_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """Looked at anew for every fault, an hour of the simulator took days to plan."""
    looks: list[int] = []

    def counted(faults: Sequence[AnyFault], worker: int) -> list[tuple[Position, int, AnyFault]]:
        looks.append(worker)
        return faults_on(faults, worker)

    monkeypatch.setattr("chaos.membership.faults_on", counted)
    soak_scenario(1, 5, "sim", partitions=True)
    few = len(looks)
    soak_scenario(1, 50, "sim", partitions=True)
    assert 0 < len(looks) - few == few


def test_nothing_draws_by_choice() -> None:
    """numpy's `Generator.choice` loses a KeyboardInterrupt now and then: the command goes on for an hour."""
    root = Path(__file__).resolve().parents[2]
    sources = [path for part in ("chaos", "services", "testbed", "training") for path in (root / part).rglob("*.py")]
    assert len(sources) > 100
    assert [path.name for path in sources if re.search(r"\.choice\(", path.read_text("utf-8"))] == []


def test_memory_that_stands_does_not_grow_and_memory_that_rises_does() -> None:
    assert not growth_of("coordinator", used(15, 70, 0.5)).grows
    assert growth_of("coordinator", used(15, 70, 3.0)).grows
    assert growth_of("coordinator", used(15, 70, 0.0, more=1.0)).grows
    warm_up = [Sample(float(at), "1", 40.0, 10) for at in range(60)]
    later = [Sample(60.0 + sample.at_s, "1", sample.rss_mib, 20) for sample in used(15, 70, 0.0)]
    assert not growth_of("coordinator", warm_up + later).grows


@pytest.mark.parametrize("answer", ["", "1 2 3\n", "12\n", "1 2 3 4 5 6 7\nls: cannot open\n"])
def test_who_dies_while_it_is_asked_is_passed_over(answer: str) -> None:
    assert read_answer("1", answer) is None
    sample = read_answer("1", "15210 6912 3403 1 0 9120 0\n17\n")
    assert sample is not None
    assert (round(sample.rss_mib), sample.descriptors) == (6912 * resource.getpagesize() >> 20, 17)


def test_a_watch_that_went_blind_says_nothing_of_growth() -> None:
    watch = UsageWatch("containers", Path("run"), ("coordinator",), {"coordinator": used(10, 70, 0.0)}, ended_s=610.0)
    assert [growth.role for growth in watch.growth()] == ["coordinator"]
    watch.ended_s = 900.0
    assert watch.growth() == []


def test_in_the_simulator_both_strategies_end_alike(tmp_path: Path) -> None:
    said: list[str] = []
    ring = soaked(3, 12, "sim", "ring", tmp_path / "ring", said.append)
    ps = soaked(3, 12, "sim", "ps", tmp_path / "ps", said.append)
    assert ring.complaints == ps.complaints == ()
    assert ring.undone == ring.planned >= 12
    assert ring.document["params_sha256"] == ps.document["params_sha256"]
    assert any("faults done" in line for line in said)


def test_a_soak_that_goes_wrong_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["soak", "--faults", "2", "--engine", "sim", "--out", str(tmp_path / "run")]) == 0
    assert "nothing was lost, nothing grows" in capsys.readouterr().out
    assert run_command(["soak", "--faults", "2", "--engine", "sim", "--out", str(tmp_path / "run")]) == 2


@pytest.mark.local
@pytest.mark.slow
def test_what_children_use_is_seen(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with UsageWatch("local", folder, ("coordinator", "verifier")) as watch:
        soaked(1, 6, "local", "ring", folder, lambda _: None)
    assert {role for role, samples in watch.samples.items() if samples} == {"coordinator", "verifier"}
    last = [samples[-2] for samples in watch.samples.values()]
    assert all(sample.rss_mib > 20 and sample.descriptors > 5 for sample in last), last


@pytest.mark.containers
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_two_minutes_in_containers(tmp_path: Path) -> None:
    began_s = time.monotonic()
    command = [sys.executable, "-m", "testbed.cli", "soak", "--minutes", "2", "--seed", "5", "--json"]
    done = subprocess.run(
        [*command, "--engine", "containers", "--strategy", "ps", "--out", str(tmp_path / "run")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout, done.stderr[-3000:]
    document = json.loads(done.stdout)
    told = {**document, "run": document["run"]["reasons"]}
    assert (done.returncode, document["complaints"]) == (0, []), told
    assert document["faults_undone"] == document["faults_planned"] > 5
    assert {one["role"] for one in document["growth"]} == {"coordinator", "server", "verifier"}
    assert time.monotonic() - began_s > 60
