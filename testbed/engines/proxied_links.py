"""The links of a run's roles, each through a proxy of its own in one Toxiproxy, and the faults on them.

A proxy belongs to a directed pair: who dials, and whom. Two workers dial each other for what each sends itself, so a
direction between them is a proxy; where one side alone dials (to the coordinator, to the server), the directions of a
link are the two directions of one proxy.
"""

from __future__ import annotations

import asyncio
import time
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from chaos.actions import ApplyLinkFault
from services.events import VERIFIER
from services.shell.driver_link import LinksSeen
from services.shell.switchboard import dials
from testbed.containers.jitter import DrawnJitter
from testbed.containers.toxics import (
    Bandwidth,
    Direction,
    Latency,
    LimitData,
    Slicer,
    SlowClose,
    Timeout,
    Toxic,
)
from testbed.containers.toxiproxy import Toxiproxy
from testbed.engines.base import EngineError
from testbed.engines.link_watch import LinkWatch
from testbed.engines.place import Ears
from training.errors import GradstormError

_RENEW_S = 0.1  # a drawn delay holds for so long


@dataclass(frozen=True, slots=True)
class Waiting:
    """For Toxiproxy to answer: for so long, with `pause(seconds)` in between."""

    deadline_s: float
    pause: Callable[[float], None]


class ProxiedLinks:
    """`api` is where Toxiproxy's interface is for us. Changes are made on a thread."""

    def __init__(self, api: str, seed: int, loop: asyncio.AbstractEventLoop, ears: Ears) -> None:
        self.toxiproxy = Toxiproxy(api)
        self._seed = seed
        self._loop = loop
        self._ears = ears
        self._watch = LinkWatch()
        self._lane = ThreadPoolExecutor(1, thread_name_prefix="toxiproxy")
        self._undos: dict[str, list[Callable[[], object]]] = {}
        self._renewing: dict[str, list[DrawnJitter]] = {}
        self._renewer: asyncio.Task[None] | None = None
        self._via: dict[str, dict[str, str]] = {}

    def open(
        self, roles: tuple[str, ...], listen_at: Callable[[int], str], leads_to: Callable[[str], str], wait: Waiting
    ) -> None:
        """Make a proxy for every link between these roles. Blocks.

        `listen_at` says where proxy number n listens for the roles, `leads_to` where a role is for Toxiproxy.
        """
        self.toxiproxy.wait_ready(wait.deadline_s, wait.pause)
        for number, (source, target) in enumerate(proxied_links(roles)):
            made = self.toxiproxy.create(proxy_name(source, target), leads_to(target), listen_at(number))
            self._via.setdefault(source, {})[target] = made.listen

    async def lead_to(self, role: str, address: str) -> None:
        """The role listens there from now on: lead every proxy of it to that address. Raises EngineError."""
        mine = [proxy_name(source, role) for source, known in self._via.items() if role in known]
        await self._on_thread(lambda: [self.toxiproxy.retarget(name, address) for name in mine])

    def via(self, role: str) -> dict[str, str]:
        """Whom the role dials -> where."""
        return dict(self._via.get(role, {}))

    def seen(self, role: str, report: LinksSeen) -> None:
        """What a role says that it received."""
        for measured in self._watch.seen(_now_ms(), role, report):
            self._ears.measured(measured)

    async def apply(self, fault: ApplyLinkFault) -> None:
        """Put a fault on a link; it acts on return. Raises EngineError."""
        self._renewer = self._renewer or self._loop.create_task(self._renew())
        await self._on_thread(lambda: self._apply(fault))
        self._watch.applied(_now_ms(), fault)

    def watch(self, fault: ApplyLinkFault) -> None:
        """Somebody else puts this fault on a link: see that it acts."""
        self._watch.applied(_now_ms(), fault)

    async def undo(self, fault: str) -> None:
        """Take a fault off every link that it is on. Raises EngineError."""
        await self._on_thread(lambda: self._undo(fault))
        self._watch.undone(_now_ms(), fault)

    async def close(self) -> None:
        """Change nothing any more. What is on the links goes with Toxiproxy, which goes with the run."""
        if self._renewer is not None:
            self._renewer.cancel()
            await asyncio.gather(self._renewer, return_exceptions=True)
        await self._loop.run_in_executor(None, lambda: self._lane.shutdown(wait=True, cancel_futures=True))

    # ------------------------------------------------------------ on the thread

    async def _on_thread(self, change: Callable[[], object]) -> None:
        try:
            await self._loop.run_in_executor(self._lane, change)
        except EngineError:
            raise
        except GradstormError as error:
            raise EngineError(str(error)) from error

    def _apply(self, fault: ApplyLinkFault) -> None:
        proxy, direction = proxy_of(fault.source, fault.target)
        undos = self._undos.setdefault(fault.fault, [])
        name = f"{fault.fault} {direction}"
        if fault.kind == "reset":
            self.toxiproxy.cut(proxy)
        elif fault.kind == "down":
            undos.append(lambda: self.toxiproxy.set_enabled(proxy, True))
            self.toxiproxy.set_enabled(proxy, False)
        elif fault.kind == "jitter":
            undos.append(self._jitter(fault, proxy, direction, name).stop)
        else:
            undos.append(lambda: self.toxiproxy.remove(proxy, name))
            self.toxiproxy.add(proxy, name, direction, _toxic(fault))

    def _undo(self, fault: str) -> None:
        self._renewing.pop(fault, None)
        for undo in self._undos.pop(fault, []):
            undo()

    def _jitter(self, fault: ApplyLinkFault, proxy: str, direction: Direction, name: str) -> DrawnJitter:
        generator = np.random.default_rng([self._seed, zlib.crc32(f"{name} {proxy}".encode())])
        least_ms, range_ms = float(fault.settings["delay_ms"]), float(fault.settings["jitter_ms"])
        jitter = DrawnJitter(self.toxiproxy, proxy, direction, name, least_ms, range_ms, generator)
        jitter.start()
        self._renewing.setdefault(fault.fault, []).append(jitter)
        return jitter

    async def _renew(self) -> None:
        """Draw the delays of jitter anew, again and again."""
        while True:
            await asyncio.sleep(_RENEW_S)
            if self._renewing:
                try:
                    await self._on_thread(self._renew_all)
                except EngineError as error:
                    self._ears.failed(error)
                    return

    def _renew_all(self) -> None:
        for jitters in list(self._renewing.values()):
            for jitter in jitters:
                jitter.renew()


def _toxic(fault: ApplyLinkFault) -> Toxic:
    given = fault.settings
    match fault.kind:
        case "latency":
            return Latency(float(given["delay_ms"]))
        case "bandwidth":
            return Bandwidth(float(given["kib_per_s"]))
        case "partition":
            return Timeout()
        case "timeout":
            return Timeout(float(given["after_ms"]))
        case "limit":
            return LimitData(int(given["limit_bytes"]))
        case "slicer":
            return Slicer(int(given["slice_bytes"]), int(given["pause_us"]))
        case "slow_close":
            return SlowClose(float(given["delay_ms"]))
    raise EngineError(f"Toxiproxy cannot do {fault.kind}")


def _now_ms() -> float:
    return time.monotonic() * 1000.0


def proxied_links(roles: tuple[str, ...]) -> list[tuple[str, str]]:
    """(who dials, whom) for every link that goes through Toxiproxy, ascending."""
    others = sorted(set(roles) - {VERIFIER})
    return [(source, target) for source in others for target in others if source != target and dials(source, target)]


def proxy_of(source: str, target: str) -> tuple[str, Direction]:
    """The proxy and the direction of it that carry what `source` sends to `target`."""
    if dials(source, target):
        return proxy_name(source, target), "upstream"
    return proxy_name(target, source), "downstream"


def proxy_name(source: str, target: str) -> str:
    """ "worker-1>worker-2": the one who dials first."""
    return f"{source}>{target}"
