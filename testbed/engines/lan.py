"""The engine `lan`: members on hosts that listen and are attached, the other roles on this machine."""

from __future__ import annotations

from dataclasses import dataclass

from chaos.scenario import Scenario, refusals
from services.shell.loop import run
from testbed.engines.base import EngineOutcome, ProgressSink, RunPlan
from testbed.engines.lan_place import LanPlace
from testbed.engines.local import run_in
from testbed.lan.settings import LanSettings
from testbed.run_folder import RunFolder
from training.errors import ConfigurationError


@dataclass(frozen=True, slots=True)
class LanEngine:
    """See the module's docstring. `lan` is None while nobody has said where the hosts are."""

    lan: LanSettings | None = None

    @property
    def name(self) -> str:
        return "lan"

    def refusals(self, scenario: Scenario, strategy: str) -> list[str]:
        return refusals(scenario, "lan", strategy)

    def run(self, plan: RunPlan, folder: RunFolder, progress: ProgressSink) -> EngineOutcome:
        """One run, start to end. Raises EngineError; KeyboardInterrupt passes through, with nothing left behind."""
        if self.lan is None:
            raise ConfigurationError("engine lan attaches to what it is told: give --attach (see gradstorm plan)")
        return run(run_in(LanPlace(plan, folder, self.lan, progress), plan, folder, progress))
