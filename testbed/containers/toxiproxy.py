"""Toxiproxy's HTTP API as the injectors need it: bounded, typed, and read back after every change.

Written over the API itself and not over toxiproxy-python 0.1.1: that keeps the server's address in a class (two
Toxiproxys in one process would share it), knows no timeout, takes a 5xx for success and brings `future` along. What we
need of it are nine requests.

Duties of the caller: undo what was done (`heal`), on every way out. The client is safe to use from several threads;
two of them that change the same proxy at once may find each other's work where they expected their own
(`ToxiproxyMismatch`). The API has no authentication: it belongs on loopback or on a network of the driver's own.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import requests

from services.shell.options import TransportOptions
from testbed.containers.toxics import Direction, Latency, Toxic, check_round_trip
from testbed.containers.toxiproxy_errors import (
    ToxiproxyError,
    ToxiproxyHung,
    ToxiproxyMismatch,
    ToxiproxyRefused,
    ToxiproxyUnreachable,
)
from testbed.containers.toxiproxy_state import ProxyState, ToxicState, asked_for, read_proxy
from training.errors import ConfigurationError

CALL_TIMEOUT_S = 5.0
NOT_FOUND, NAME_TAKEN = 404, 409


class Toxiproxy:
    """A client of the server whose API is at `address` ("host:port").

    `timeout_s` bounds each request (to connect, and to be answered). `ping_ms` is the keepalive of the links that go
    through it: latencies that would reach it are refused.
    """

    def __init__(
        self, address: str, timeout_s: float = CALL_TIMEOUT_S, ping_ms: float = TransportOptions().ping_ms
    ) -> None:
        self.address = address
        self._timeout_s = timeout_s
        self._ping_ms = ping_ms

    # ------------------------------------------------------------ reading

    def version(self) -> str:
        """For example "2.12.0"."""
        answer = self._call("GET", "/version")
        if not isinstance(answer, dict) or "version" not in answer:
            raise ToxiproxyMismatch(f"what answers at {self.address} is no Toxiproxy: {str(answer)[:100]}")
        return str(answer["version"])

    def wait_ready(self, deadline_s: float, pause: Callable[[float], None]) -> str:
        """Its version, once it answers; `pause(seconds)` is called between tries. Raises what the last try raised."""
        until_s = time.monotonic() + deadline_s
        while True:
            try:
                return self.version()
            except (ToxiproxyUnreachable, ToxiproxyHung):
                if time.monotonic() >= until_s:
                    raise
            pause(0.05)

    def proxies(self) -> dict[str, ProxyState]:
        """All of them by name, ascending."""
        answer = self._call("GET", "/proxies")
        if not isinstance(answer, dict):
            raise ToxiproxyMismatch(f"what answers at {self.address} is no Toxiproxy: {str(answer)[:100]}")
        return {name: read_proxy(answer[name]) for name in sorted(answer)}

    def proxy(self, name: str) -> ProxyState:
        return read_proxy(self._call("GET", _path(name)))

    # ------------------------------------------------------------ proxies

    def create(self, name: str, upstream: str, listen: str = "127.0.0.1:0") -> ProxyState:
        """A new proxy, up. One that is there already with the same upstream is taken as it is: a retry is harmless."""
        if not name or "/" in name:
            raise ConfigurationError(f"{name!r} cannot be a proxy's name: it must not be empty nor have a /")
        try:
            self._call("POST", "/proxies", {"name": name, "listen": listen, "upstream": upstream, "enabled": True})
        except ToxiproxyRefused as error:
            if error.status != NAME_TAKEN:
                raise
        return self._expect(name, f"created for {upstream}", lambda proxy: proxy.upstream == upstream and proxy.enabled)

    def delete(self, name: str) -> None:
        """Remove it and break its connections; one that is not there is no error."""
        try:
            self._call("DELETE", _path(name))
        except ToxiproxyRefused as error:
            if error.status != NOT_FOUND:
                raise

    def set_enabled(self, name: str, enabled: bool) -> ProxyState:
        """Down: it breaks its connections and listens no more. Up: it listens at the same address as before.

        A proxy that is just dialling an address where nobody is goes down only when the system gives up on it (3 s
        in the same subnet). Lead proxies to names: Docker knows none of a container that does not run.
        """
        try:
            self._call("PATCH", _path(name), {"enabled": enabled})
        except ToxiproxyRefused as error:
            if enabled and "address already in use" in str(error):
                raise ToxiproxyRefused(
                    f"{name} cannot come up again: its port is taken ({error})", error.status
                ) from error
            raise
        return self._expect(name, "up" if enabled else "down", lambda proxy: proxy.enabled == enabled)

    def cut(self, name: str) -> ProxyState:
        """Break its connections now; new ones may come at once."""
        self.set_enabled(name, False)
        return self.set_enabled(name, True)

    def retarget(self, name: str, upstream: str) -> ProxyState:
        """Lead it to another address, as when a role was relaunched elsewhere; breaks its connections."""
        before = self.proxy(name)
        self._call("PATCH", _path(name), {"upstream": upstream})
        now = (upstream, before.enabled)
        return self._expect(name, f"led to {upstream}", lambda proxy: (proxy.upstream, proxy.enabled) == now)

    # ------------------------------------------------------------ toxics

    def add(self, proxy: str, name: str, direction: Direction, toxic: Toxic, toxicity: float = 1.0) -> ToxicState:
        """Put a toxic on one direction of a proxy. The same one again is no error, another of that name is (409)."""
        asked = asked_for(name, direction, toxic, _checked_toxicity(toxicity))
        self._check_latency(proxy, name, toxic)
        body: dict[str, Any] = {
            "name": name,
            "type": asked.kind,
            "stream": direction,
            "toxicity": toxicity,
            "attributes": asked.attributes,
        }
        try:
            self._call("POST", f"{_path(proxy)}/toxics", body)
        except ToxiproxyRefused as error:
            there = self.proxy(proxy).toxic(name) if error.status == NAME_TAKEN else None
            if there is None or not there.is_as_asked(asked):
                raise
        return self._expect_toxic(proxy, asked)

    def update(self, proxy: str, name: str, toxic: Toxic) -> ToxicState:
        """Give a toxic other figures. What it holds back at this moment is let through at once."""
        there = self.proxy(proxy).toxic(name)
        if there is None or there.kind != toxic.kind:
            raise ToxiproxyRefused(f"there is no {toxic.kind} {name} on {proxy}", NOT_FOUND)
        self._check_latency(proxy, name, toxic)
        asked = asked_for(name, there.direction, toxic, there.toxicity)
        self._call("PATCH", f"{_path(proxy)}/toxics/{quote(name, safe='')}", {"attributes": asked.attributes})
        return self._expect_toxic(proxy, asked)

    def check_room_for(self, proxy: str, delay_ms: float, instead_of: str = "") -> None:
        """Raise ConfigurationError if so much more latency (in place of a toxic's) is more than keepalive bears."""
        others = (toxic for toxic in self.proxy(proxy).toxics if toxic.kind == "latency" and toxic.name != instead_of)
        check_round_trip(sum(toxic.attributes["latency"] for toxic in others) + delay_ms, self._ping_ms, proxy)

    def remove(self, proxy: str, name: str) -> ProxyState:
        """Take a toxic away; one that is not there is no error."""
        try:
            self._call("DELETE", f"{_path(proxy)}/toxics/{quote(name, safe='')}")
        except ToxiproxyRefused as error:
            if error.status != NOT_FOUND:
                raise
        return self._expect(proxy, f"without {name}", lambda state: state.toxic(name) is None)

    def heal(self, proxy: str) -> ProxyState:
        """Up, and nothing on it."""
        for toxic in self.proxy(proxy).toxics:
            self.remove(proxy, toxic.name)
        self.set_enabled(proxy, True)
        return self._expect(proxy, "healed", lambda state: state.healthy)

    def heal_all(self) -> None:
        """Heal every proxy, whatever happens on the way; raises one error that names those that could not be healed."""
        failed = []
        for name, proxy in self.proxies().items():
            try:
                if not proxy.healthy:
                    self.heal(name)
            except ToxiproxyError as error:
                failed.append(f"{name}: {error}")
        if failed:
            raise ToxiproxyError("not healed: " + "; ".join(failed))

    # ------------------------------------------------------------ helpers

    def _check_latency(self, proxy: str, name: str, toxic: Toxic) -> None:
        if isinstance(toxic, Latency):
            self.check_room_for(proxy, toxic.delay_ms, instead_of=name)

    def _expect_toxic(self, proxy: str, asked: ToxicState) -> ToxicState:
        there = self.proxy(proxy).toxic(asked.name)
        if there is None or not there.is_as_asked(asked):
            raise ToxiproxyMismatch(f"{proxy}: asked for {asked}, found {there}")
        return there

    def _expect(self, name: str, what: str, holds: Callable[[ProxyState], bool]) -> ProxyState:
        state = self.proxy(name)
        if not holds(state):
            raise ToxiproxyMismatch(f"{name} should be {what}, but Toxiproxy shows {state}")
        return state

    def _call(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        """The answer's JSON, None for an empty one."""
        what = f"Toxiproxy at {self.address} ({method} {path})"
        try:
            with requests.Session() as session:
                session.trust_env = False  # never through a web proxy
                session.headers["Connection"] = "close"  # no idle connection that the server closes just before use
                url = f"http://{self.address}{path}"
                answer = session.request(method, url, json=body, timeout=self._timeout_s, allow_redirects=False)
        except requests.ConnectTimeout as error:
            raise ToxiproxyUnreachable(f"{what} took no connection within {self._timeout_s:g} s") from error
        except requests.Timeout as error:
            raise ToxiproxyHung(f"{what} did not answer within {self._timeout_s:g} s") from error
        except requests.ConnectionError as error:
            raise _connection_error(what, error) from error
        except (requests.RequestException, ValueError) as error:
            raise ToxiproxyMismatch(f"{what} gave no HTTP answer: {error}") from error
        return _read_answer(what, answer)


def _read_answer(what: str, answer: requests.Response) -> Any:
    try:
        document = answer.json() if answer.content else None
    except ValueError:
        document = None
    if answer.status_code == 503:  # its own limit of 25 s for a request
        raise ToxiproxyHung(f"{what} gave up on it (status 503)")
    if answer.status_code >= 300:
        message = document.get("error") if isinstance(document, dict) else answer.text[:200]
        raise ToxiproxyRefused(f"{what} refused: {message} (status {answer.status_code})", answer.status_code)
    if document is None and answer.status_code != 204:
        raise ToxiproxyMismatch(f"{what} gave no JSON: {answer.text[:100]!r}")
    return document


def _connection_error(what: str, error: requests.ConnectionError) -> ToxiproxyError:
    """Refused at the door, or gone in the middle: then the outcome is unknown."""
    if getattr(error.args[0] if error.args else None, "reason", None) is not None:  # urllib3 gave up connecting
        return ToxiproxyUnreachable(f"{what} is not there: {_root_cause(error)}")
    return ToxiproxyHung(f"{what} broke the connection without an answer: {_root_cause(error)}")


def _root_cause(error: BaseException) -> str:
    cause: BaseException = error
    while (deeper := cause.__cause__ or cause.__context__) is not None:
        cause = deeper
    return str(cause) or type(cause).__name__


def _path(proxy: str) -> str:
    return f"/proxies/{quote(proxy, safe='')}"


def _checked_toxicity(toxicity: float) -> float:
    if not 0.0 <= toxicity <= 1.0:
        raise ConfigurationError(f"toxicity {toxicity:g} is not within 0 and 1")
    return toxicity
