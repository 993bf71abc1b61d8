"""Whether a fault on links acts on the training's own messages: before, during and after, from what the roles received.

Roles report several times a second what came in over each link: frames, bytes, connections, and how long each
heartbeat was on its way (`LinksSeen`). A link counts only if something came over it shortly before the fault. Pure:
times come in, in milliseconds of one clock.

A link is affected by
    latency     when its median delay rose by at least half of what was asked
    jitter      when its greatest delay rose by at least half of the least that was asked, and a quarter of the range
    bandwidth   when its greatest delay rose by 10 ms at no more than the rate (a link with room to spare is not)
    slicer      when its greatest delay rose by 10 ms
    partition   when nothing came for 500 ms (heartbeats come every 200 ms); also disconnect, down and timeout
    reset       when a new connection had to be made; also limit
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from statistics import median

from chaos.actions import ApplyLinkFault, LinkMeasured
from services.shell.driver_link import LinkSeen, LinksSeen

Figures = dict[str, str | int | float]
Pair = tuple[str, str]

SILENT_MS = 500.0
_SILENCING = ("partition", "disconnect", "down", "timeout")
_BREAKING = ("reset", "limit")
_DELAYING = ("latency", "jitter", "bandwidth", "slicer")
_LIVED_MS = 2000.0
_SETTLE_MS = 50.0
_AFTER_MS = 6000.0
_SLOWER_MS = 10.0
_ENOUGH = 5  # heartbeats: one or two say little on a busy machine
_NOTHING = LinkSeen(0, 0, 0, ())


@dataclass(slots=True)
class _Link:
    """One link under one fault."""

    before_ms: float
    lived: bool
    affected: bool = False
    recovered: bool = False
    frames: int = 0
    begun: int = 0
    size_bytes: int = 0
    silent_ms: float = 0.0
    window_ms: float = 0.0
    delays_ms: list[float] = field(default_factory=list)
    after_ms: list[float] = field(default_factory=list)


@dataclass(slots=True)
class _Watched:
    kind: str
    settings: Figures
    since_ms: float
    links: dict[Pair, _Link] = field(default_factory=dict)
    undone_ms: float | None = None
    told: bool = False

    @property
    def added_ms(self) -> float:
        """The least delay that it adds."""
        return float(self.settings.get("delay_ms", 0.0))

    @property
    def settle_ms(self) -> float:
        """For so long after a change, what comes in may have been sent before it."""
        return _SETTLE_MS + self.added_ms + float(self.settings.get("jitter_ms", 0.0))

    @property
    def lived(self) -> dict[Pair, _Link]:
        return {pair: link for pair, link in self.links.items() if link.lived}


class LinkWatch:
    """What is known of every link, and of the faults on them."""

    def __init__(self) -> None:
        self._usual: dict[Pair, deque[float]] = {}
        self._heard_ms: dict[Pair, float] = {}
        self._faults: dict[str, _Watched] = {}

    def applied(self, now_ms: float, fault: ApplyLinkFault) -> None:
        """The fault is on that link from now on."""
        watched = self._faults.get(fault.fault)
        if watched is None or watched.undone_ms is not None:  # one that comes again, as of a flapping link
            watched = self._faults[fault.fault] = _Watched(fault.kind, dict(fault.settings), now_ms)
        pair = (fault.source, fault.target)
        usual = self._usual.get(pair)
        lived = now_ms - self._heard_ms.get(pair, float("-inf")) < _LIVED_MS
        watched.links[pair] = _Link(median(usual) if usual else 0.0, lived)

    def undone(self, now_ms: float, fault: str) -> None:
        """It is on no link any more."""
        if fault in self._faults:
            self._faults[fault].undone_ms = now_ms

    def seen(self, now_ms: float, role: str, report: LinksSeen) -> list[LinkMeasured]:
        """What a role received in the window that ends now; returns what can be said of faults by that."""
        for source, seen in report.links.items():
            if seen.frames:
                self._heard_ms[source, role] = now_ms
        for watched in self._faults.values():
            for (source, target), link in watched.links.items():
                if target == role:
                    _look(watched, link, report.links.get(source, _NOTHING), now_ms, report.window_ms)
        disturbed = {pair for watched in self._faults.values() for pair in watched.links}
        for source, seen in report.links.items():
            if (source, role) not in disturbed:
                self._usual.setdefault((source, role), deque(maxlen=30)).extend(seen.delays_ms)
        return [told for name in list(self._faults) for told in self._say(name, now_ms)]

    def _say(self, name: str, now_ms: float) -> list[LinkMeasured]:
        watched = self._faults[name]
        lived = watched.lived.values()
        said = []
        if not watched.told and lived and all(link.affected for link in lived):
            watched.told = True
            said.append(LinkMeasured(name, "during", _figures(watched)))
        if watched.undone_ms is not None:
            over = now_ms > watched.undone_ms + _AFTER_MS
            settled = all(link.recovered for link in lived) and (watched.kind != "reset" or watched.told)
            if over or settled:
                del self._faults[name]
                said.append(LinkMeasured(name, "after", _figures(watched) | _afterwards(watched)))
        return said


def _look(watched: _Watched, link: _Link, seen: LinkSeen, now_ms: float, window_ms: float) -> None:
    """Take one window of one link into account."""
    began_ms = now_ms - window_ms
    begun = seen.begun
    if began_ms < watched.since_ms and not link.lived and seen.frames:
        link.lived = True  # nobody had told of it yet, but it lived before the fault
        link.before_ms = min(seen.delays_ms, default=0.0)
        begun = max(0, begun - 1)  # the first one is how it began to live
    if watched.undone_ms is not None and began_ms >= watched.undone_ms:
        if watched.kind == "reset":
            link.begun += begun
            link.affected = link.affected or begun > 0
        if began_ms >= watched.undone_ms + watched.settle_ms and seen.frames:
            link.after_ms += seen.delays_ms
            link.recovered = watched.kind not in _DELAYING or _is_as_before(watched, link)
        return
    link.frames += seen.frames
    link.begun += begun
    if watched.kind in _BREAKING:
        link.affected = link.affected or begun > 0
    elif watched.undone_ms is None and began_ms >= watched.since_ms + watched.settle_ms:
        link.window_ms += window_ms
        link.size_bytes += seen.size_bytes
        link.delays_ms += seen.delays_ms
        link.silent_ms = 0.0 if seen.frames else link.silent_ms + window_ms
        link.affected = link.affected or _acts(watched, link)


def _is_as_before(watched: _Watched, link: _Link) -> bool:
    """Enough heartbeats came, and they are not late any more."""
    if len(link.after_ms) < _ENOUGH:
        return False
    return not watched.added_ms or median(link.after_ms) - link.before_ms < watched.added_ms / 2


def _acts(watched: _Watched, link: _Link) -> bool:
    if watched.kind in _SILENCING:
        return link.silent_ms >= SILENT_MS
    if not link.delays_ms:
        return False
    more_ms = max(link.delays_ms) - link.before_ms
    if watched.kind == "latency":
        return median(link.delays_ms) - link.before_ms >= watched.added_ms / 2
    if watched.kind == "jitter":
        return more_ms >= max(watched.added_ms / 2, float(watched.settings["jitter_ms"]) / 4)
    if watched.kind == "slicer":
        return more_ms >= _SLOWER_MS
    rate = link.size_bytes / 1.024 / max(link.window_ms, 1.0)  # KiB per second
    return more_ms >= _SLOWER_MS and rate <= float(watched.settings["kib_per_s"]) * 1.15


def _figures(watched: _Watched) -> Figures:
    """For people and for the witness."""
    lived = watched.lived
    affected = {pair: link for pair, link in lived.items() if link.affected}
    found: Figures = {
        "messages": sum(link.frames for link in lived.values()),
        "affected": len(affected),
        "links": ", ".join(f"{source} > {target}" for source, target in sorted(affected)),
    }
    unaffected = sorted(set(lived) - set(affected))
    if unaffected:
        found["unaffected"] = ", ".join(f"{source} > {target}" for source, target in unaffected)
    delays = [delay for link in affected.values() for delay in link.delays_ms]
    if delays and watched.kind in _DELAYING:
        found["delay_ms"] = round(median(delays), 1)
        found["delay_before_ms"] = round(median(link.before_ms for link in affected.values()), 1)
    if watched.kind in _BREAKING:
        found["connections"] = sum(link.begun for link in affected.values())
    if watched.kind in _SILENCING:
        found["silent_ms"] = round(min((link.silent_ms for link in affected.values()), default=0.0))
    if watched.kind == "bandwidth":
        found["kib_per_s"] = round(
            sum(one.size_bytes / 1.024 / max(one.window_ms, 1.0) for one in affected.values()), 1
        )
    return found


def _afterwards(watched: _Watched) -> Figures:
    lived = watched.lived
    still = sorted(pair for pair, link in lived.items() if not link.recovered)
    delays = [delay for link in lived.values() for delay in link.after_ms]
    found: Figures = {"delay_after_ms": round(median(delays), 1)} if delays else {}
    return found | ({"not_recovered": ", ".join(f"{source} > {target}" for source, target in still)} if still else {})
