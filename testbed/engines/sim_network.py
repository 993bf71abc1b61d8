"""The simulator's network: directed links that keep order, break with their ends, and do what faults tell them.

A link between two roles is up while both live and nothing has broken it. What was sent over a link that breaks before
it arrives is lost. Both ends learn of a break and of the return, as the gRPC shell learns it from its streams.
Every draw comes from one seeded generator, in the order of the sends, so that a seed gives one run.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from services.codec import decode, encode
from services.messages import Boundary, DataPart, Message, Part
from services.wire_error import WireError

LATENCY_MS = 0.2
JITTER_MS = 0.1
BYTES_PER_MS = 1_000_000.0  # 1 GB/s
BLACKHOLE_BREAKS_MS = 2000.0  # what keepalive needs to find that nothing gets through
RECONNECT_MS = 1.0

SILENT = ("partition", "disconnect")

Figures = dict[str, str | int | float]
Deliver = Callable[[Message], None]
Schedule = Callable[[float, Callable[[], None]], None]


@dataclass(slots=True)
class LinkFault:
    """A fault in force on one directed link, and what it did."""

    fault: str
    kind: str
    source: str
    target: str
    settings: Figures
    since_ms: float
    figures: Figures = field(default_factory=lambda: {"messages": 0, "affected": 0})
    stalled: list[Callable[[], None]] = field(default_factory=list)

    def count(self, name: str) -> int:
        """One more of `name`; how many there are now."""
        now = int(self.figures.get(name, 0)) + 1
        self.figures[name] = now
        return now


class Network:
    """See the module's docstring. `broken(a, b)` and `repaired(a, b)` tell the world that a pair's link changed."""

    def __init__(
        self,
        generator: np.random.Generator,
        schedule: Schedule,
        broken: Callable[[str, str], None],
        repaired: Callable[[str, str], None],
    ) -> None:
        self._generator = generator
        self._schedule = schedule
        self._broken = broken
        self._repaired = repaired
        self._epochs: dict[tuple[str, str], int] = {}
        self._down: set[tuple[str, str]] = set()
        self._last_ms: dict[tuple[str, str], float] = {}
        self.faults: dict[tuple[str, str, str], LinkFault] = {}  # by (fault, source, target)
        self.on_affected: Callable[[LinkFault], None] = lambda fault: None  # a fault touched its first message

    # ------------------------------------------------------------ links

    def cut(self, one: str, other: str) -> None:
        """The pair's link breaks: what is on its way is lost."""
        pair = _pair(one, other)
        self._epochs[pair] = self._epochs.get(pair, 0) + 1
        self._down.add(pair)

    def restore(self, one: str, other: str) -> None:
        self._down.discard(_pair(one, other))

    def is_up(self, one: str, other: str) -> bool:
        return _pair(one, other) not in self._down

    def blocked(self, one: str, other: str) -> bool:
        """Whether a partition is in force in either direction."""
        ends = {one, other}
        return any(fault.kind in SILENT and {fault.source, fault.target} == ends for fault in self.faults.values())

    # ------------------------------------------------------------ sending

    def send(self, now_ms: float, source: str, target: str, message: Message | None, deliver: Deliver) -> None:
        """Bring a message (None: a heartbeat) to `target`, sooner or later, once, never, or twice."""
        pair = _pair(source, target)
        if pair in self._down:
            return
        epochs = self._epochs
        epoch = epochs.get(pair, 0)
        delay_ms = LATENCY_MS + JITTER_MS * self._generator.random() + _size(message) / BYTES_PER_MS
        if not self.faults:  # the usual case, with nothing made that is not needed
            self._in_order(
                now_ms, source, target, delay_ms,
                lambda: deliver(message) if epochs.get(pair, 0) == epoch else None,  # type: ignore[arg-type]
            )  # fmt: skip
            return

        def arrive(what: Message | None) -> Callable[[], None]:
            return lambda: deliver(what) if epochs.get(pair, 0) == epoch else None  # type: ignore[arg-type]

        self._faulty(now_ms, source, target, message, delay_ms, arrive)

    def _faulty(
        self,
        now_ms: float,
        source: str,
        target: str,
        message: Message | None,
        delay_ms: float,
        arrive: Callable[[Message | None], Callable[[], None]],
    ) -> None:
        twice = overtaken = False
        for fault in [found for found in self.faults.values() if (found.source, found.target) == (source, target)]:
            fault.count("messages")
            kind = fault.kind
            if kind in SILENT:
                self._affect(fault)
                fault.stalled.append(arrive(message))
                return
            extra_ms = self._extra_ms(fault, message)
            delay_ms += extra_ms
            if kind in ("drop", "duplicate", "reorder", "corrupt_payload"):
                if message is None or self._generator.random() >= float(fault.settings["probability"]):
                    continue
                if kind == "drop":
                    self._affect(fault)
                    self._reset(source, target)
                    return
                if kind == "corrupt_payload":
                    if not isinstance(message, Part):
                        continue
                    self._affect(fault)
                    self._corrupted(fault, source, target, message, arrive)
                    return
                self._affect(fault)
                twice = twice or kind == "duplicate"
                if kind == "reorder":
                    overtaken = True
                    delay_ms += float(fault.settings["delay_ms"])
            else:
                self._affect(fault)
        if overtaken:
            self._schedule(delay_ms, arrive(message))
        else:
            self._in_order(now_ms, source, target, delay_ms, arrive(message))
        if twice:
            self._schedule(delay_ms + 1.0, arrive(message))

    def _affect(self, fault: LinkFault) -> None:
        if fault.count("affected") == 1:
            self.on_affected(fault)

    def _extra_ms(self, fault: LinkFault, message: Message | None) -> float:
        settings = fault.settings
        if fault.kind == "latency":
            return float(settings["delay_ms"])
        if fault.kind == "jitter":
            return float(settings["delay_ms"]) + float(settings["jitter_ms"]) * self._generator.random()
        if fault.kind == "bandwidth":
            return _size(message) / (float(settings["kib_per_s"]) * 1.024)
        return 0.0

    def _corrupted(
        self,
        fault: LinkFault,
        source: str,
        target: str,
        message: Part,
        arrive: Callable[[Message | None], Callable[[], None]],
    ) -> None:
        """Flip a bit of the payload in its real encoding; the real decoder has to notice. The stream is then reset."""
        frame = bytearray(encode(message))
        at = len(frame) - 1 - int(self._generator.integers(max(1, min(8 * message.data.size, len(frame)))))
        frame[at] ^= 1 << int(self._generator.integers(8))
        try:
            decoded = decode(bytes(frame), source)
        except WireError:
            fault.count("refused")
            self._reset(source, target)
            return
        assert isinstance(decoded, Part), decoded
        fault.count("undetected")
        self._schedule(LATENCY_MS, arrive(decoded))

    def _in_order(
        self, now_ms: float, source: str, target: str, delay_ms: float, arrive: Callable[[], None]
    ) -> None:  # fmt: skip
        key = (source, target)
        due_ms = max(now_ms + delay_ms, self._last_ms.get(key, 0.0))
        self._last_ms[key] = due_ms
        self._schedule(due_ms - now_ms, arrive)

    def _reset(self, source: str, target: str) -> None:
        """The connection breaks and is dialled again at once."""
        self.cut(source, target)
        self._broken(source, target)
        self._schedule(RECONNECT_MS, lambda: self._repaired(source, target))

    # ------------------------------------------------------------ faults

    def apply(self, fault: LinkFault) -> None:
        self.faults[fault.fault, fault.source, fault.target] = fault
        if fault.kind == "reset":
            self._affect(fault)
            self._reset(fault.source, fault.target)
        elif fault.kind in SILENT:
            self._schedule(BLACKHOLE_BREAKS_MS, lambda: self._give_up(fault))

    def _give_up(self, fault: LinkFault) -> None:
        """A blackhole that lasted: both ends close the connection; dialling fails until it is undone."""
        if self.faults.get((fault.fault, fault.source, fault.target)) is fault and self.is_up(
            fault.source, fault.target
        ):
            self.cut(fault.source, fault.target)
            fault.stalled.clear()
            fault.count("broken")
            self._broken(fault.source, fault.target)

    def undo(self, name: str) -> list[LinkFault]:
        """Take the named fault off all its links. What it held back arrives, if the link still stands."""
        undone = [fault for fault in self.faults.values() if fault.fault == name]
        for fault in undone:
            del self.faults[fault.fault, fault.source, fault.target]
        for fault in undone:
            for arrive in fault.stalled:
                self._schedule(LATENCY_MS, arrive)
            if fault.kind in SILENT and not self.blocked(fault.source, fault.target):
                self._schedule(RECONNECT_MS, lambda ends=(fault.source, fault.target): self._repaired(*ends))  # type: ignore[misc]
        return undone


def _pair(one: str, other: str) -> tuple[str, str]:
    return (one, other) if one < other else (other, one)


def _size(message: Message | None) -> int:
    if isinstance(message, Part):
        return 100 + int(message.data.nbytes)
    if isinstance(message, Boundary):
        return 100 + len(message.payload)
    return 100 + len(message.data) if isinstance(message, DataPart) else 100
