"""Whether a death was known late, as the driver measures it: from when it heard of the death itself."""

from __future__ import annotations

import pytest

from chaos.actions import Tell
from chaos.acts.base import Board, Stage
from chaos.acts.network import SlowCloseAct
from chaos.fault_kinds.connections import SlowClose
from chaos.faults import fault_names
from chaos.library import load_scenario
from services.records import Died, FaultActed


@pytest.mark.parametrize(("known_after_ms", "acted"), [(30.0, False), (240.0, False), (470.0, True), (520.0, True)])
def test_half_of_the_delay_must_be_seen(known_after_ms: float, acted: bool) -> None:
    fault = load_scenario("slow-close").faults[0]
    assert isinstance(fault, SlowClose)
    board = Board(lease_ms=1000.0, deadline_ms=1000.0, join_wait_ms=1000.0)
    act = SlowCloseAct(fault_names([fault])[0], fault, board)
    act.stage = Stage.STRUCK
    board.now_ms = 100.0
    act.on_exit("worker-2", 137)
    board.now_ms += known_after_ms
    told = [action.fact for action in act.on_fact(Died(2, 1, "link broken", 4)) if isinstance(action, Tell)]
    assert any(isinstance(fact, FaultActed) for fact in told) == acted
