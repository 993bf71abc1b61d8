"""What is said of a fault on links, from what roles report; and which proxy carries which direction."""

from __future__ import annotations

import pytest

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


def test_a_link_that_nobody_told_of_before_the_fault_lived_if_something_came_over_it() -> None:
    play = Play()
    play.now_ms = WINDOW_MS / 2
    play.apply("partition")
    play.now_ms = 0.0
    assert play.told(window(2.0)) == []  # of the time before and after it
    (during,) = play.told(*[window(frames=0)] * 4)
    assert during.figures["links"] == "worker-1 > coordinator"


def test_the_first_connection_of_a_link_is_no_reset() -> None:
    play = Play()
    play.now_ms = WINDOW_MS / 2
    play.apply("reset")
    play.undo()
    play.now_ms = 0.0
    first = LinksSeen(WINDOW_MS, {"worker-1": LinkSeen(3, 90, 1, (2.0,))})
    assert [told.moment for told in play.told(first, *[window(2.0)] * 40)] == ["after"]


@pytest.mark.parametrize(("kind", "settings"), [("down", {}), ("timeout", {"after_ms": 100.0}), ("disconnect", {})])
def test_silence_is_what_cuts_do(kind: str, settings: dict[str, float]) -> None:
    play = Play()
    play.told(window(2.0))
    play.apply(kind, **settings)
    (during,) = play.told(*[window(frames=0)] * 4)
    assert float(during.figures["silent_ms"]) >= 500


def test_a_limit_is_seen_by_new_connections_and_a_slicer_by_delays() -> None:
    for kind, report, figure in (
        ("limit", LinksSeen(WINDOW_MS, {"worker-1": LinkSeen(3, 90, 2, (2.0,))}), "connections"),
        ("slicer", window(25.0), "delay_ms"),
    ):
        play = Play()
        play.told(window(2.0))
        play.apply(kind, slice_bytes=10, pause_us=5000, limit_bytes=3000)
        assert play.told(window(2.0)) == []
        (during,) = play.told(report)
        assert float(during.figures[figure]) >= 2
