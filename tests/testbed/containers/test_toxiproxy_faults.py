"""Every kind of fault on a real Toxiproxy, measured on real connections: there, only there, and gone afterwards."""

from __future__ import annotations

import socket
import time

import numpy as np
import pytest

from testbed.containers.jitter import DrawnJitter
from testbed.containers.toxics import (
    Bandwidth,
    Direction,
    Latency,
    LimitData,
    ResetPeer,
    Slicer,
    SlowClose,
    Timeout,
)
from testbed.containers.toxiproxy import Toxiproxy
from testbed.containers.toxiproxy_errors import ToxiproxyRefused
from testbed.containers.toxiproxy_state import ProxyState
from tests.testbed.containers.tcp import Client, stamping_server
from training.errors import ConfigurationError

pytestmark = pytest.mark.alone
QUIET_MS = 15.0  # below this, nothing delays (on a busy machine)


@pytest.mark.parametrize("direction", ["upstream", "downstream"])
def test_latency_is_in_its_direction_only_and_gone_afterwards(
    toxiproxy: Toxiproxy, link: ProxyState, direction: Direction
) -> None:
    with Client(link.listen) as client:
        before = client.least()
        toxiproxy.add("link", "slow", direction, Latency(100))
        during = client.least()
        toxiproxy.remove("link", "slow")
        after = client.least()
    hit, other = (during.there_ms, during.back_ms) if direction == "upstream" else (during.back_ms, during.there_ms)
    assert 85.0 <= hit <= 115.0
    assert max(other, before.there_ms, before.back_ms, after.there_ms, after.back_ms) < QUIET_MS


def test_latency_also_holds_for_connections_that_come_later(toxiproxy: Toxiproxy, link: ProxyState) -> None:
    toxiproxy.add("link", "slow", "upstream", Latency(100))
    with Client(link.listen) as client:
        assert 85.0 <= client.least(3).there_ms <= 115.0


def test_jitter_is_what_the_seed_says(toxiproxy: Toxiproxy, link: ProxyState) -> None:
    def disturb(seed: int) -> tuple[list[int], list[float]]:
        generator = np.random.Generator(np.random.PCG64(seed))
        jitter = DrawnJitter(toxiproxy, "link", "upstream", "uneven", 20, 60, generator)
        measured = []
        with Client(link.listen) as client:
            jitter.start()
            for _ in range(5):
                measured.append(client.least(3).there_ms)
                jitter.renew()
            jitter.stop()
            assert client.least().there_ms < QUIET_MS
        return jitter.drawn_ms[:5], measured

    drawn, measured = disturb(7)
    assert measured == pytest.approx(drawn, abs=15.0)
    assert len(set(drawn)) > 1
    assert min(drawn) >= 20
    assert max(drawn) <= 80
    assert disturb(7)[0] == drawn
    assert toxiproxy.proxy("link").healthy


def test_a_renewal_never_lets_through_what_is_not_late_by_the_least_delay(
    toxiproxy: Toxiproxy, link: ProxyState
) -> None:
    generator = np.random.Generator(np.random.PCG64(1))
    jitter = DrawnJitter(toxiproxy, "link", "upstream", "uneven", 200, 3000, generator)
    jitter.start()
    with Client(link.listen) as client:
        sent_s = client.send()
        for _ in range(20):
            jitter.renew()
        assert client.arrived_ms(sent_s) >= 200.0
    jitter.stop()


def test_jitter_beyond_keepalive_is_refused_before_it_begins(toxiproxy: Toxiproxy, link: ProxyState) -> None:
    generator = np.random.Generator(np.random.PCG64(1))
    with pytest.raises(ConfigurationError, match="keepalive"):
        DrawnJitter(toxiproxy, "link", "upstream", "uneven", 5000, 5000, generator).start()
    assert toxiproxy.proxy("link").healthy


def test_bandwidth(toxiproxy: Toxiproxy, link: ProxyState) -> None:
    payload_bytes = 40_960
    with Client(link.listen) as client:
        assert client.exchange(payload_bytes).there_ms < 100.0
        toxiproxy.add("link", "narrow", "upstream", Bandwidth(100))
        during = client.exchange(payload_bytes)
        toxiproxy.remove("link", "narrow")
        after = client.exchange(payload_bytes)
    assert during.there_ms == pytest.approx(400.0, rel=0.2)
    assert during.back_ms < QUIET_MS
    assert after.there_ms < 100.0


def test_down_breaks_what_is_open_and_refuses_what_comes(toxiproxy: Toxiproxy, link: ProxyState) -> None:
    with Client(link.listen) as client:
        client.exchange()
        toxiproxy.set_enabled("link", False)
        with pytest.raises(ConnectionError):
            client.exchange()
    with pytest.raises(ConnectionRefusedError):
        Client(link.listen)
    up = toxiproxy.set_enabled("link", True)
    assert up.listen == link.listen
    with Client(link.listen) as client:
        assert client.least().there_ms < QUIET_MS


def test_a_cut_is_over_at_once(toxiproxy: Toxiproxy, link: ProxyState) -> None:
    with Client(link.listen) as client:
        client.exchange()
        toxiproxy.cut("link")
        with pytest.raises(ConnectionError):
            client.exchange()
    with Client(link.listen) as client:
        client.exchange()


def test_reset_peer_resets_connections_that_begin_under_it(toxiproxy: Toxiproxy, link: ProxyState) -> None:
    with Client(link.listen) as old:
        old.exchange()
        toxiproxy.add("link", "reset", "upstream", ResetPeer())
        with pytest.raises(ConnectionError):
            old.exchange()
    with Client(link.listen) as client, pytest.raises(ConnectionResetError):
        client.exchange()
    toxiproxy.remove("link", "reset")
    with Client(link.listen) as client:
        client.exchange()


def test_timeout_of_nothing_is_a_blackhole_in_one_direction(toxiproxy: Toxiproxy, link: ProxyState) -> None:
    with Client(link.listen, wait_s=0.5) as client:
        client.exchange()
        toxiproxy.add("link", "hole", "downstream", Timeout())
        with pytest.raises(TimeoutError):
            client.exchange()
    toxiproxy.remove("link", "hole")
    with Client(link.listen) as client:
        client.exchange()


def test_timeout_closes_a_silent_connection(toxiproxy: Toxiproxy, link: ProxyState) -> None:
    with Client(link.listen) as client:
        client.exchange()
        toxiproxy.add("link", "hole", "downstream", Timeout(200))
        began_s = time.monotonic()
        with pytest.raises(ConnectionAbortedError):
            client.exchange()
        assert 0.15 <= time.monotonic() - began_s <= 1.0


def test_limit(toxiproxy: Toxiproxy, link: ProxyState) -> None:
    with Client(link.listen) as client:
        toxiproxy.add("link", "limit", "upstream", LimitData(1000))
        client.exchange(600)
        with pytest.raises(ConnectionError):
            client.exchange(600)


def test_slices(toxiproxy: Toxiproxy, link: ProxyState) -> None:
    with Client(link.listen) as client:
        toxiproxy.add("link", "slices", "upstream", Slicer(100, delay_us=10_000))
        assert client.exchange(1600).there_ms >= 100.0  # 16 slices or more, 10 ms apart
        toxiproxy.remove("link", "slices")
        assert client.exchange(1600).there_ms < QUIET_MS


def test_slow_close(toxiproxy: Toxiproxy, link: ProxyState) -> None:
    toxiproxy.add("link", "lingering", "upstream", SlowClose(300))
    with Client(link.listen) as client:
        client.exchange()
        began_s = time.monotonic()
        client.say_no_more()  # the server ends when it hears of it
        assert client.ended()
        assert 0.25 <= time.monotonic() - began_s <= 1.0


def test_nothing_happens_without_toxicity(toxiproxy: Toxiproxy, link: ProxyState) -> None:
    """Kept as a fact: the API reports such a toxic like any other, only a measurement tells that it does nothing."""
    toxiproxy.add("link", "slow", "upstream", Latency(100), toxicity=0.0)
    with Client(link.listen) as client:
        assert client.least().there_ms < QUIET_MS


def test_leading_elsewhere_keeps_the_address_and_leaves_the_old_server(toxiproxy: Toxiproxy, link: ProxyState) -> None:
    with stamping_server() as elsewhere, Client(link.listen) as client:
        client.exchange()
        moved = toxiproxy.retarget("link", elsewhere)
        assert (moved.listen, moved.upstream) == (link.listen, elsewhere)
        with pytest.raises(ConnectionError):
            client.exchange()
        with Client(link.listen) as again:
            again.exchange()


def test_leading_elsewhere_while_down_stays_down(toxiproxy: Toxiproxy, link: ProxyState) -> None:
    toxiproxy.set_enabled("link", False)
    assert not toxiproxy.retarget("link", "127.0.0.1:9").enabled


def test_changes_may_be_repeated(toxiproxy: Toxiproxy, link: ProxyState) -> None:
    assert toxiproxy.create("link", link.upstream) == link
    toxiproxy.add("link", "slow", "upstream", Latency(100))
    toxiproxy.add("link", "slow", "upstream", Latency(100))
    toxiproxy.remove("link", "slow")
    toxiproxy.remove("link", "slow")
    toxiproxy.set_enabled("link", True)
    toxiproxy.delete("link")
    toxiproxy.delete("link")


def test_another_under_the_same_name_is_refused(toxiproxy: Toxiproxy, link: ProxyState) -> None:
    toxiproxy.add("link", "slow", "upstream", Latency(100))
    with pytest.raises(ToxiproxyRefused, match="already exists"):
        toxiproxy.add("link", "slow", "upstream", Latency(200))
    with pytest.raises(ToxiproxyRefused, match="already exists"):
        toxiproxy.add("link", "slow", "downstream", Latency(100))


def test_a_busy_port_is_said(toxiproxy: Toxiproxy, link: ProxyState) -> None:
    with socket.create_server(("127.0.0.1", 0)) as hog:
        with pytest.raises(ToxiproxyRefused, match="address already in use"):
            toxiproxy.create("other", link.upstream, f"127.0.0.1:{hog.getsockname()[1]}")
        assert "other" not in toxiproxy.proxies()


def test_a_port_that_was_taken_while_the_proxy_was_down_is_said(toxiproxy: Toxiproxy, link: ProxyState) -> None:
    toxiproxy.set_enabled("link", False)
    with socket.create_server(("127.0.0.1", link.port)), pytest.raises(ToxiproxyRefused, match="its port is taken"):
        toxiproxy.set_enabled("link", True)
    assert toxiproxy.set_enabled("link", True).enabled


def test_heal_all_undoes_everything(toxiproxy: Toxiproxy, link: ProxyState) -> None:
    toxiproxy.create("other", link.upstream)
    toxiproxy.add("link", "slow", "upstream", Latency(100))
    toxiproxy.add("link", "hole", "downstream", Timeout())
    toxiproxy.set_enabled("other", False)
    toxiproxy.heal_all()
    assert all(proxy.healthy for proxy in toxiproxy.proxies().values())


def test_what_is_not_there(toxiproxy: Toxiproxy) -> None:
    with pytest.raises(ToxiproxyRefused, match="proxy not found") as raised:
        toxiproxy.add("nobody", "slow", "upstream", Latency(100))
    assert raised.value.status == 404
    with pytest.raises(ToxiproxyRefused, match="proxy not found"):
        toxiproxy.heal("nobody")
