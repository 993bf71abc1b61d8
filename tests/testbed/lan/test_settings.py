"""What can be said of the hosts of a run, and what is refused before anything starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from testbed.lan.commands import deal
from testbed.lan.settings import read_settings
from testbed.planning import RunRequest, prepare
from training.errors import ConfigurationError

MEMBERS = ["shard-1", "shard-2", "shard-3"]


def test_addresses_and_a_file_say_the_same(tmp_path: Path) -> None:
    file = tmp_path / "hosts"
    file.write_text("# mine\nshard-1=a:70\n\n10.0.0.2:71  # says itself who it is\n")
    assert read_settings(str(file), "t") == read_settings("shard-1=a:70, 10.0.0.2:71", "t")


@pytest.mark.parametrize(
    ("attach", "token", "why"),
    [
        ("shard-1=a:70", "", "GRADSTORM_TOKEN"),
        ("", "t", "cannot read"),
        ("nowhere", "t", "cannot read"),
        (",", "t", "cannot read"),
        ("shard-1=a", "t", "neither ROLE=HOST:PORT"),
        ("=a:70", "t", "neither ROLE=HOST:PORT"),
        ("a:0", "t", "neither ROLE=HOST:PORT"),
        ("a:70000", "t", "neither ROLE=HOST:PORT"),
        ("shard-1=a:70,shard-1=b:70", "t", "role shard-1 twice"),
        ("shard-1=a:70,shard-2=a:70", "t", "address a:70 twice"),
    ],
)
def test_what_is_no_list_of_hosts_is_refused(attach: str, token: str, why: str) -> None:
    with pytest.raises(ConfigurationError, match=why):
        read_settings(attach, token)


@pytest.mark.parametrize(
    ("attach", "why"),
    [
        ("shard-1=a:1,shard-2=a:2", "no address for shard-3"),
        ("shard-1=a:1,shard-2=a:2,shard-3=a:3,shard-4=a:4", "names shard-4"),
        ("worker-1=a:1,a:2,a:3,a:4", "names worker-1"),
    ],
)
def test_hosts_that_do_not_fit_the_run_are_refused(attach: str, why: str) -> None:
    with pytest.raises(ConfigurationError, match=why):
        prepare(RunRequest("shards-clean", engine="lan", lan=read_settings(attach, "t")))


def test_the_engine_and_its_hosts_go_together() -> None:
    for request in (
        RunRequest("shards-clean", engine="lan"),
        RunRequest("shards-clean", engine="sim", lan=read_settings("a:1,a:2,a:3", "t")),
    ):
        with pytest.raises(ConfigurationError, match="go together"):
            prepare(request)


def test_a_fault_that_the_engine_cannot_do_is_refused_by_name() -> None:
    with pytest.raises(ConfigurationError, match="engine lan can do partition only through Toxiproxy"):
        prepare(RunRequest("partition-heal", engine="lan", lan=read_settings("a:1,a:2,a:3,a:4", "t")))


def test_members_are_dealt_to_the_hosts_in_turn_each_with_two_ports() -> None:
    assert [(one.role, one.address) for one in deal(MEMBERS, ["a", "b"], 7070)] == [
        ("shard-1", "a:7070"),
        ("shard-2", "b:7070"),
        ("shard-3", "a:7072"),
    ]


@pytest.mark.parametrize(
    ("hosts", "port"),
    [
        ([], 7070),
        ([""], 7070),
        (["::1"], 7070),
        (["a\nb"], 7070),
        (["a b"], 7070),
        (["a", "a"], 7070),
        (["a"], 65533),
        (["a"], 0),
    ],
)
def test_hosts_that_cannot_be_are_refused(hosts: list[str], port: int) -> None:
    with pytest.raises(ConfigurationError):
        deal(MEMBERS, hosts, port)
