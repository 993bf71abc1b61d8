"""What `inspect` shows is read as it is meant."""

from __future__ import annotations

from typing import Any

import pytest

from testbed.containers.container import Attachment, read_container
from testbed.containers.labels import Ownership

WHOSE = Ownership("ann@here", "r1", 1000)


def document(status: str, **state: Any) -> dict[str, Any]:
    return {
        "Name": "/gradstorm-r1-worker-1",
        "Id": "0123456789abcdef",
        "State": {"Status": status, "ExitCode": 0, "OOMKilled": False, "Pid": 7, **state},
        "Config": {"Labels": WHOSE.labels("worker-1", 3)},
        "NetworkSettings": {
            "Networks": {"links": {"Aliases": ["worker-1", "0123456789ab"], "IPAddress": "172.18.0.2"}},
            "Ports": {"8474/tcp": [{"HostIp": "127.0.0.1", "HostPort": "32768"}], "9/tcp": None},
        },
    }


def test_a_running_one() -> None:
    state = read_container(document("running", Health={"Status": "starting"}))
    assert (state.name, state.role, state.launch, state.whose) == ("gradstorm-r1-worker-1", "worker-1", 3, WHOSE)
    assert (state.alive, state.exit_code, state.health, state.how_it_ended()) == (True, None, "starting", "")
    assert state.attachments == (Attachment("links", ("worker-1",), "172.18.0.2"),)
    assert (state.address_on("links"), state.address_on("other")) == ("172.18.0.2", "")
    assert state.published == {8474: "127.0.0.1:32768"}


@pytest.mark.parametrize(
    ("state", "said"),
    [
        ({"ExitCode": 137}, "exit code 137"),
        ({"ExitCode": 137, "OOMKilled": True}, "exit code 137: killed by the kernel for want of memory"),
        ({"ExitCode": 127, "Error": "no such file"}, "exit code 127: no such file"),
    ],
)
def test_how_it_ended(state: dict[str, Any], said: str) -> None:
    ended = read_container(document("exited", **state))
    assert not ended.alive
    assert ended.how_it_ended().startswith(said)


def test_somebody_elses() -> None:
    foreign = document("running")
    foreign["Config"]["Labels"] = None
    assert read_container(foreign).whose is None
