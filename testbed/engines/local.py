"""The engine `local`, and a run whose roles are real processes in some `Place`: on this machine, or in containers.

    launch all roles -> each dials the driver -> holds armed, directory published -> the run
    -> the coordinator finishes (or the driver gives up) -> roles leave -> Conclude -> verdict -> everything reaped

One asyncio loop in this process. Everything that happens (a role says something, a process exits, a timer rings) goes
through one queue and is handled one at a time: `LocalRun._take`.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from chaos.actions import (
    AbortRun,
    Action,
    ApplyLinkFault,
    ArmHold,
    CorruptCheckpoint,
    DriverEvent,
    DriverSetTimer,
    DriverTimer,
    FreezeTimers,
    Kill,
    Launch,
    LinkMeasured,
    ReleaseHold,
    Resume,
    RoleExited,
    RoleLaunched,
    RoleObserved,
    RoleStood,
    RunBegan,
    Suspend,
    Tell,
    ThawTimers,
    UndoLinkFault,
)
from chaos.driver import Driver
from chaos.scenario import Scenario
from services.events import COORDINATOR, DRIVER, VERIFIER
from services.messages import Judged
from services.records import Finished, Regrouped
from services.shell.driver_link import (
    Counted,
    DriverError,
    FactSeen,
    HoldReached,
    LinksSeen,
    RoleConnected,
    RoleEnded,
    RoleGone,
    Thing,
)
from services.shell.driver_reporter import DriverReporter
from services.shell.loop import run
from services.shell.rooted_disk import RootedDisk
from testbed.engines.base import NO_VERIFIER, EngineError, EngineOutcome, ProgressSink, RoleExit, RunPlan
from testbed.engines.corruption import corrupt_checkpoints
from testbed.engines.driver_log import driver_log
from testbed.engines.local_cast import first_cast
from testbed.engines.local_place import LocalPlace, refusals_here
from testbed.engines.local_roles import LocalRoles, all_but_verifier
from testbed.engines.place import Ears, Place
from testbed.engines.process import log_tail
from testbed.run_folder import RunFolder

CONNECT_S = 120.0  # from the start of a process until it dials us
LEAVE_S = 30.0  # for the roles to end by themselves once the run is over
ACCOUNT_S = 2.0  # for the last words of a role that has exited
VERDICT_S = 180.0  # for the verifier to catch up and judge
STRAY_EXIT_S = 15.0  # an orderly exit may be seen before the fact that explains it
_ORDERLY = {0: "finished", 5: "stopped by a named condition"}  # a role's own exit codes, `services.shell.runner`
_QUIET_S = 2.0  # nothing new for so long: say who is waited for
_TICK_S = 0.5


class LocalEngine:
    """See the module's docstring."""

    def __init__(self, *, proxied: bool = False) -> None:
        self._proxied = proxied  # what Toxiproxy costs is to be measured

    @property
    def name(self) -> str:
        return "local"

    def refusals(self, scenario: Scenario, strategy: str) -> list[str]:
        return refusals_here(scenario, strategy)

    def run(self, plan: RunPlan, folder: RunFolder, progress: ProgressSink) -> EngineOutcome:
        """One run, start to end. Raises EngineError; KeyboardInterrupt passes through, with nothing left behind."""
        return run(run_in(LocalPlace(plan, folder, proxied=self._proxied), plan, folder, progress))


@dataclass(frozen=True, slots=True)
class _Said:
    role: str
    launch: int
    thing: Thing


@dataclass(frozen=True, slots=True)
class _Exited:
    role: str
    launch: int
    exit_code: int


@dataclass(frozen=True, slots=True)
class _Rang:
    timer: str


@dataclass(frozen=True, slots=True)
class _Unexplained:
    """An orderly exit, some time ago: by now the fact that explains it must have come."""

    exit: RoleExited


@dataclass(frozen=True, slots=True)
class Nudge:
    """Nothing happened but that a condition may hold now."""


_Item = _Said | _Exited | _Rang | _Unexplained | Nudge | LinkMeasured | EngineError


async def run_in(
    place: Place, plan: RunPlan, folder: RunFolder, progress: ProgressSink, make: Callable[..., LocalRun] | None = None
) -> EngineOutcome:
    """One run with its roles in that place, which is closed afterwards. `make` makes another sort of run than usual."""
    with driver_log(folder.logs / "driver.1.log") as log:
        run = (make or LocalRun)(place, plan, folder, progress, log)
        try:
            return await run.go()
        finally:
            await run.close()


class LocalRun:
    """One run. Belongs to one asyncio loop. Duty of the caller: `await close()` on every way out."""

    def __init__(self, place: Place, plan: RunPlan, folder: RunFolder, progress: ProgressSink, log: Any) -> None:
        self._place = place
        self._plan = plan
        self._folder = folder
        self._progress = progress
        self._log = log
        self._loop = asyncio.get_running_loop()
        self._began_s = time.monotonic()
        self._queue: asyncio.Queue[_Item] = asyncio.Queue()
        self._driver = Driver(plan.scenario, plan.config.strategy, plan.promises)
        self._roles = LocalRoles(plan, place, progress, log)
        self._reporter = DriverReporter(plan.config.run_id, plan.token, log=log, on_judged=self._judged)
        self._tasks: list[asyncio.Task[None]] = []
        self._missing = set(first_cast(plan))  # of the first cast, not connected yet
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._exits: list[RoleExit] = []
        self._stop_condition = ""
        self._stop_reason = ""
        self._aborted = ""
        self._heard_s = time.monotonic()

    # ------------------------------------------------------------ the run, from start to end

    async def go(self) -> EngineOutcome:
        """Everything, in order."""
        put = self._queue.put_nowait
        await self._roles.open(Ears(exited=lambda *gone: put(_Exited(*gone)), failed=put, measured=put))
        self._tasks = [self._loop.create_task(self._listen()), self._loop.create_task(self._tell_waits())]
        await self._feed(RunBegan())
        for role in first_cast(self._plan):
            self._roles.launch(role)
        await self._until(lambda: not self._missing, CONNECT_S, self._not_connected)
        self._publish()
        await self._until(lambda: bool(self._stop_condition or self._aborted), None, None)
        await self._let_leave()
        verdict = await self._verdict() if self._plan.verifier else self._no_verdict()
        return EngineOutcome(verdict, tuple(self._exits), self._stop_condition, self._stop_reason, self._aborted)

    async def close(self) -> None:
        """Undo and end everything that is left, whatever happened."""
        for handle in self._timers.values():
            handle.cancel()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        try:
            await self._roles.close()
        finally:
            await self._reporter.close()

    async def _until(
        self, condition: Callable[[], bool], timeout_s: float | None, give_up: Callable[[], None] | None
    ) -> bool:
        """Handle what happens until the condition holds. After `timeout_s`: `give_up()`, and False."""
        deadline_s = None if timeout_s is None else self._loop.time() + timeout_s
        while not condition():
            left_s = None if deadline_s is None else deadline_s - self._loop.time()
            if left_s is not None and left_s <= 0:
                if give_up is not None:
                    give_up()
                return False
            try:
                item = await asyncio.wait_for(self._queue.get(), left_s)
            except TimeoutError:
                continue
            await self._take(item)
        return True

    async def _listen(self) -> None:
        while True:
            self._queue.put_nowait(_Said(*await self._roles.server.next()))

    async def _tell_waits(self) -> None:
        """Say who is missing whenever nothing happens for a while."""
        while True:
            await asyncio.sleep(_TICK_S)
            quiet_s = time.monotonic() - self._heard_s
            since_s = time.monotonic() - self._began_s
            if self._missing and since_s > _QUIET_S:
                self._progress.waiting("roles to connect", tuple(sorted(self._missing)), since_s, CONNECT_S)
            elif not self._missing and quiet_s > _QUIET_S and not self._stop_condition:
                timing = self._plan.config.timing
                bound_s = (timing.join_wait_ms + timing.deadline_ms + timing.exchange_ms + timing.lease_ms) / 1000.0
                self._progress.waiting("the next step", self._driver.waiting, quiet_s, bound_s)

    # ------------------------------------------------------------ what happens

    async def _take(self, item: _Item) -> None:
        match item:
            case _Said(role, launch, thing):
                await self._said(role, launch, thing)
            case _Exited(role, launch, exit_code):
                await self._exited(role, launch, exit_code)
            case _Rang(timer):
                await self._feed(DriverTimer(timer))
            case _Unexplained(event):
                if not self._stop_condition and not self._aborted:
                    await self._feed(event)
            case LinkMeasured():
                await self._feed(item)
            case EngineError():
                raise item

    async def _said(self, role: str, launch: int, thing: Thing) -> None:
        if self._roles.launch_of(role) != launch:
            return  # the last words of a launch that was replaced
        match thing:
            case RoleConnected():
                await self._connected(role, launch, thing)
            case HoldReached(hold):
                self._progress.role(role, launch, f"held at {hold.partition('.')[2]}")
                await self._feed(RoleStood(role, hold))
            case FactSeen(_, fact):
                self._heard_s = time.monotonic()
                self._progress.fact(role, fact)
                if isinstance(fact, Regrouped):
                    self._place.regrouped(fact.generation)
                if role == COORDINATOR and isinstance(fact, Finished):
                    self._stop(fact.condition, fact.reason)
                await self._feed(RoleObserved(role, fact))
            case LinksSeen():
                self._place.seen(role, thing)
            case Counted(recorded, _):
                self._roles.ledger.counted(role, launch, recorded)
            case RoleEnded():
                self._ended(role, launch, thing)
            case RoleGone(why):
                self._log.info("control link gone", of=role, launch=launch, why=why)

    async def _connected(self, role: str, launch: int, thing: RoleConnected) -> None:
        """Arm the role's holds, then tell it and everybody else where the others are."""
        if thing.again:
            return
        self._progress.role(role, launch, "up")
        await self._place.arrived(role, thing.address)
        if role == VERIFIER:
            self._reporter.verifier_at(self._place.from_here(role, thing.address))
        await self._feed(RoleLaunched(role, launch))
        await self._roles.connected(role)
        if role in self._missing:
            self._missing.discard(role)
        elif not self._missing:
            self._publish()

    def _publish(self) -> None:
        self._roles.server.publish(self._roles.server.addresses)

    def _ended(self, role: str, launch: int, thing: RoleEnded) -> None:
        self._roles.ledger.ended(role, launch, thing.recorded)
        if thing.unstored:
            self._log.warning("records unstored", of=role, launch=launch, unstored=thing.unstored)
        if role in (COORDINATOR, VERIFIER) and thing.condition not in ("finished", "shutdown", "crashed", "orphaned"):
            self._stop(thing.condition, thing.reason)

    async def _exited(self, role: str, launch: int, exit_code: int) -> None:
        killed = self._roles.why_killed(role, launch)
        over = bool(self._stop_condition or self._aborted)
        tail = log_tail(self._folder.log_path(role, launch))
        reason = killed or _ORDERLY.get(exit_code) or tail
        self._exits.append(RoleExit(role, launch, exit_code, bool(killed) or exit_code in _ORDERLY, reason))
        self._progress.role(role, launch, f"exited {exit_code}")
        if self._missing and not killed:
            raise EngineError(f"{role} exited with code {exit_code} before the run began:\n{tail}")
        event = RoleExited(role, launch, exit_code)
        if not killed and exit_code in _ORDERLY and not over:
            self._loop.call_later(STRAY_EXIT_S, self._queue.put_nowait, _Unexplained(event))
        else:
            await self._feed(event)

    def _judged(self, so_far: Judged) -> None:
        self._progress.judged(json.loads(so_far.verdicts_json))

    def _stop(self, condition: str, reason: str) -> None:
        if not self._stop_condition:
            self._stop_condition, self._stop_reason = condition, reason

    # ------------------------------------------------------------ what the driver wants

    async def _feed(self, event: DriverEvent) -> None:
        for action in self._driver.handle(self._now_ms(), event):
            await self._carry_out(action)

    def _now_ms(self) -> float:
        return (time.monotonic() - self._began_s) * 1000.0

    async def _carry_out(self, action: Action) -> None:
        match action:
            case Tell(fact):
                self._reporter.tell(fact)
                self._progress.fact(DRIVER, fact)
            case ArmHold(hold):
                await self._roles.arm(hold)
            case DriverSetTimer(name, after_ms):
                self._set_timer(name, after_ms)
            case CorruptCheckpoint(fault, how, count):
                self._corrupt(fault, how, count)
            case AbortRun(reason):
                self._aborted = self._aborted or reason
                self._progress.note(f"the run is given up: {reason}")
            case ApplyLinkFault():
                await self._place.apply(action)
            case UndoLinkFault(fault):
                await self._place.undo(fault)
            case _:
                self._to_roles(action)

    def _to_roles(self, action: Action) -> None:
        match action:
            case ReleaseHold(role, hold):
                self._roles.release(role, hold)
            case FreezeTimers():
                self._roles.freeze_coordinator()
            case ThawTimers():
                self._roles.thaw_coordinator()
            case Launch(role):
                self._roles.launch(role)
            case Kill(role, _, gently):
                why = f"{'stopped' if gently else 'killed'} by {', '.join(self._driver.active_faults)}"
                self._roles.kill(role, why, excused=True, gently=gently)
            case Suspend(role):
                self._roles.suspend(role)
            case Resume(role):
                self._roles.resume(role)
            case _:
                raise TypeError(f"no way to carry out {action!r}")

    def _set_timer(self, name: str, after_ms: float) -> None:
        if (old := self._timers.pop(name, None)) is not None:
            old.cancel()
        self._timers[name] = self._loop.call_later(after_ms / 1000.0, self._queue.put_nowait, _Rang(name))

    def _corrupt(self, fault: str, how: str, count: int) -> None:
        names = corrupt_checkpoints(RootedDisk(str(self._folder.path)), how, count)
        self._log.info("checkpoints damaged", fault=fault, how=how, names=names)
        self._progress.note(f"damaged ({how}): {', '.join(names)}")

    # ------------------------------------------------------------ the end

    async def _let_leave(self) -> None:
        """Every role but the verifier flushes its records and goes; who does not is asked, and then killed."""
        self._roles.resume_all()
        if self._aborted or self._stop_condition != "finished":
            self._ask_to_leave()
        if not await self._until(self._all_gone, LEAVE_S / 2, self._ask_to_leave):
            await self._until(self._all_gone, LEAVE_S / 2, self._kill_the_rest)
            await self._until(self._all_gone, LEAVE_S, None)
        await self._until(lambda: not self._roles.ledger.unaccounted(), ACCOUNT_S, None)
        self._aborted = self._aborted or self._roles.ledger.complaint

    def _all_gone(self) -> bool:
        return not all_but_verifier(self._roles.running())

    def _ask_to_leave(self) -> None:
        self._roles.ask_to_leave(all_but_verifier(self._roles.running()), "the run is over")

    def _kill_the_rest(self) -> None:
        for role in sorted(all_but_verifier(self._roles.running())):
            self._log.warning("did not leave", of=role)
            self._progress.note(f"{role} did not leave within {LEAVE_S:.0f} s and is killed")
            self._roles.kill(role, "killed at the end: it did not leave", excused=False)

    async def _conclude(self) -> dict[str, Any]:
        """Tell the verifier that nothing more will come; its verdict, or {} and `aborted` says why there is none."""
        expected = self._roles.ledger.expected_json(self._reporter.recorded)
        asking = self._loop.create_task(self._reporter.conclude(expected, VERDICT_S))
        asking.add_done_callback(lambda _: self._queue.put_nowait(Nudge()))
        await self._until(lambda: asking.done() or VERIFIER not in self._roles.running(), VERDICT_S + 1.0, None)
        try:
            if asking.done():
                return dict(json.loads(asking.result()))
            self._aborted = self._aborted or "the verifier exited without a verdict, see its log"
        except DriverError as error:
            self._aborted = self._aborted or str(error)
        finally:
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)
        return {}

    def _no_verdict(self) -> dict[str, Any]:
        """The run had no verifier: nothing was checked, and it says so."""
        self._aborted = self._aborted or NO_VERIFIER
        return {}

    async def _verdict(self) -> dict[str, Any]:
        """Conclude with the verifier and let it go."""
        verdict = await self._conclude()
        self._roles.ask_to_leave({VERIFIER}, "the verdict is in")
        await self._until(lambda: not self._roles.running(), LEAVE_S, None)
        return verdict

    def _not_connected(self) -> None:
        names = ", ".join(sorted(self._missing))
        tails = "\n".join(log_tail(self._folder.log_path(role, 1)) for role in sorted(self._missing))
        raise EngineError(f"not connected within {CONNECT_S:.0f} s: {names}\n{tails}".rstrip())
