"""The simulator's world: a heap of (time, sequence, call), roles as objects, one disk, one network.

The same `Host` and roles as in the processes. Virtual time moves only from call to call; computations and disk
operations take fixed virtual times, links take drawn ones. Nothing here reads a clock or draws outside of the one
seeded generator, so a seed gives one history, byte for byte.
"""

from __future__ import annotations

import errno
import heapq
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from services.any_config import AnyRunConfig
from services.events import (
    COORDINATOR,
    DRIVER,
    SERVER,
    VERIFIER,
    CancelTimer,
    Compute,
    Computed,
    Cut,
    Event,
    Heard,
    Identify,
    Linked,
    Load,
    Loaded,
    Note,
    Persist,
    Persisted,
    PersistFailed,
    Received,
    Send,
    SetTimer,
    Started,
    Stop,
    TimerFired,
    Unlinked,
)
from services.host import Hold, HoldReached, Host, HostEffect, Observed, Role
from services.messages import Message
from services.records import Fact
from testbed.engines.sim_network import LATENCY_MS, Network
from training.disk import LossyDisk

COMPUTE_MS = 1.0
PERSIST_MS = 0.3
SIGKILLED = -9
CONNECT_MS = 0.5
DETECT_MS = 0.3
HEARTBEATS_PER_LEASE = 6

Watcher = Callable[[str, object], None]


@dataclass(slots=True)
class Node:
    """One launch of one role."""

    name: str
    launch: int
    host: Host
    incarnation: int = 0
    alive: bool = True
    suspended: bool = False
    stopping: bool = False
    backlog: list[Event] = field(default_factory=list)
    timers: dict[str, tuple[int, float]] = field(default_factory=dict)  # serial, due in role time
    frozen_since_ms: float = -1.0
    frozen_total_ms: float = 0.0
    persisting: list[tuple[Persist, int]] = field(default_factory=list)

    def role_ms(self, now_ms: float) -> float:
        frozen = now_ms - self.frozen_since_ms if self.frozen_since_ms >= 0 else 0.0
        return now_ms - self.frozen_total_ms - frozen


@dataclass(frozen=True, slots=True)
class Exited:
    launch: int
    exit_code: int
    last: int  # number of the last record that this launch made
    condition: str = ""
    reason: str = ""


class World:
    """See the module's docstring. `watch(role, thing)` gets each HoldReached, Fact and Exited as it happens."""

    def __init__(
        self,
        seed: int,
        config: AnyRunConfig,
        numerics: str,
        disk: LossyDisk,
        watch: Watcher,
        to_driver: Callable[[Message], None] = lambda message: None,
    ) -> None:
        self.now_ms = 0.0
        self.config = config
        self.numerics = numerics
        self.disk = disk
        self.evidence = True  # False: there is no verifier; facts are counted and let go
        self.generator = np.random.default_rng([seed, 0x51])
        self.network = Network(self.generator, self.after, self._broken, self._repaired)
        self.nodes: dict[str, Node] = {}
        self.notes: list[tuple[float, str, str]] = []
        self._watch = watch
        self._to_driver = to_driver
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._sequence = 0
        self._serial = 0
        self._launches: dict[str, int] = {}
        self._early_holds: list[Hold] = []
        self._table = self._acts()

    # ------------------------------------------------------------ time

    def after(self, delay_ms: float, call: Callable[[], None]) -> None:
        self._sequence += 1
        heapq.heappush(self._heap, (self.now_ms + max(0.0, delay_ms), self._sequence, call))

    def step(self) -> bool:
        """Run the next call. False when there is none."""
        if not self._heap:
            return False
        self.now_ms, _, call = heapq.heappop(self._heap)
        call()
        return True

    # ------------------------------------------------------------ roles

    def launch(
        self, name: str, make: Callable[[int], Role], before: Callable[[str, int], None] = lambda name, launch: None
    ) -> int:
        """Start a role (again). Its files are what the disk holds now. `before` is called before its first event."""
        launch = self._launches.get(name, 0) + 1
        self._launches[name] = launch
        node = Node(name, launch, Host(name, launch, make(launch), self.evidence))
        if name in (SERVER, COORDINATOR, VERIFIER):
            node.incarnation = launch
        self.nodes[name] = node
        for hold in [early for early in self._early_holds if early.role == name]:
            node.host.arm(hold)
        self._early_holds = [early for early in self._early_holds if early.role != name]
        before(name, launch)
        self._deliver(node, Started(self.numerics, name, self._files()))
        for other in sorted(self.nodes):
            if other != name:
                self.network.cut(name, other)
                self.after(CONNECT_MS, lambda other=other: self._repaired(name, other))  # type: ignore[misc]
        if name not in (COORDINATOR, VERIFIER):
            self._heartbeat(node)
        return launch

    def kill(self, name: str, power_cut: bool = False, exit_code: int = SIGKILLED) -> None:
        """SIGKILL: what the process had not handed to the disk is lost; with a power cut, what was not synced, too."""
        node = self.nodes.get(name)
        if node is None or not node.alive:
            return
        self._tear(node)
        if power_cut:
            self.disk.crash(lambda count: int(self.generator.integers(count)))
        self._gone(node, Exited(node.launch, exit_code, node.host.recorder.last))

    def suspend(self, name: str) -> None:
        if (node := self.nodes.get(name)) is not None:
            node.suspended = True

    def resume(self, name: str) -> None:
        node = self.nodes.get(name)
        if node is None or not node.suspended:
            return
        node.suspended = False
        backlog, node.backlog = node.backlog, []
        for event in backlog:
            self._deliver(node, event)
        for other in sorted(self.nodes):
            if other != name and not self.network.is_up(name, other):
                self.after(CONNECT_MS, lambda other=other: self._repaired(name, other))  # type: ignore[misc]

    def arm(self, hold: Hold) -> None:
        """Before the role's next event; for a role that is not launched yet, before its first."""
        if (node := self.nodes.get(hold.role)) is not None:
            node.host.arm(hold)
        else:
            self._early_holds.append(hold)

    def release(self, name: str, hold: str) -> None:
        node = self.nodes.get(name)
        if node is not None and node.alive:
            self._carry_out(node, node.host.release(node.role_ms(self.now_ms), hold))

    def freeze(self, name: str) -> None:
        node = self.nodes.get(name)
        if node is not None and node.frozen_since_ms < 0:
            node.frozen_since_ms = self.now_ms

    def thaw(self, name: str) -> None:
        node = self.nodes.get(name)
        if node is None or node.frozen_since_ms < 0:
            return
        node.frozen_total_ms += self.now_ms - node.frozen_since_ms
        node.frozen_since_ms = -1.0
        for timer, (serial, due_ms) in sorted(node.timers.items()):
            self._arm_timer(node, timer, serial, due_ms)

    def tell(self, source: str, target: str, message: Message) -> None:
        """A message from somebody who is no node (the driver), over a link that never fails."""
        node = self.nodes.get(target)
        if node is not None:
            self.after(CONNECT_MS, lambda: self._deliver(node, Received(source, 1, message)))

    def unstored(self, name: str) -> int:
        node = self.nodes.get(name)
        return node.host.unstored if node is not None and node.alive else 0

    # ------------------------------------------------------------ events in

    def _deliver(self, node: Node, event: Event) -> None:
        if not node.alive:
            return
        if node.suspended:
            node.backlog.append(event)
            return
        self._carry_out(node, node.host.handle(node.role_ms(self.now_ms), event))
        if node.stopping and node.host.unstored == 0:
            self._gone(node, Exited(node.launch, 0, node.host.recorder.last))

    def _heartbeat(self, node: Node) -> None:
        """The transport's sign of life to the coordinator; a suspended process gives none."""
        if not node.alive:
            return
        coordinator = self.nodes.get(COORDINATOR)
        if not node.suspended and coordinator is not None and node.incarnation:
            heard = Heard(node.name, node.incarnation)
            self.network.send(
                self.now_ms, node.name, COORDINATOR, None, lambda _: self._deliver(coordinator, heard)
            )  # fmt: skip
        interval_ms = self.config.timing.lease_ms / HEARTBEATS_PER_LEASE
        self.after(interval_ms, lambda: self._heartbeat(node))

    def _broken(self, one: str, other: str) -> None:
        """Both ends of a pair learn that their link broke."""
        for name, peer in ((one, other), (other, one)):
            node, its = self.nodes.get(name), self.nodes.get(peer)
            if node is not None and node.alive and its is not None and _dials(one, other):
                incarnation = its.incarnation
                self.after(DETECT_MS, lambda n=node, p=peer, i=incarnation: self._deliver(n, Unlinked(p, i)))  # type: ignore[misc]

    def _repaired(self, one: str, other: str) -> None:
        """Dialling succeeded, if both ends live and nothing blocks them."""
        ends = [self.nodes.get(one), self.nodes.get(other)]
        if any(node is None or not node.alive or node.suspended for node in ends):
            return
        if self.network.is_up(one, other) or self.network.blocked(one, other):
            return
        self.network.restore(one, other)
        first, second = ends
        assert first is not None
        assert second is not None
        if _dials(one, other):
            self._deliver(first, Linked(other, second.incarnation))
            self._deliver(second, Linked(one, first.incarnation))

    # ------------------------------------------------------------ effects out

    def _carry_out(self, node: Node, effects: list[HostEffect]) -> None:
        table = self._table
        for effect in effects:
            table[type(effect)](node, effect)

    def _acts(self) -> dict[type, Callable[[Node, Any], None]]:
        """What carries out each kind of effect. A table: this is done a hundred times in a step."""
        return {
            Send: lambda node, effect: self._send(node, effect.to, effect.message),
            Observed: lambda node, effect: self._watch(node.name, effect.fact),
            HoldReached: lambda node, effect: self._watch(node.name, effect),
            Compute: lambda node, effect: self._compute(node, effect.token, effect.job),
            Load: lambda node, effect: self._load(node, effect.token, effect.job),
            Persist: self._begin_persist,
            SetTimer: self._set_timer,
            CancelTimer: lambda node, effect: node.timers.pop(effect.name, None),
            Identify: lambda node, effect: self._identify(node, effect.incarnation),
            Cut: lambda node, effect: self._cut(node, effect.peer, effect.incarnation),
            Note: lambda node, effect: self.notes.append((self.now_ms, node.name, effect.text)),
            Stop: lambda node, effect: self._stop(node, effect.condition, effect.reason),
        }

    def _set_timer(self, node: Node, effect: SetTimer) -> None:
        self._serial += 1
        due_ms = node.role_ms(self.now_ms) + effect.after_ms
        node.timers[effect.name] = (self._serial, due_ms)
        self._arm_timer(node, effect.name, self._serial, due_ms)

    def _begin_persist(self, node: Node, effect: Persist) -> None:
        node.persisting.append((effect, 0))
        self.after(PERSIST_MS, lambda: self._persist(node, effect))

    def _send(self, node: Node, to: str, message: Message) -> None:
        if to == DRIVER:
            self.after(LATENCY_MS, lambda: self._to_driver(message))
            return
        target = self.nodes.get(to)
        if target is None or not target.alive:
            return
        source, incarnation, sent_ms = node.name, node.incarnation, self.now_ms
        self.network.send(
            sent_ms, source, to, message,
            lambda what: self._deliver(target, Received(source, incarnation, what, self.now_ms - sent_ms)),
        )  # fmt: skip

    def _compute(self, node: Node, token: str, job: Callable[[], object]) -> None:
        try:
            event: Event = Computed(token, job())
        except Exception as error:  # noqa: BLE001 - whatever a job raises is the role's to judge, as in the shell
            event = Computed(token, None, f"{type(error).__name__}: {error}")
        self.after(COMPUTE_MS, lambda: self._deliver(node, event))

    def _load(self, node: Node, token: str, job: Callable[[LossyDisk], object]) -> None:
        try:
            event: Event = Loaded(token, job(self.disk))
        except Exception as error:  # noqa: BLE001
            event = Loaded(token, None, f"{type(error).__name__}: {error}")
        self.after(PERSIST_MS, lambda: self._deliver(node, event))

    def _persist(self, node: Node, effect: Persist) -> None:
        if not node.alive:
            return
        node.persisting = [item for item in node.persisting if item[0] is not effect]
        event: Event = Persisted(effect.token)
        try:
            for operation in effect.operations:
                self.disk.apply(operation)
        except OSError as error:
            name = errno.errorcode.get(error.errno or 0, "EIO")
            event = PersistFailed(effect.token, name, str(error.filename))
        self._deliver(node, event)

    def _tear(self, node: Node) -> None:
        """A kill in the middle of a persist leaves some first part of its operations."""
        for effect, _ in node.persisting:
            done = int(self.generator.integers(len(effect.operations) + 1))
            for operation in effect.operations[:done]:
                try:
                    self.disk.apply(operation)
                except OSError:
                    break
        node.persisting = []

    def _arm_timer(self, node: Node, name: str, serial: int, due_ms: float) -> None:
        def fire() -> None:
            if node.timers.get(name, (0, 0.0))[0] != serial or not node.alive or node.frozen_since_ms >= 0:
                return
            if node.role_ms(self.now_ms) + 1e-9 < due_ms:
                self._arm_timer(node, name, serial, due_ms)
                return
            del node.timers[name]
            self._deliver(node, TimerFired(name))

        self.after(due_ms - node.role_ms(self.now_ms), fire)

    def _identify(self, node: Node, incarnation: int) -> None:
        """The link's identity changes in place; what is sent from here on carries it."""
        node.incarnation = incarnation
        coordinator = self.nodes.get(COORDINATOR)
        if incarnation and coordinator is not None:
            linked = Linked(node.name, incarnation)
            self.network.send(
                self.now_ms, node.name, COORDINATOR, None, lambda _: self._deliver(coordinator, linked)
            )  # fmt: skip

    def _cut(self, node: Node, peer: str, incarnation: int) -> None:
        other = self.nodes.get(peer)
        if other is None or other.incarnation != incarnation or not self.network.is_up(node.name, peer):
            return
        self.network.cut(node.name, peer)
        if other.alive:
            self.after(DETECT_MS, lambda: self._deliver(other, Unlinked(node.name, node.incarnation)))
            self._redial(other, node.name)

    def _redial(self, node: Node, peer: str) -> None:
        """Dial again, as soon as the process runs."""

        def dial() -> None:
            if node.alive and not self.network.is_up(node.name, peer):
                self._repaired(node.name, peer)
                if not self.network.is_up(node.name, peer):
                    self.after(100.0, dial)

        self.after(100.0, dial)

    def _stop(self, node: Node, condition: str, reason: str) -> None:
        node.stopping = True
        self._watch(node.name, Stop(condition, reason))
        if node.host.unstored == 0:
            self._gone(node, Exited(node.launch, 0, node.host.recorder.last, condition, reason))

    def _gone(self, node: Node, exited: Exited) -> None:
        if not node.alive:
            return
        node.alive = False
        for other in sorted(self.nodes):
            if other != node.name and self.network.is_up(node.name, other):
                self.network.cut(node.name, other)
                peer = self.nodes[other]
                if peer.alive and _dials(node.name, other):
                    lost = Unlinked(node.name, node.incarnation)
                    self.after(DETECT_MS, lambda p=peer, e=lost: self._deliver(p, e))  # type: ignore[misc]
        self._watch(node.name, exited)

    def _files(self) -> dict[str, bytes]:
        names = [name for name in self.disk.list("") if name in FILES_OF_ROLES]
        return {name: self.disk.read(name) for name in names}


FILES_OF_ROLES = ("coordinator.log", "history.jsonl", "history.arrays")


def _dials(one: str, other: str) -> bool:
    """Whether the pair has a link whose ends want to know that it is up."""
    return bool({one, other} & {COORDINATOR, VERIFIER, SERVER})


__all__ = ["Exited", "Fact", "Node", "World"]
