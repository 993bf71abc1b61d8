"""Where a run with faults on links waits for their measurement: the coordinator stands before the last, clean steps.

Steps take milliseconds, and to see whether a link is as it was before takes longer. So the coordinator stands at the
open of the first of the clean steps until every fault of links that has begun is off and measured; the links live
meanwhile, heartbeats and all. On the simulator, where measuring takes no time, it stands for none.
"""

from __future__ import annotations

from collections.abc import Sequence

from chaos.acts.base import Act
from chaos.acts.network import LinkAct
from chaos.fault_kinds.base import PhaseTrigger
from chaos.fault_kinds.links import LinkFault
from chaos.scenario import Scenario
from services.events import COORDINATOR


def gate_of(scenario: Scenario) -> PhaseTrigger | None:
    """The point at which the coordinator stands; None without faults of links."""
    step = scenario.training.steps - scenario.clean_steps + 1
    if step < 1 or not any(isinstance(fault, LinkFault) for fault in scenario.faults):
        return None
    return PhaseTrigger(role=COORDINATOR, step=step, phase="opened")


def keeps_shut(acts: Sequence[Act]) -> bool:
    """Whether something is still to be measured."""
    return any(isinstance(act, LinkAct) and act.acting for act in acts)
