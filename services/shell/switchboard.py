"""All links of one role: who is connected, where others listen, whom we dial, and who is let in.

Who dials: everybody dials the verifier; workers dial the coordinator, the server and each other; the server dials the
coordinator. Between two workers each dials for what it sends itself, so a pair has two links and one direction can be
cut alone. Where only one side dials, the link carries both directions.

`Linked` and `Unlinked` are told of links with coordinator, server and verifier. On those, what was in the outbox when
the link broke, or is sent while it is down, is lost, since their ends ask again when they are linked. Links between
workers and to the server are dialled for the first message, which waits for them, bounded in number, bytes and time.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from services.any_config import SHARDS, member_name
from services.events import COORDINATOR, DRIVER, SERVER, VERIFIER, Event, Heard, Linked, Received, Unlinked
from services.frames import Hello, Identify
from services.messages import Adopt, Boundary, Close, Commit, Member, Message, OpenShards, Regroup
from services.shell.dialler import Dialler
from services.shell.link import Link, Outgoing, rough_bytes
from services.shell.link_meter import LinkMeter, monotonic_us
from services.shell.options import ShellOptions
from services.shell.stream import ServerStream

_POLL_S = 0.005
_MARGIN_S = 0.5
WAITING_MS_MAX = 5000.0  # longer than Linux, and so a proxy, dials an address that just vanished: 3 s

_SINGLE_ROLES = (COORDINATOR, SERVER, VERIFIER)


def dials(source: str, target: str) -> bool:
    """Whether `source` opens the link with `target`."""
    if target == VERIFIER:
        return source != VERIFIER
    if source in (VERIFIER, DRIVER, COORDINATOR) or target == DRIVER:
        return False
    if target == COORDINATOR:
        return True
    return source != SERVER


@dataclass(slots=True)
class _Waiting:
    """Messages for a peer whose link is being dialled, with the time at which each was sent."""

    messages: deque[tuple[float, Message]] = field(default_factory=deque)
    size_bytes: int = 0

    def put(self, now_s: float, message: Message, bytes_max: int) -> int:
        """Add a message; returns how many older ones had to go."""
        self.messages.append((now_s, message))
        self.size_bytes += rough_bytes(message)
        gone = 0
        oldest_s = now_s - WAITING_MS_MAX / 1000.0
        while self.messages and (self.messages[0][0] < oldest_s or self.size_bytes > bytes_max):
            self.size_bytes -= rough_bytes(self.messages.popleft()[1])
            gone += 1
        return gone


class Switchboard:
    """The links of the role `options.role`. `emit` takes the events they cause, `failed` an error of our own."""

    def __init__(
        self, options: ShellOptions, emit: Callable[[Event], None], failed: Callable[[BaseException], None], log: Any
    ) -> None:
        self.options = options
        self.incarnation = options.launch if options.role in (*_SINGLE_ROLES, DRIVER) else 0
        self._emit = emit
        self._failed = failed
        self._log = log
        self._links: dict[str, Link] = {}  # by peer: where what we send goes
        self._others: set[Link] = set()  # inbound ones beside our own dialled link
        self._diallers: dict[str, Dialler] = {}
        self._via = dict(options.via)
        self._directory: dict[str, str] = {}
        self._hearsay: dict[str, str] = {}  # addresses that messages named
        self._waiting: dict[str, _Waiting] = {}
        self._newest: Outgoing | None = None  # what was sent last
        self._launches: dict[str, int] = {}  # newest launch seen of each peer
        self._closing = False
        self.meter = LinkMeter() if options.transport.measured else None

    # ------------------------------------------------------------ what the role wants

    def send(self, to: str, message: Message) -> None:
        link = self._link_to(to)
        if link is not None:
            link.send(self._outgoing(message))
        elif to in (COORDINATOR, VERIFIER) or not dials(self.options.role, to):
            self._log.debug("message lost: no link", peer=to, kind=type(message).__name__)
        else:
            waiting = self._waiting.setdefault(to, _Waiting())
            gone = waiting.put(time.monotonic(), message, self.options.transport.outbox_bytes_max)
            if gone:
                self._log.warning("messages lost: no link in time, or too many bytes wait", peer=to, count=gone)
            self._dial(to)

    def cut(self, peer: str, incarnation: int) -> None:
        """Close every link with `peer` that claims this incarnation."""
        for link in self.links():
            if link.peer == peer and link.incarnation == incarnation:
                link.finish(f"{peer}.{incarnation} is no longer a member")
        self._waiting.pop(peer, None)

    def identify(self, incarnation: int) -> None:
        """From now on our links carry this incarnation."""
        self.incarnation = incarnation
        for link in self.links():
            link.send(Identify(incarnation))

    def directory(self, addresses: dict[str, str]) -> None:
        """Where roles listen, as the driver says."""
        self._directory = dict(addresses)
        for peer in self._directory:
            if peer in _SINGLE_ROLES or peer in self._diallers:
                self._dial(peer)

    def links(self) -> list[Link]:
        return [*self._links.values(), *self._others]

    async def close(self) -> None:
        """Let nobody in any more; end every link after what waits in its outbox is sent. Bounded by `drain_ms`."""
        self._closing = True
        for dialler in self._diallers.values():
            dialler.stop()
        for link in self.links():
            link.finish("this role is done")
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self.options.transport.drain_ms / 1000.0 + _MARGIN_S):
                await asyncio.gather(*(dialler.ended() for dialler in self._diallers.values()))
                while self.links():
                    await asyncio.sleep(_POLL_S)

    # ------------------------------------------------------------ what comes in

    def hello_to(self, peer: str) -> Hello:
        """How we introduce ourselves."""
        return Hello(self.options.role, self.options.launch, self.incarnation, peer)

    def address_of(self, peer: str) -> str:
        """Where to dial the peer; empty while nobody has said that it listens anywhere."""
        listens_at = self._directory.get(peer) or self._hearsay.get(peer, "")
        return self._via.get(peer, listens_at) if listens_at else ""

    def why_not(self, hello: Hello) -> str:
        """Why a caller that introduces itself like this is refused; empty when it is welcome."""
        if self._closing:
            return f"{self.options.role} is done"
        if hello.target != self.options.role:
            return f"this is {self.options.role}, not {hello.target}"
        if not hello.role or hello.role == self.options.role:
            return f"{hello.role or 'nobody'} cannot call {self.options.role}"
        if not dials(hello.role, self.options.role):
            return f"{hello.role} never dials {self.options.role}"
        newest = self._launches.get(hello.role, 0)
        if hello.launch < newest:
            return f"launch {hello.launch} of {hello.role} was replaced by launch {newest}"
        return ""

    async def accept(self, stream: ServerStream, hello: Hello) -> str:
        """Carry an inbound link until it breaks; returns why. The caller has shaken hands."""
        return await self.carry(Link(stream, hello, False, self, self.options.transport))

    async def carry(self, link: Link) -> str:
        """Register the link, run it, and tell of its end."""
        self._launches[link.peer] = max(link.launch, self._launches.get(link.peer, 0))
        if self.meter is not None and not (link.dialled and dials(link.peer, self.options.role)):
            link.meter = self.meter  # what the peer sends to us comes over its own link, if it dials, too
            self.meter.begun(link.peer)
        both_dial = dials(self.options.role, link.peer) and not link.dialled
        if both_dial:
            self._others.add(link)
        else:
            self._replace(link)
        try:
            return await link.run()
        finally:
            self._others.discard(link)
            if self._links.get(link.peer) is link:
                del self._links[link.peer]
                self._log.info("unlinked", peer=link.peer, incarnation=link.incarnation, why=link.broken_because)
                self._tell(Unlinked(link.peer, link.incarnation))

    def task_ended(self, task: asyncio.Task[Any]) -> None:
        """Done callback of every task that works for the links: an error in one is not lost."""
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._failed(error)

    def received(self, link: Link, message: Message) -> None:
        if isinstance(message, Adopt | Commit | Regroup | Close | OpenShards):
            self._learn(message)
        transit_us = monotonic_us() - message.sent_us if isinstance(message, Boundary) else 0
        self._emit(Received(link.peer, link.incarnation, message, transit_us / 1000.0))

    def heard(self, link: Link) -> None:
        self._emit(Heard(link.peer, link.incarnation))

    def identified(self, link: Link) -> None:
        if self._links.get(link.peer) is link and link.incarnation:
            self._tell(Linked(link.peer, link.incarnation))

    # ------------------------------------------------------------ inside

    def _tell(self, event: Linked | Unlinked) -> None:
        if self.options.role in (*_SINGLE_ROLES, DRIVER) or event.peer in _SINGLE_ROLES:
            self._emit(event)

    def _outgoing(self, message: Message) -> Outgoing:
        """What is sent to several peers in a row is encoded once for all of them."""
        if self._newest is None or self._newest.message is not message:
            self._newest = Outgoing(message)
        return self._newest

    def _link_to(self, peer: str) -> Link | None:
        """Our own link to the peer; its link to us when we cannot know where to dial."""
        link = self._links.get(peer)
        if link is None and not self.address_of(peer):
            link = next((other for other in self._others if other.peer == peer), None)
        return link

    def _replace(self, link: Link) -> None:
        old = self._links.get(link.peer)
        if old is not None:
            del self._links[link.peer]
            old.close(f"replaced by a newer link of {link.peer}")
            self._tell(Unlinked(old.peer, old.incarnation))
        self._links[link.peer] = link
        self._log.info("linked", peer=link.peer, incarnation=link.incarnation, launch=link.launch)
        worth_s = time.monotonic() - WAITING_MS_MAX / 1000.0
        for sent_s, message in self._waiting.pop(link.peer, _Waiting()).messages:
            if sent_s >= worth_s:
                link.send(message)
        self._tell(Linked(link.peer, link.incarnation))

    def _dial(self, peer: str) -> None:
        if not dials(self.options.role, peer):
            return
        if peer not in self._diallers:
            self._diallers[peer] = Dialler(peer, self, self._log)
        self._diallers[peer].look()

    def _learn(self, message: Adopt | Commit | Regroup | Close | OpenShards) -> None:
        """Keep the addresses that the coordinator's messages name."""
        named: list[Member] | tuple[Member, ...] = ()
        if isinstance(message, OpenShards):
            named = message.members
        elif isinstance(message, Regroup | Close):
            named = message.members
            if message.server_address:
                self._hear(SERVER, message.server_address)
        elif message.source_address:
            self._hear(message.source, message.source_address)
        for member in named:
            if member.address:
                strategy = SHARDS if self.options.role.startswith("shard-") else ""
                self._hear(member_name(strategy, member.worker), member.address)

    def _hear(self, peer: str, address: str) -> None:
        if peer != self.options.role and self._hearsay.get(peer) != address:
            self._hearsay[peer] = address
            if peer == SERVER or peer in self._diallers:
                self._dial(peer)
