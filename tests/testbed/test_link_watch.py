"""What is said of a fault on links, from what roles report; and which proxy carries which direction."""

from __future__ import annotations

from chaos.actions import ApplyLinkFault, LinkMeasured
from services.shell.driver_link import LinkSeen, LinksSeen
from testbed.engines.link_watch import LinkWatch
from testbed.engines.proxied_links import proxied_links, proxy_of

WINDOW_MS = 250.0


def window(*delays_ms: float, frames: int = 2, begun: int = 0) -> LinksSeen:
    """One report about worker-1; without frames it is not named."""
    seen = LinkSeen(frames, 20 * frames, begun, delays_ms)
    return LinksSeen(WINDOW_MS, {"worker-1": seen} if frames else {})


class Play:
    """Reports of the coordinator, one window after the other."""

    def __init__(self) -> None:
        self.watch = LinkWatch()
        self.now_ms = 0.0

    def told(self, *reports: LinksSeen) -> list[LinkMeasured]:
        said = []
        for report in reports:
            self.now_ms += WINDOW_MS
            said += self.watch.seen(self.now_ms, "coordinator", report)
        return said

    def apply(self, kind: str, **settings: float) -> None:
        self.watch.applied(self.now_ms, ApplyLinkFault("1-x", kind, "worker-1", "coordinator", dict(settings)))

    def undo(self) -> None:
        self.watch.undone(self.now_ms, "1-x")


def test_a_latency_is_measured_before_during_and_after() -> None:
    play = Play()
    assert play.told(window(1.0), window(3.0), window(2.0)) == []
    play.apply("latency", delay_ms=100.0)
    assert play.told(window(2.0)) == []  # sent before it
    (during,) = play.told(window(101.0, 103.0))
    assert during.moment == "during"
    assert (during.figures["delay_before_ms"], during.figures["delay_ms"]) == (2.0, 102.0)
    assert during.figures["links"] == "worker-1 > coordinator"
    play.undo()
    assert play.told(window(102.0)) == []
    (after,) = play.told(*[window(1.5)] * 5)
    assert (after.moment, after.figures["delay_after_ms"]) == ("after", 1.5)
    assert "not_recovered" not in after.figures


def test_a_latency_that_does_nothing_affects_nothing() -> None:
    play = Play()
    play.told(window(2.0))
    play.apply("latency", delay_ms=100.0)
    assert play.told(*[window(2.0)] * 8) == []
    play.undo()
    (after,) = play.told(*[window(2.0)] * 7)
    assert after.figures["affected"] == 0
    assert after.figures["unaffected"] == "worker-1 > coordinator"


def test_silence_is_a_partition_only_when_it_lasts_and_the_link_had_lived() -> None:
    play = Play()
    play.told(window(2.0))
    play.apply("partition")
    assert play.told(window(frames=0), window(frames=0)) == []  # the first window is not all within the fault
    assert [one.moment for one in play.told(window(frames=0))] == ["during"]
    quiet = Play()
    quiet.apply("partition")
    assert quiet.told(*[window(frames=0)] * 8) == []


def test_a_reset_is_seen_by_the_new_connection() -> None:
    play = Play()
    play.told(window(2.0))
    play.apply("reset")
    play.undo()
    assert [one.moment for one in play.told(window(2.0), window(2.0, begun=1))] == ["during", "after"]


def test_each_direction_has_its_place() -> None:
    roles = ("verifier", "coordinator", "server", "worker-1", "worker-2")
    assert proxied_links(roles) == [
        ("server", "coordinator"),
        ("worker-1", "coordinator"),
        ("worker-1", "server"),
        ("worker-1", "worker-2"),
        ("worker-2", "coordinator"),
        ("worker-2", "server"),
        ("worker-2", "worker-1"),
    ]
    assert proxy_of("worker-1", "worker-2") == ("worker-1>worker-2", "upstream")
    assert proxy_of("worker-2", "worker-1") == ("worker-2>worker-1", "upstream")
    assert proxy_of("coordinator", "worker-1") == ("worker-1>coordinator", "downstream")
