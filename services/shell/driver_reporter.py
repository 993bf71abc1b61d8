"""The driver as a reporter: its own facts to the verifier, the end of the run, and the verdict back.

reporter = DriverReporter(run_id, token)
reporter.verifier_at(address)          # again after every relaunch of the verifier
reporter.tell(FaultArmed(…))
verdict_json = await reporter.conclude(expected_json, timeout_s)
await reporter.close()
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import structlog

from services.events import DRIVER, VERIFIER, Event, Linked, Received, Unlinked
from services.host import Recorder
from services.messages import Conclude, Concluded, Judged, Report, Stored
from services.records import Fact
from services.shell.driver_link import DriverError
from services.shell.options import ShellOptions, TransportOptions
from services.shell.switchboard import Switchboard


class DriverReporter:
    """One link to the verifier, dialled again whenever it breaks. Belongs to one asyncio loop."""

    def __init__(
        self,
        run_id: str,
        token: str,
        transport: TransportOptions | None = None,
        log: Any = None,
        on_judged: Callable[[Judged], None] = lambda _: None,
    ) -> None:
        options = ShellOptions(DRIVER, 1, run_id, token, folder=".", transport=transport or TransportOptions())
        self._recorder = Recorder(DRIVER, 1)
        self._on_judged = on_judged
        self._linked = False
        self._conclude: Conclude | None = None
        self._verdict: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._all_stored = asyncio.Event()
        log = (log or structlog.get_logger()).bind(run=run_id, role=DRIVER)
        self._board = Switchboard(options, self._emit, self._fail, log)

    @property
    def recorded(self) -> int:
        """Number of the driver's last fact, for `Conclude`."""
        return self._recorder.last

    @property
    def unstored(self) -> int:
        """Facts that the verifier has not stored yet."""
        return self._recorder.unstored

    def verifier_at(self, address: str) -> None:
        """Where the verifier listens."""
        self._board.directory({VERIFIER: address})

    def tell(self, fact: Fact) -> None:
        """Record a fact in the driver's own name; kept until the verifier has stored it."""
        self._recorder.add(fact)
        self._all_stored.clear()
        if self._linked:
            self._send(self._recorder.report())

    async def stored(self, timeout_s: float) -> bool:
        """Wait until the verifier has stored everything told so far. False when the time is over first."""
        if self.unstored:
            try:
                async with asyncio.timeout(timeout_s):
                    await self._all_stored.wait()
            except TimeoutError:
                return False
        return True

    async def conclude(self, expected_json: str, timeout_s: float) -> str:
        """Say that nothing more will come, and wait for the verdict document. Raises DriverError when none comes."""
        self._conclude = Conclude(expected_json)
        if self._linked:
            self._board.send(VERIFIER, self._conclude)
        try:
            async with asyncio.timeout(timeout_s):
                return await asyncio.shield(self._verdict)
        except TimeoutError:
            state = "linked but silent" if self._linked else "not linked"
            raise DriverError(f"no verdict within {timeout_s:g} s: the verifier is {state}") from None

    async def close(self) -> None:
        await self._board.close()

    def _emit(self, event: Event) -> None:
        match event:
            case Linked():
                self._linked = True
                self._send(self._recorder.again())
                if self._conclude is not None:
                    self._board.send(VERIFIER, self._conclude)
            case Unlinked():
                self._linked = False
            case Received(_, _, Stored() as stored):
                self._recorder.stored(stored)
                if not self._recorder.unstored:
                    self._all_stored.set()
            case Received(_, _, Judged() as judged):
                self._on_judged(judged)
            case Received(_, _, Concluded(verdict_json)):
                if not self._verdict.done():
                    self._verdict.set_result(verdict_json)

    def _fail(self, error: BaseException) -> None:
        if not self._verdict.done():
            self._verdict.set_exception(error)

    def _send(self, reports: list[Report]) -> None:
        for report in reports:
            self._board.send(VERIFIER, report)
