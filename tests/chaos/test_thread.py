"""The thin thread: packaged scenarios parse, and the driver carries out a kill from the hold to the healing."""

from __future__ import annotations

from chaos.library import load_scenario
from tests.chaos.transcript import Play


def test_a_clean_run_heals_at_once() -> None:
    play = Play(load_scenario("clean"))
    play.clear()
    play.opened(40, 1)
    assert play.text == "40 coordinator: Opened 1 1 0\n  Tell Healed 20000.0 3 0\n"


def test_a_kill_from_the_hold_to_the_healing() -> None:
    play = Play(load_scenario("kill-worker"))
    play.opened(40, 1)
    play.clear()
    play.stand(90, "worker-2", "5.reduce")
    play.exit(95, "worker-2")
    assert play.lines == [
        "90 RoleStood worker-2 worker-2.5.reduce",
        "  FreezeTimers",
        "  Kill worker-2",
        "  DriverSetTimer 1-kill-worker-2:1 10000.0",
        "95 RoleExited worker-2 1 -9",
        "  ThawTimers",
        "  Tell FaultActed 1-kill-worker-2 {'role': 'worker-2', 'step': 5, 'phase': 'reduce', 'exit_code': -9}",
        "  Tell FaultUndone 1-kill-worker-2 {'how': 'nothing to undo: worker-2 stays out'}",
        "  Tell Healed 20000.0 3 0",
    ]
