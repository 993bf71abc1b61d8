"""Runs one role in this process: the duties of `services.events`, carried out with clocks, threads, disks and gRPC.

    options -> server bound -> driver dialled -> first directory -> Started -> events in, effects out -> Stop
    -> unstored records flushed (bounded) -> driver told -> links drained -> exit code

Everything that touches the role happens in one asyncio loop, one event at a time.
"""

from __future__ import annotations

import asyncio
import signal
import traceback
from collections import deque
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from services.events import (
    COORDINATOR,
    VERIFIER,
    CancelTimer,
    Compute,
    Cut,
    Event,
    Identify,
    Linked,
    Load,
    Note,
    Persist,
    Received,
    Send,
    SetTimer,
    Started,
    Stop,
    TimerFired,
    Unlinked,
)
from services.host import HoldReached, Host, HostEffect, Observed, Role
from services.messages import Stored
from services.shell.clock import RoleClock
from services.shell.control_link import ControlLink
from services.shell.driver_requests import (
    PATIENT,
    apply_request,
    fact_observed,
    hold_answer,
    record_count,
    role_stopped,
)
from services.shell.options import ShellOptions
from services.shell.rooted_disk import RootedDisk, own_files
from services.shell.server import RoleServer
from services.shell.switchboard import Switchboard
from services.shell.threads import DiskThread, JobThread
from services.wire import control_pb2 as pb

REPORT_EVERY_MS = 100.0  # a report costs both ends a message: let the records of several steps travel together
_POLL_S = 0.05
_COUNT_EVERY_S = 0.25
CRASHED = "crashed"
SHUTDOWN = "shutdown"
ORPHANED = "orphaned"


class RoleExit(IntEnum):
    """Exit codes of a role's process."""

    DONE = 0  # finished, or shut down by its driver or by SIGTERM
    STOPPED = 5  # by a named condition
    CRASHED = 70  # an error of our own; the log has the traceback
    ORPHANED = 75  # the driver was gone


@dataclass(frozen=True, slots=True)
class Ending:
    """Why the role is over."""

    condition: str
    reason: str

    @property
    def exit_code(self) -> RoleExit:
        codes = {"finished": RoleExit.DONE, SHUTDOWN: RoleExit.DONE, CRASHED: RoleExit.CRASHED}
        return {**codes, ORPHANED: RoleExit.ORPHANED}.get(self.condition, RoleExit.STOPPED)


@dataclass(frozen=True, slots=True)
class _Release:
    """Let the role go on from this hold; takes its turn among the events."""

    hold: str


class Runner:
    """One launch of one role. `role` is the state machine; `numerics` this process's fingerprint.

    `position` is kept up to date for the log: incarnation, generation and step.
    """

    def __init__(self, options: ShellOptions, role: Role, numerics: str, log: Any, position: dict[str, int]) -> None:
        self.options = options
        self.host = Host(options.role, options.launch, role, options.evidence, REPORT_EVERY_MS)
        self._numerics = numerics
        self._log = log
        self._position = position
        loop = asyncio.get_running_loop()
        self._ending: asyncio.Future[Ending] = loop.create_future()
        self._directory_known = asyncio.Event()
        self._events: deque[Event | _Release] = deque()
        self._handling = False
        self._observe = options.observe or options.role == COORDINATOR
        self.clock = RoleClock(loop, lambda name: self.emit(TimerFired(name)))
        self._jobs = JobThread(self.emit, self.crashed)
        self._disk = DiskThread(RootedDisk(options.folder), self.emit, self.crashed)
        self._board = Switchboard(options, self.emit, self.crashed, log)
        self._server = RoleServer(options, self._board, log)
        self._control: ControlLink | None = None

    async def run(self) -> RoleExit:
        """Until the role is over. Never raises for what a role or a peer does."""
        await self._server.start()
        address = self.options.advertise or self._server.address
        control = self._dial_driver(address)
        watch = asyncio.get_running_loop().create_task(self._watch())
        watch.add_done_callback(self._board.task_ended)
        _end_on_sigterm(self)
        try:
            await self._start_role(address)
            ending = await self._ending
            self._log.info("ending", condition=ending.condition, reason=ending.reason)
            await self._flush(ending)
        finally:
            watch.cancel()
            await self._close(control)
        return ending.exit_code

    def emit(self, event: Event) -> None:
        """Give one event to the role and carry out what it wants; events caused meanwhile follow in order."""
        self._take(event)

    def _take(self, event: Event | _Release) -> None:
        self._events.append(event)
        if self._handling:
            return
        self._handling = True
        try:
            while self._events:
                self._handle(self._events.popleft())
        except Exception as error:  # noqa: BLE001 - reported, and the process ends with its own code
            self.crashed(error)
        finally:
            self._handling = False

    def crashed(self, error: BaseException) -> None:
        """An error of our own: the role is over."""
        self._log.error("crashed", exc_info=error)
        last = traceback.format_exception(error)[-2:]
        self.end(Ending(CRASHED, " ".join("".join(last).split())))

    def end(self, ending: Ending) -> None:
        """The first reason to end counts. From now on only what the flush waits for is handled."""
        self._events = deque(event for event in self._events if _concerns_flushing(event))
        if not self._ending.done():
            self._ending.set_result(ending)

    def shut_down(self, reason: str) -> None:
        """Somebody who may asks the role to end."""
        self.end(Ending(SHUTDOWN, reason))

    def directory(self, addresses: dict[str, str]) -> None:
        """Where roles listen. The first one lets the role start."""
        self._board.directory({role: address for role, address in addresses.items() if role != self.options.role})
        self._directory_known.set()

    def release(self, hold: str) -> None:
        """Let the role go on from a hold."""
        self._take(_Release(hold))

    def tell_driver(self, request: pb.ControlRequest) -> None:
        if self._control is not None:
            self._control.tell(request)

    # ------------------------------------------------------------ beginning

    def _dial_driver(self, address: str) -> asyncio.Task[None] | None:
        if not self.options.driver:
            self.directory(dict(self.options.peers))
            return None
        self._control = ControlLink(self.options, address, self._numerics, self._requested, self._log)
        task = asyncio.get_running_loop().create_task(self._control.run())
        task.add_done_callback(self._board.task_ended)
        return task

    def _requested(self, request: pb.ControlResponse) -> None:
        try:
            apply_request(self, request)
        except Exception as error:  # noqa: BLE001 - an error of our own, as in `emit`
            self.crashed(error)

    async def _start_role(self, address: str) -> None:
        known = asyncio.get_running_loop().create_task(self._directory_known.wait())
        await asyncio.wait((known, self._ending), return_when=asyncio.FIRST_COMPLETED)
        known.cancel()
        if self._ending.done():
            return
        self._log.info("started", address=address, numerics=self._numerics)
        self.emit(Started(self._numerics, address, own_files(self.options.folder, self.options.role)))
        await self._server.open()

    async def _watch(self) -> None:
        """End the role when its driver is gone; tell the driver how much evidence there is."""
        told, waited_s = (0, 0), 0.0
        while self._control is not None:
            await asyncio.sleep(_POLL_S)
            waited_s += _POLL_S
            if why := self._control.orphaned:
                self.end(Ending(ORPHANED, why))
                return
            if waited_s < _COUNT_EVERY_S:
                continue
            counts, waited_s = (self.host.recorder.last, self.host.unstored), 0.0
            if counts != told:
                told = counts
                self.tell_driver(record_count(*counts))
            if self._board.meter is not None and self._control.linked:
                self.tell_driver(self._board.meter.take())

    # ------------------------------------------------------------ the role's life

    def _handle(self, event: Event | _Release) -> None:
        over = self._ending.done()
        if over and not _concerns_flushing(event):
            return
        if isinstance(event, _Release):
            effects = self.host.release(self.clock.now_ms(), event.hold)
        else:
            effects = self.host.handle(self.clock.now_ms(), event)
        for effect in effects:
            if not over or (isinstance(effect, Send) and effect.to == VERIFIER):
                self._carry_out(effect)

    def _carry_out(self, effect: HostEffect) -> None:
        match effect:
            case Send(to, message):
                self._board.send(to, message)
            case Observed(fact):
                for name in ("generation", "step"):
                    self._position[name] = getattr(fact, name, self._position.get(name, 0))
                if self._observe and self._control is not None:
                    seen = fact_observed(fact, self.host.recorder.last)
                    self._control.tell_fact(seen, at_once=not isinstance(fact, PATIENT))
            case Compute():
                self._jobs.compute(effect)
            case Persist():
                self._disk.persist(effect)
            case Load():
                self._disk.load(effect)
            case SetTimer(name, after_ms):
                self.clock.set_timer(name, after_ms)
            case CancelTimer(name):
                self.clock.cancel_timer(name)
            case HoldReached(hold):
                self._log.info("hold reached", hold=hold.name, step=hold.step, phase=hold.phase)
                self.tell_driver(hold_answer(hold.name, pb.HOLD_STATE_REACHED))
            case Note(text):
                self._log.info(text)
            case _:
                self._carry_out_rare(effect)

    def _carry_out_rare(self, effect: HostEffect) -> None:
        match effect:
            case Cut(peer, incarnation):
                self._log.info("cut", peer=peer, incarnation=incarnation)
                self._board.cut(peer, incarnation)
            case Identify(incarnation):
                self._position["incarnation"] = incarnation
                self._board.identify(incarnation)
            case Stop(condition, reason):
                self.end(Ending(condition, reason))
            case _:
                raise TypeError(f"no way to carry out {effect!r}")

    # ------------------------------------------------------------ the end

    async def _flush(self, ending: Ending) -> None:
        """Keep only the reporting link's business going until every record is stored or the time is over."""
        loop = asyncio.get_running_loop()
        self.clock.close()
        deadline_s = loop.time() + self.options.flush_ms / 1000.0
        nobody = not self.options.driver and not self._board.address_of(VERIFIER)
        hurry = nobody or ending.condition == ORPHANED or self.options.role == VERIFIER
        while self.host.unstored and not hurry and loop.time() < deadline_s:
            await asyncio.sleep(0.01)
        if self.host.unstored and not hurry:
            self._log.warning("records unstored", unstored=self.host.unstored)
        self.tell_driver(role_stopped(ending.condition, ending.reason, self.host.recorder.last, self.host.unstored))

    async def _close(self, control: asyncio.Task[None] | None) -> None:
        await self._board.close()
        if self._control is not None and control is not None:
            patience_s = 0.0 if self._control.orphaned else self.options.flush_ms / 1000.0
            await self._control.finish(control, patience_s)
            control.cancel()
            await asyncio.gather(control, return_exceptions=True)
        await self._server.stop()
        self.clock.close()
        self._jobs.close()
        self._disk.close()


def _concerns_flushing(event: Event | _Release) -> bool:
    if isinstance(event, Received):
        return isinstance(event.message, Stored)
    return isinstance(event, Linked | Unlinked) and event.peer == VERIFIER


def _end_on_sigterm(runner: Runner) -> None:
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, runner.shut_down, "SIGTERM")
