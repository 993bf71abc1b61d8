"""Keeps one outbound link up: dial, shake hands, carry, dial again, at whatever address the peer has by then."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import TYPE_CHECKING, Any

from services.codec import decode, encode
from services.frames import Hello
from services.shell.channel import LINK_METHOD, call_metadata, new_channel
from services.shell.link import Link
from services.shell.stream import ClientStream, StreamBroken
from services.wire_error import WireError

if TYPE_CHECKING:
    from services.shell.switchboard import Switchboard

_STEADY_S = 1.0  # a link that lived for so long is dialled again without delay


class Dialler:
    """The link from this role to `peer`. Every attempt has a channel, and so a connection, of its own."""

    def __init__(self, peer: str, board: Switchboard, log: Any) -> None:
        self.peer = peer
        self._board = board
        self._log = log
        self._options = board.options
        self._stopping = False
        self._carrying = False
        self._look = asyncio.Event()
        self._complaint = ""
        self._task = asyncio.get_running_loop().create_task(self._keep())
        self._task.add_done_callback(board.task_ended)

    def look(self) -> None:
        """The address may be known, or another one, by now."""
        self._look.set()

    def stop(self) -> None:
        """Dial no more; a link that is up lives on until somebody closes it."""
        self._stopping = True
        if not self._carrying:
            self._task.cancel()

    async def ended(self) -> None:
        """Wait until the last link is gone."""
        await asyncio.wait((self._task,))

    async def _keep(self) -> None:
        transport = self._options.transport
        delay_ms = transport.redial_first_ms
        while not self._stopping:
            address = self._board.address_of(self.peer)
            began_s = time.monotonic()
            self._look.clear()
            if address:
                await self._attempt(address)
            if time.monotonic() - began_s > _STEADY_S:
                delay_ms = transport.redial_first_ms
            if self._stopping:
                return
            with contextlib.suppress(TimeoutError):  # a new address is tried at once
                await asyncio.wait_for(self._look.wait(), delay_ms / 1000.0)
            delay_ms = min(2.0 * delay_ms, transport.redial_last_ms)

    async def _attempt(self, address: str) -> None:
        channel = new_channel(address, self._options)
        try:
            call: Any = channel.stream_stream(LINK_METHOD)(
                metadata=call_metadata(self._options.run_id, self._options.token)
            )
            stream = ClientStream(call, address)
            link = await self._shake_hands(stream)
            self._complaint = ""
            self._carrying = True
            await self._board.carry(link)
        except (StreamBroken, WireError, TimeoutError) as error:
            self._complain(address, str(error) or "no answer")
        finally:
            self._carrying = False
            await channel.close()

    async def _shake_hands(self, stream: ClientStream) -> Link:
        try:
            async with asyncio.timeout(self._options.transport.hello_ms / 1000.0):
                await stream.admitted()
                await stream.write(encode(self._board.hello_to(self.peer)))
                hello = decode(await stream.read(), self.peer)
        except TimeoutError:
            stream.close("no answer")
            raise
        if not isinstance(hello, Hello) or hello.role != self.peer or hello.target != self._options.role:
            stream.close("somebody else")
            raise WireError(f"somebody else answers at {stream.remote}: {hello}", self.peer)
        return Link(stream, hello, True, self._board, self._options.transport)

    def _complain(self, address: str, why: str) -> None:
        """Log a reason when it changes, not each of many attempts."""
        if (complaint := f"{address}: {why}") != self._complaint:
            self._complaint = complaint
            self._log.info("cannot link", peer=self.peer, address=address, why=why)
