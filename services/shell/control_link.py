"""A role's link to the driver of its run: what the driver wants, what the driver is told, and whether it lives.

The stream is dialled again when it breaks. `lost_ms` says for how long it has been gone; the runner ends the role when
that is too long, so that no role outlives its run.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from google.protobuf.message import DecodeError

from services.shell.channel import CONTROL_METHOD, call_metadata, new_channel
from services.shell.options import ShellOptions
from services.shell.stream import ClientStream, StreamBroken
from services.wire import control_pb2 as pb

_REDIAL_S = 0.05
_CONNECT_S = 2.0
_FACTS_WAIT_S = 0.02  # how long a fact that nobody waits for waits for others: a message costs both ends more than it

OnRequest = Callable[[pb.ControlResponse], None]


class ControlLink:
    """`on_request` is called in the loop for everything that the driver sends."""

    def __init__(self, options: ShellOptions, address: str, numerics: str, on_request: OnRequest, log: Any) -> None:
        self._options = options
        self._hello = pb.ControlRequest(
            hello=pb.RoleHello(
                role=options.role, launch=options.launch, address=address, pid=os.getpid(), numerics=numerics
            )
        )
        self._on_request = on_request
        self._log = log
        self._outbox: deque[pb.ControlRequest] = deque()
        self._facts: list[pb.FactObserved] = []  # told, and not in the outbox yet
        self._wake = asyncio.Event()
        self._lost_since_s: float | None = time.monotonic()
        self._idle = asyncio.Event()
        self._idle.set()
        self._stream: ClientStream | None = None
        self._finishing = False
        self._was_linked = False
        self._complaint = ""

    @property
    def linked(self) -> bool:
        """Whether the link is up."""
        return self._lost_since_s is None

    @property
    def orphaned(self) -> str:
        """Why the driver must be taken for gone; empty while it need not."""
        if self._lost_since_s is None:
            return ""
        options = self._options
        bound_ms = options.orphan_ms if self._was_linked else options.first_link_ms
        if (time.monotonic() - self._lost_since_s) * 1000.0 <= bound_ms:
            return ""
        return f"{'no' if self._was_linked else 'never a'} link to the driver for {bound_ms:.0f} ms: {self._complaint}"

    def tell(self, request: pb.ControlRequest) -> None:
        """Queue something for the driver, behind every fact told so far; kept over a reconnect."""
        self._queue_facts()
        self._queue(request)

    def tell_fact(self, fact: pb.FactObserved, at_once: bool) -> None:
        """Queue a fact for the driver, now or, together with those that follow, a little later."""
        self._facts.append(fact)
        if at_once:
            self._queue_facts()
        elif len(self._facts) == 1:
            asyncio.get_running_loop().call_later(_FACTS_WAIT_S, self._queue_facts)

    def _queue_facts(self) -> None:
        if self._facts:
            facts, self._facts = self._facts, []
            self._queue(pb.ControlRequest(facts_observed=pb.FactsObserved(facts=facts)))

    def _queue(self, request: pb.ControlRequest) -> None:
        self._idle.clear()
        self._outbox.append(request)
        self._wake.set()

    async def finish(self, link: asyncio.Task[None], timeout_s: float) -> None:
        """Write what is queued, say that nothing more comes, and wait until the driver has read it all.

        A link that is cancelled instead takes what the driver has not read yet with it. One that is being dialled may
        be up in the driver's eyes already, so it is waited for; after it nothing is dialled any more. `link` is the
        task of `run`.
        """
        self._finishing = True
        self._queue_facts()
        idle = asyncio.get_running_loop().create_task(self._idle.wait())
        with contextlib.suppress(TimeoutError, StreamBroken):
            async with asyncio.timeout(timeout_s):
                await asyncio.wait((idle, link), return_when=asyncio.FIRST_COMPLETED)
                if self._stream is not None:
                    await self._stream.finish("this role is done")
                    await asyncio.wait((link,))
        idle.cancel()

    async def run(self) -> None:
        """Keep the link up until cancelled."""
        while not self._finishing:
            channel = new_channel(self._options.driver, self._options)
            try:
                call: Any = channel.stream_stream(CONTROL_METHOD)(
                    metadata=call_metadata(self._options.run_id, self._options.token)
                )
                await self._carry(ClientStream(call, self._options.driver))
            except (StreamBroken, TimeoutError, DecodeError) as error:
                self._complain(str(error) or "no answer")
            finally:
                if self._lost_since_s is None:
                    self._lost_since_s = time.monotonic()
                self._stream = None
                await channel.close()
            if not self._finishing:
                await asyncio.sleep(_REDIAL_S)

    def _complain(self, why: str) -> None:
        """Log a reason when it changes, not each of many attempts."""
        if why != self._complaint and not self._finishing:
            self._complaint = why
            self._log.info("no link to the driver", why=why)

    async def _carry(self, stream: ClientStream) -> None:
        async with asyncio.timeout(_CONNECT_S):
            await stream.admitted()
            await stream.write(self._hello.SerializeToString())
            first = pb.ControlResponse.FromString(await stream.read())
        if first.WhichOneof("body") != "accepted":
            raise StreamBroken(f"the driver answers with {first.WhichOneof('body')}")
        self._lost_since_s, self._stream, self._was_linked, self._complaint = None, stream, True, ""
        writer = asyncio.get_running_loop().create_task(self._write_all(stream))
        try:
            while True:
                self._on_request(pb.ControlResponse.FromString(await stream.read()))
        finally:
            writer.cancel()
            await asyncio.gather(writer, return_exceptions=True)

    async def _write_all(self, stream: ClientStream) -> None:
        while True:
            while self._outbox:
                await stream.write(self._outbox[0].SerializeToString())
                self._outbox.popleft()
            self._idle.set()
            self._wake.clear()
            await self._wake.wait()
