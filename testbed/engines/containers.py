"""The engine `containers`: one container per role, every link through Toxiproxy, kills and pauses by Docker."""

from __future__ import annotations

from chaos.scenario import Scenario, refusals
from services.shell.loop import run
from testbed.engines.base import EngineOutcome, ProgressSink, RunPlan
from testbed.engines.container_place import ContainerPlace
from testbed.engines.local import run_in
from testbed.run_folder import RunFolder


class ContainersEngine:
    """See the module's docstring."""

    @property
    def name(self) -> str:
        return "containers"

    def refusals(self, scenario: Scenario, strategy: str) -> list[str]:
        return refusals(scenario, "containers", strategy, toxiproxy=True)

    def run(self, plan: RunPlan, folder: RunFolder, progress: ProgressSink) -> EngineOutcome:
        """One run, start to end. Raises EngineError; KeyboardInterrupt passes through, with nothing left behind."""
        return run(run_in(ContainerPlace(plan, folder, progress), plan, folder, progress))
