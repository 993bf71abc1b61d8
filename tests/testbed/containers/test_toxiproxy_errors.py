"""Every way in which Toxiproxy's API can fail has its own error, and each comes within its bound."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable

import pytest

from testbed.containers.toxics import Latency
from testbed.containers.toxiproxy import Toxiproxy
from testbed.containers.toxiproxy_errors import (
    ToxiproxyError,
    ToxiproxyHung,
    ToxiproxyMismatch,
    ToxiproxyRefused,
    ToxiproxyUnreachable,
)
from testbed.engines.base import EngineError
from tests.testbed.containers.api_double import answering
from training.errors import ConfigurationError

PROXY = {"name": "a>b", "listen": "127.0.0.1:1", "upstream": "127.0.0.1:2", "enabled": True, "toxics": []}


def test_nobody_there() -> None:
    with socket.socket() as taken:  # bound but not listening: refused, and nobody else can take it
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        with pytest.raises(ToxiproxyUnreachable, match=f"127.0.0.1:{port} .*is not there: .*refused"):
            Toxiproxy(f"127.0.0.1:{port}").version()


def test_a_name_that_nobody_has() -> None:
    with pytest.raises(ToxiproxyUnreachable, match="is not there"):
        Toxiproxy("toxiproxy.invalid:8474").version()


@pytest.mark.alone
def test_a_hung_server_is_said_to_be_hung_within_the_bound() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:  # takes connections, never answers
        toxiproxy = Toxiproxy(f"127.0.0.1:{silent.getsockname()[1]}", timeout_s=0.3)
        began_s = time.monotonic()
        with pytest.raises(ToxiproxyHung, match=r"POST /proxies\) did not answer within 0.3 s"):
            toxiproxy.create("a>b", "127.0.0.1:1")
        assert time.monotonic() - began_s < 2.0


def test_a_connection_that_breaks_leaves_the_outcome_unknown() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def hang_up() -> None:
            connection, _ = listener.accept()
            connection.recv(10)
            connection.close()

        threading.Thread(target=hang_up, daemon=True).start()
        with pytest.raises(ToxiproxyHung, match="broke the connection"):
            Toxiproxy(f"127.0.0.1:{listener.getsockname()[1]}").version()


@pytest.mark.parametrize(
    ("status", "body", "error"),
    [
        (500, b'{"error": "listen tcp: busy", "status": 500}', ToxiproxyRefused),
        (502, b"<html>no JSON</html>", ToxiproxyRefused),
        (404, b'{"error": "proxy not found", "status": 404}', ToxiproxyRefused),
        (302, b"", ToxiproxyRefused),
        (503, b"<html>Timeout</html>", ToxiproxyHung),
        (200, b"hello", ToxiproxyMismatch),
        (200, b'["a list"]', ToxiproxyMismatch),
        (200, b'{"name": "a>b"}', ToxiproxyMismatch),
        (200, b"", ToxiproxyMismatch),
    ],
)
def test_answers_that_are_none(status: int, body: bytes, error: type[ToxiproxyError]) -> None:
    with answering(lambda method, path: (status, body)) as address, pytest.raises(error) as raised:
        Toxiproxy(address).proxy("a>b")
    assert isinstance(raised.value, EngineError)


CHANGES: dict[str, Callable[[Toxiproxy], object]] = {
    "taken down": lambda toxiproxy: toxiproxy.set_enabled("a>b", False),
    "led elsewhere": lambda toxiproxy: toxiproxy.retarget("a>b", "127.0.0.1:9"),
    "given a toxic": lambda toxiproxy: toxiproxy.add("a>b", "slow", "upstream", Latency(100)),
    "created for another": lambda toxiproxy: toxiproxy.create("a>b", "127.0.0.1:9"),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_server_that_claims_success_and_does_nothing_is_found_out(change: Callable[[Toxiproxy], object]) -> None:
    with (
        answering(lambda method, path: (200, json.dumps(PROXY).encode())) as address,
        pytest.raises(ToxiproxyMismatch, match="a>b"),
    ):
        change(Toxiproxy(address))


def test_a_toxic_that_stays_is_found_out() -> None:
    toxic = {"name": "slow", "type": "latency", "stream": "upstream", "toxicity": 1, "attributes": {"latency": 1}}
    stuck = json.dumps({**PROXY, "toxics": [toxic]}).encode()
    with (
        answering(lambda method, path: (204, b"") if method == "DELETE" else (200, stuck)) as address,
        pytest.raises(ToxiproxyMismatch, match="without slow"),
    ):
        Toxiproxy(address).remove("a>b", "slow")


def test_heal_all_goes_on_and_names_who_is_left() -> None:
    asked: list[str] = []
    proxies = {name: {**PROXY, "name": name, "enabled": False} for name in ("a>b", "c>d")}

    def answer(method: str, path: str) -> tuple[int, bytes]:
        asked.append(f"{method} {path}")
        if method == "PATCH":
            return 500, b'{"error": "no"}'
        return 200, json.dumps(proxies if path == "/proxies" else PROXY).encode()

    with answering(answer) as address, pytest.raises(ToxiproxyError, match=r"not healed: a>b: .*; c>d: "):
        Toxiproxy(address).heal_all()
    assert [call for call in asked if call.startswith("PATCH")] == ["PATCH /proxies/a%3Eb", "PATCH /proxies/c%3Ed"]


def test_latency_that_keepalive_does_not_bear_is_not_sent() -> None:
    asked: list[str] = []
    there = {"name": "old", "type": "latency", "stream": "downstream", "toxicity": 1, "attributes": {"latency": 600}}

    def answer(method: str, path: str) -> tuple[int, bytes]:
        asked.append(method)
        return 200, json.dumps({**PROXY, "toxics": [there]}).encode()

    with answering(answer) as address, pytest.raises(ConfigurationError, match="1000 ms both ways"):
        Toxiproxy(address, ping_ms=1000).add("a>b", "slow", "upstream", Latency(400))
    assert asked == ["GET"]


@pytest.mark.parametrize("name", ["", "a/b"])
def test_names_that_toxiproxy_cannot_find_again(name: str) -> None:
    with pytest.raises(ConfigurationError, match="proxy's name"):
        Toxiproxy("127.0.0.1:1").create(name, "127.0.0.1:2")


def test_toxicity_out_of_range() -> None:
    with pytest.raises(ConfigurationError, match="toxicity 2"):
        Toxiproxy("127.0.0.1:1").add("a>b", "slow", "upstream", Latency(1), toxicity=2.0)


def test_waiting_for_one_that_never_comes_ends() -> None:
    pauses: list[float] = []
    with pytest.raises(ToxiproxyUnreachable):
        Toxiproxy("127.0.0.1:1").wait_ready(0.0, pauses.append)
    assert pauses == []
