"""The table of phases is that of the protocol, and it prints."""

from __future__ import annotations

import pytest

from chaos.phases import PHASES, find_phase, markdown_table, phase_order, phases_of


def test_each_role_has_its_phases_in_the_order_of_a_step() -> None:
    names = {
        role: [phase.name for phase in phases_of(role)] for role in ("worker-3", "coordinator", "server", "verifier")
    }
    assert names == {
        "worker-3": ["open", "offer", "reduce", "ready", "apply", "applied", "sync", "proved"],
        "coordinator": ["opened", "closed", "decide", "tell"],
        "server": ["gathering", "publishing"],
        "verifier": ["unstored", "stored"],
    }


def test_a_joiner_stands_before_everything_else_of_its_step() -> None:
    order = ["sync", "proved", "open", "offer", "reduce", "ready", "apply", "applied"]
    assert sorted(order, key=lambda name: phase_order("worker-1", name)) == order
    with pytest.raises(ValueError, match="decide"):
        phase_order("worker-1", "decide")


def test_lookup() -> None:
    found = find_phase("coordinator", "tell")
    assert found is not None
    assert found.death.startswith("step t stands")
    assert find_phase("coordinator", "offer") is None
    assert find_phase("shard-1", "open") is None
    assert find_phase("shard-1", "prepared", sharded=True) is not None
    assert find_phase("worker-1", "open", sharded=True) is None
    assert find_phase("coordinator", "closed", sharded=True) is None


def test_the_table_prints_whole() -> None:
    table = markdown_table()
    assert table.count("\n") == len(PHASES) + 2
    assert all(line.count("|") == 7 for line in table.splitlines())
