"""`--keep`: a run in containers that failed stands, for a look, until Ctrl-C or SIGTERM; then it ends as any would.

Its faults are undone by then, its roles run as the failure left them, and its verdict is given when they have left.
"""

from __future__ import annotations

import signal

from chaos.actions import Action, Tell
from services.messages import Judged
from services.records import FaultMissed
from services.shell.loop import run
from testbed.engines.base import EngineOutcome, ProgressSink, RunPlan
from testbed.engines.container_place import ContainerPlace
from testbed.engines.containers import ContainersEngine
from testbed.engines.local import LocalRun, Nudge, run_in
from testbed.run_folder import RunFolder

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class KeepingEngine(ContainersEngine):
    """The engine `containers`, for a person who wants to look at what failed."""

    def run(self, plan: RunPlan, folder: RunFolder, progress: ProgressSink) -> EngineOutcome:
        """One run; when it fails, it stands until a signal. Raises EngineError."""
        return run(run_in(ContainerPlace(plan, folder, progress), plan, folder, progress, KeptRun))


class KeptRun(LocalRun):
    """See the module's docstring."""

    _why = ""  # what is known of a failure before the verdict
    _looked = False

    async def _let_leave(self) -> None:
        why = self._aborted or self._why
        if not why and self._stop_condition not in ("", "finished"):
            why = f"stopped: {self._stop_condition}"
        if why:
            await self._stand(why)
        await super()._let_leave()

    async def _stand(self, why: str) -> None:
        run_id = self._plan.config.run_id
        self._progress.note(f"the run failed ({why}) and stands: docker ps -a --filter label=gradstorm.run={run_id}")
        self._progress.note("Ctrl-C takes it down and gives the verdict")
        for number in _SIGNALS:
            self._loop.add_signal_handler(number, self._look_no_more)
        try:
            await self._until(lambda: self._looked, None, None)
        finally:
            for number in _SIGNALS:
                self._loop.remove_signal_handler(number)

    def _look_no_more(self) -> None:
        self._looked = True
        self._queue.put_nowait(Nudge())

    async def _carry_out(self, action: Action) -> None:
        if isinstance(action, Tell) and isinstance(action.fact, FaultMissed):
            self._why = self._why or f"fault {action.fact.fault}: {action.fact.reason}"
        await super()._carry_out(action)

    def _judged(self, so_far: Judged) -> None:
        super()._judged(so_far)
        if '"violated"' in so_far.verdicts_json:
            self._why = self._why or "an invariant is violated"
