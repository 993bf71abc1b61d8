"""Which figures there are, how the roles of the benchmark count their turns, and when a recovery begins and ends."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import pytest

from services.events import Received, Send, Started, worker_name
from services.messages import Part
from testbed.bench.exchange_role import WARM_UP_TURNS, Gathering, Reducing, Turns
from testbed.bench.families import FAMILIES, chosen
from testbed.bench.local_run import Measured, Seen, Stopwatch, rates_per_s
from testbed.bench.machine import alone
from testbed.bench.recovery import recovery_ms
from testbed.bench.torch_peer import find_torch
from tests.testbed.bench.crew_in_memory import carry_all
from training.errors import ConfigurationError


def test_families_are_chosen_by_name_and_a_wrong_one_gets_the_nearest() -> None:
    assert [family.name for family in chosen([])] == [family.name for family in FAMILIES]
    assert [family.name for family in chosen(["recovery"])] == ["recovery"]
    with pytest.raises(ConfigurationError, match="did you mean 'recovery'"):
        chosen(["recovry"])


def test_two_benchmarks_never_measure_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))  # somebody may be measuring right now
    with alone(), pytest.raises(ConfigurationError, match="another gradstorm bench"), alone():
        pass
    with alone():
        pass


def test_a_python_without_torch_is_no_peer() -> None:
    import sys

    assert find_torch({"GRADSTORM_TORCH_PYTHON": "/nowhere/python"}) is None
    assert find_torch({"GRADSTORM_TORCH_PYTHON": sys.executable, "PATH": ""}) is None


def test_turns_know_their_place() -> None:
    turns = Turns(2, ((5, 1), (7, 2)), 4)
    assert turns.count == 2 * WARM_UP_TURNS + 3
    assert [turns.elements(turn) for turn in (1, WARM_UP_TURNS + 1, WARM_UP_TURNS + 2, turns.count)] == [5, 5, 7, 7]
    with pytest.raises(IndexError):
        turns.elements(turns.count + 1)


@pytest.mark.parametrize("strategy", ["ring", "ps"])
def test_every_worker_ends_with_the_same_values(strategy: str) -> None:
    turns = Turns(3, ((5, 1), (8, 2)), 4)
    roles = {worker_name(worker): Reducing(worker, strategy, turns) for worker in (1, 2, 3)}
    results = carry_all({**roles, **({"server": Gathering(turns)} if strategy == "ps" else {})})
    digests = {tuple(results[name]["digests"]) for name in roles}
    assert len(digests) == 1
    assert all(len(digest) == 64 for digest in next(iter(digests)))
    assert [len(took) for took in results["worker-1"]["ms"]] == [WARM_UP_TURNS + 1, WARM_UP_TURNS + 2]


def test_a_part_of_another_turn_is_our_own_bug() -> None:
    worker = Reducing(2, "ring", Turns(2, ((2, 1),), 4))
    worker.handle(0.0, Started(""))
    peer = Reducing(1, "ring", Turns(2, ((2, 1),), 4))
    sent = [effect.message for effect in peer.handle(0.0, Started("")) if isinstance(effect, Send)]
    assert isinstance(sent[0], Part)
    worker.handle(0.0, Received("worker-1", 0, sent[0]))
    with pytest.raises(AssertionError, match="turn 1 in turn 2"):
        worker.handle(0.0, Received("worker-1", 0, sent[0]))


def test_the_result_is_one_file() -> None:
    results = carry_all({worker_name(worker): Reducing(worker, "ring", Turns(2, ((2, 1),), 4)) for worker in (1, 2)})
    assert json.loads(json.dumps(results))["worker-2"]["digests"] == results["worker-1"]["digests"]


def test_recovery_ends_with_a_commit_of_the_survivors() -> None:
    watch = Stopwatch(
        [Seen(1.0, 1, 1), Seen(2.0, 2, 1), Seen(2.01, 3, 1), Seen(2.2, 4, 2), Seen(2.3, 5, 2), Seen(3.5, 6, 3)],
        [2.0 + 1e-6, 3.0],
    )
    assert recovery_ms(watch) == pytest.approx([199.999, 500.0])


def test_a_kill_after_the_last_commit_is_not_counted() -> None:
    assert recovery_ms(Stopwatch([Seen(1.0, 1, 1)], [2.0])) == []


def test_rates_are_counted_in_stretches_after_a_warm_up() -> None:
    commits = [Seen(0.5 * step, step, 1) for step in range(1, 41)]
    rates = rates_per_s(Measured(Stopwatch(commits), 0.0, {}), windows=5)
    assert rates == pytest.approx([2.0] * 5)
