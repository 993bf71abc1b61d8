"""Kinds of bugs that people report, tried on the engine `containers` (the numbers are those of the list of kinds).

17  a relaunch at another address, its old one given to another worker: found again, and nobody taken for it
18  a driver that was killed, two runs at once (see also test_containers.py)
21  a stranger, a pickle on the wire, a service on every interface
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import testbed
from services.shell.options import TOKEN_VARIABLE
from testbed.containers.health_probe import ROLE_PORT
from testbed.engines.base import Silent
from tests.conformance.container_runs import (
    GONE_WITHIN_S,
    UP_WITHIN_S,
    connected,
    container_of,
    left_of,
    log_of,
    run_id_of,
    running,
    toxiproxy_of,
)
from tests.testbed.waiting import wait_until

if TYPE_CHECKING:
    from testbed.containers.docker_adapter import Docker

pytestmark = [pytest.mark.containers, pytest.mark.slow, pytest.mark.timeout(300)]
LINK = "worker-1>worker-2"


@pytest.fixture
def docker() -> Iterator[Docker]:
    with connected() as daemon:
        yield daemon


class Notes(Silent):
    def __init__(self) -> None:
        self.lines: list[str] = []

    def note(self, text: str) -> None:
        self.lines.append(text)


def test_kind_17_workers_come_back_at_other_addresses_one_at_anothers(tmp_path: Path) -> None:
    notes = Notes()
    result = testbed.run("relaunch-elsewhere", "containers", strategy="ring", out=tmp_path / "run", progress=notes)
    assert result.passed, (result.document["reasons"], result.document["aborted"])
    again = dict(re.findall(r"(worker-\d) is started again at (\S+)", "\n".join(notes.lines)))
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    first = {
        f"worker-{number}": 17 + number for number in range(1, config["workers"] + 1)
    }  # after verifier, coordinator
    last = {role: int(address.rpartition(".")[2]) for role, address in again.items()}
    assert set(last) == {"worker-2", "worker-3"}
    assert all(last[role] != first[role] for role in last), (first, last)
    assert set(last.values()) & set(first.values()), (first, last)


def test_kind_17_whoever_answers_in_anothers_name_is_refused(tmp_path: Path, docker: Docker) -> None:
    with running(tmp_path, "clean", "--steps", "400") as (driver, told):
        assert wait_until(lambda: '"linked"' in log_of(tmp_path, "worker-1"), UP_WITHIN_S), told.read_text()
        toxiproxy = toxiproxy_of(docker, tmp_path)
        assert toxiproxy is not None
        toxiproxy.retarget(LINK, f"worker-3:{ROLE_PORT}")
        assert wait_until(lambda: "this is worker-3, not worker-2" in log_of(tmp_path, "worker-1"), 20.0)
        toxiproxy.retarget(LINK, f"worker-2:{ROLE_PORT}")
        code = driver.wait(UP_WITHIN_S)
    assert code == 0, told.read_text()
    assert left_of(docker, run_id_of(tmp_path)) == []


def test_kind_18_two_runs_at_once_do_not_meet(tmp_path: Path, docker: Docker) -> None:
    def one(number: int) -> testbed.RunResult:
        return testbed.run("kill-at-reduce", "containers", strategy="ring", out=tmp_path / f"run-{number}")

    with ThreadPoolExecutor(2) as both:
        results = list(both.map(one, (1, 2)))
    assert [result.document["verdict"] for result in results] == ["pass", "pass"]
    assert len({result.document["params_sha256"] for result in results}) == 1
    assert [left_of(docker, result.document["run_id"]) for result in results] == [[], []]


# Run inside worker-2's container, as its user, without the run's token.
STRANGER = """
import asyncio, pickle, socket, sys
import grpc
from services.shell.channel import LINK_METHOD, call_metadata

async def called(token):
    async with grpc.aio.insecure_channel("coordinator:PORT") as channel:
        call = channel.stream_stream(LINK_METHOD)(metadata=call_metadata("RUN", token))
        print((await call.code()).name, await call.details())

asyncio.run(called("not the token"))
with socket.create_connection(("coordinator", PORT), 5) as raw:
    raw.sendall(pickle.dumps({"weights": [1.0]}) * 20)
    raw.settimeout(10)
    while raw.recv(4096):
        pass
    print("closed")
listening = [line.split()[1] for line in open("/proc/net/tcp") if line.split()[3] == "0A"]
listening += [line.split()[1] for line in open("/proc/net/tcp6") if line.split()[3] == "0A"]
print(*(address.rpartition(":")[0] for address in listening))
"""


def test_kind_21_strangers_and_pickles_are_refused_and_nobody_listens_everywhere(
    tmp_path: Path, docker: Docker
) -> None:
    with running(tmp_path, "clean", "--steps", "600") as (driver, told):
        assert wait_until(lambda: '"linked"' in log_of(tmp_path, "worker-1"), UP_WITHIN_S), told.read_text()
        inside = container_of(docker, tmp_path, "worker-2")
        assert inside is not None
        script = STRANGER.replace("PORT", str(ROLE_PORT)).replace("RUN", run_id_of(tmp_path))
        said = docker.execute(inside.id, ("env", "-u", TOKEN_VARIABLE, "python3", "-c", script)).splitlines()
        code = driver.wait(UP_WITHIN_S + GONE_WITHIN_S)
    assert code == 0, told.read_text()
    assert said[0].startswith("UNAUTHENTICATED"), said
    assert said[1] == "closed", said
    own = said[2].split()
    assert own, said
    assert not [address for address in own if set(address) == {"0"}], said
    assert "stranger refused" in log_of(tmp_path, "coordinator")
