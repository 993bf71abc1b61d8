"""Whose time is whose in a profile."""

from __future__ import annotations

import pytest

from testbed.bench.profile import CONTROL_MESSAGES, RoleClocks, exchange_us
from testbed.bench.simulated_profile import PARTS, part_of, shares_of
from testbed.engines.base import EngineError


def test_a_file_belongs_to_one_part() -> None:
    assert part_of("/x/services/roles/worker.py") == "roles"
    assert part_of("/x/services/host.py") == "host"
    assert part_of("/x/services/judge.py") == part_of("/y/autograd/core.py") == "judge"
    assert part_of("/x/testbed/engines/sim_world.py") == "world_and_network"
    assert part_of("/usr/lib/heapq.py") == "other"
    assert len({part for part, _ in PARTS}) == len(PARTS)


def test_c_code_is_counted_where_it_was_called_from() -> None:
    host, role = ("/x/services/host.py", 1, "handle"), ("/x/services/roles/worker.py", 1, "handle")
    stats = {
        host: (1, 1, 1.0, 4.0, {}),
        role: (1, 1, 2.0, 2.5, {host: (1, 1, 2.0, 2.5)}),
        ("~", 0, "len"): (3, 3, 1.0, 1.0, {host: (1, 1, 0.5, 0.5), role: (2, 2, 0.5, 0.5)}),
    }
    assert shares_of(stats) == {"host": 37.5, "roles": 62.5}
    assert shares_of({}) == {}


def test_steps_that_were_not_seen_have_no_clocks() -> None:
    with pytest.raises(EngineError, match="not both seen"):
        RoleClocks(1, 9).per_step()


def test_parts_are_timed_with_the_production_exchange() -> None:
    assert exchange_us(36) > 0.0
    assert CONTROL_MESSAGES == 24
