"""A real Toxiproxy with a real server behind a proxy, where a binary is found; what needs one is skipped elsewhere."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from testbed.containers.toxiproxy import Toxiproxy
from testbed.containers.toxiproxy_process import BINARY_NAME, BINARY_VARIABLE, ToxiproxyProcess, find_toxiproxy
from testbed.containers.toxiproxy_state import ProxyState
from tests.testbed.containers.tcp import stamping_server


@pytest.fixture(scope="session")
def toxiproxy_process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ToxiproxyProcess]:
    """One server for all tests: each makes a proxy of its own."""
    binary = find_toxiproxy(os.environ)
    if binary is None:
        pytest.skip(f"no {BINARY_NAME} on PATH and {BINARY_VARIABLE} not set")
    with ToxiproxyProcess.start(binary, tmp_path_factory.mktemp("toxiproxy") / "log") as process:
        yield process


@pytest.fixture
def toxiproxy(toxiproxy_process: ToxiproxyProcess) -> Iterator[Toxiproxy]:
    client = Toxiproxy(toxiproxy_process.address)
    yield client
    for name in client.proxies():
        client.delete(name)


@pytest.fixture
def link(toxiproxy: Toxiproxy) -> Iterator[ProxyState]:
    """A proxy named "link" in front of a server that stamps."""
    with stamping_server() as address:
        yield toxiproxy.create("link", address)
