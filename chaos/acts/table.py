"""Which act plays which kind of fault."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from chaos.acts.add import AddAct
from chaos.acts.base import Act, Board
from chaos.acts.disk import CorruptAct
from chaos.acts.kills import KillAct
from chaos.acts.network import EvictingAct, FlapAct, LinkAct, SlowCloseAct
from chaos.acts.slow import PauseAct, StraggleAct
from chaos.fault_kinds.links import Cut
from chaos.faults import AnyFault

_ACTS: dict[str, Callable[[str, Any, Board], Act]] = {
    "kill": KillAct,
    "power_cut": KillAct,
    "stop": KillAct,
    "pause": PauseAct,
    "straggle": StraggleAct,
    "add": AddAct,
    "corrupt_checkpoint": CorruptAct,
    "flap": FlapAct,
    "slow_close": SlowCloseAct,
}


def act_for(name: str, fault: AnyFault, board: Board) -> Act:
    """The act of a fault; every other kind is a fault of links."""
    if isinstance(fault, Cut) and fault.return_at is not None:
        return EvictingAct(name, fault, board)
    return _ACTS.get(fault.kind, LinkAct)(name, fault, board)
