"""A host and its driver over gRPC: who is attached, who is refused and why, and what is left of a lost driver."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import structlog

import testbed
from services.identity import Claim, cut_of, model_sha256
from services.shell.attach_client import AttachedHost, AttachError
from services.shell.attach_frames import AttachHello, FilePart, StartLaunch
from services.shell.rooted_disk import RootedDisk
from testbed.cli import run_command
from testbed.engines.base import EngineError
from testbed.environment import version
from testbed.lan.files import FileParts, changed_files
from testbed.lan.host import HostGivenUp, HostSettings, host
from testbed.lan.settings import LanSettings
from testbed.planning import RunRequest, prepare
from testbed.results import RunResult

CONFIG = prepare(RunRequest("shards-clean")).plan.config
OTHER = prepare(RunRequest("shards-clean", seed=9)).plan.config.to_json()
MODEL, CUT = model_sha256(CONFIG), cut_of(CONFIG, "shard-2")


class Waiting:
    """One host that waits in this process."""

    def __init__(self, settings: HostSettings) -> None:
        self.lines: list[str] = []
        self.over = asyncio.get_running_loop().create_task(host(settings, structlog.get_logger(), self.lines.append))

    async def address(self) -> str:
        while not self.lines:
            await asyncio.sleep(0.01)
        return self.lines[0].split(" ")[3]


@contextlib.asynccontextmanager
async def waiting(home: Path, *, token: str = "secret", **claim: str) -> AsyncIterator[Waiting]:
    told = {"role": "shard-2", "cut": CUT, "model_sha256": MODEL, "run_id": "run-1", "version": version(), **claim}
    one = Waiting(HostSettings(Claim(**told), token, home=home))
    try:
        yield one
    finally:
        one.over.cancel()
        await asyncio.gather(one.over, return_exceptions=True)


@contextlib.asynccontextmanager
async def driver(address: str, run_id: str = "run-1", token: str = "secret") -> AsyncIterator[AttachedHost]:
    one = AttachedHost(address, run_id, token, lambda _: None)
    try:
        yield one
    finally:
        await one.close()


def hello(**changed: object) -> AttachHello:
    fields = {
        "role": "shard-2", "cut": CUT, "model_sha256": MODEL, "config_json": CONFIG.to_json(), "version": version(),
        "evidence": True, "generation": 0, "plants": (), "resume_run_id": "",
    }  # fmt: skip
    return AttachHello(**{**fields, **changed})  # type: ignore[arg-type]


async def introduce(attached: AttachedHost, said: AttachHello) -> None:
    await attached.dial()
    await attached.attach(said)


async def refusal(home: Path, run_id: str = "run-1", token: str = "secret", **changed: object) -> str:
    async with waiting(home) as one, driver(await one.address(), run_id, token) as attached:
        with pytest.raises(AttachError) as error:
            await introduce(attached, hello(**changed))
        assert not one.over.done(), "a refused driver must not end the waiting"
        return str(error.value)


def test_a_driver_attaches_and_lets_go(tmp_path: Path) -> None:
    async def scene() -> None:
        async with waiting(tmp_path) as one:
            async with driver(await one.address()) as attached:
                claim = await attached.dial()
                assert (claim.role, claim.cut) == ("shard-2", CUT)
                await attached.attach(hello())
            await asyncio.wait_for(one.over, 10)

    asyncio.run(scene())


@pytest.mark.parametrize(
    ("run_id", "token", "changed", "why"),
    [
        ("run-1", "other", {}, "wrong token"),
        ("run-2", "secret", {}, "another run"),
        ("run-1", "secret", {"model_sha256": "ab" * 32}, "another model"),
        ("run-1", "secret", {"cut": "3:5/6"}, "another cut"),
        ("run-1", "secret", {"role": "shard-3"}, "another role"),
        ("run-1", "secret", {"version": "0.0.0"}, "another version"),
        ("run-1", "secret", {"config_json": "{}"}, "cannot be read"),
        ("run-1", "secret", {"config_json": OTHER}, "announced"),
    ],
)
def test_who_is_refused_and_why(run_id: str, token: str, changed: dict[str, object], why: str, tmp_path: Path) -> None:
    assert why in asyncio.run(refusal(tmp_path, run_id, token, **changed))


@pytest.mark.parametrize("role", ["coordinator", "server", "verifier"])
@pytest.mark.parametrize(
    ("run_id", "token", "changed", "why"),
    [
        ("run-1", "other", {}, "wrong token"),
        ("run-2", "secret", {}, "another run"),
        ("run-1", "secret", {"model_sha256": "ab" * 32}, "another model"),
        ("run-1", "secret", {"role": "shard-2"}, "another role"),
    ],
)
def test_single_roles_refuse_alike(
    role: str, run_id: str, token: str, changed: dict[str, object], why: str, tmp_path: Path
) -> None:
    async def scene() -> str:
        said = {"role": role, "cut": "", **changed}
        async with waiting(tmp_path, role=role, cut="") as one, driver(await one.address(), run_id, token) as attached:
            with pytest.raises(AttachError) as error:
                await introduce(attached, hello(**said))
            return str(error.value)

    assert why in asyncio.run(scene())


@pytest.mark.local
@pytest.mark.slow
@pytest.mark.parametrize(
    ("scenario", "strategy", "killed"),
    [("shards-kill-coordinator-tell", "shards", "coordinator"), ("kill-server-gathering", "ps", "server")],
)
def test_single_roles_wait_on_hosts_too(scenario: str, strategy: str, killed: str, tmp_path: Path) -> None:
    """Every role of the run on a host of its own; one of the single ones dies and is started again there."""
    expected = testbed.run(scenario, "sim", strategy=strategy, out=tmp_path / "sim").document
    config = prepare(RunRequest(scenario, strategy=strategy)).plan.config
    kind, server = ("shard", []) if strategy == "shards" else ("worker", ["server"])
    cast = ["coordinator", "verifier", *server, *(f"{kind}-{number}" for number in range(1, config.workers + 1))]
    claim = {"model_sha256": model_sha256(config), "cut": ""}

    async def scene() -> RunResult:
        async with contextlib.AsyncExitStack() as stack:
            hosts = [await stack.enter_async_context(waiting(tmp_path / role, role=role, **claim)) for role in cast]
            attach = tuple([(role, await one.address()) for role, one in zip(cast, hosts, strict=True)])
            lan = LanSettings(attach, "secret", "127.0.0.1", "run-1")
            run = functools.partial(testbed.run, scenario, "lan", strategy=strategy, lan=lan, out=tmp_path / "run")
            result = await asyncio.to_thread(run)
            await asyncio.wait_for(asyncio.gather(*(one.over for one in hosts)), 20)
            return result

    document = asyncio.run(scene()).document
    assert (document["verdict"], document["reasons"]) == ("pass", [])
    assert document["params_sha256"] == expected["params_sha256"]
    (fault,) = document["faults"]
    assert (fault["target"], fault["witness"]["exit_code"]) == (killed, -9)
    for role in cast:
        assert list((tmp_path / role / "run-1" / role / "logs").iterdir()), f"{role} did not run on its host"


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["coordinator", "--listen", "127.0.0.1:0"], "a host needs the token of the run: set GRADSTORM_TOKEN"),
        (["verifier", "2", "--listen", "127.0.0.1:0"], "only workers and shards have numbers"),
        (["shard", "2", "--listen", "127.0.0.1"], "--listen '127.0.0.1' is not HOST:PORT"),
        (["shard", "2", "--listen", "127.0.0.1:99999"], "is not HOST:PORT"),
        (["shard", "2", "--listen", "::1:7070"], "an IPv6 host stands in brackets"),
        (["shard", "2", "--listen", "127.0.0.1:0", "--cut", "2-4"], "--cut '2-4' is not FIRST:STOP/BLOCKS"),
        (["shard", "0", "--listen", "127.0.0.1:0"], "only workers and shards have numbers, from 1"),
    ],
)
def test_what_cannot_wait_says_why(
    arguments: list[str], why: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("GRADSTORM_TOKEN", raising=False)
    assert run_command(arguments) == 2
    assert why in capsys.readouterr().err


def test_a_second_driver_is_refused_while_the_first_is_there(tmp_path: Path) -> None:
    async def scene() -> str:
        async with waiting(tmp_path) as one, driver(await one.address()) as first:
            await first.dial()
            await first.attach(hello())
            async with driver(await one.address()) as second:
                with pytest.raises(AttachError) as error:
                    await second.dial()
                return str(error.value)

    assert "attached already, to run-1" in asyncio.run(scene())


def test_files_of_an_earlier_time_are_not_taken_over(tmp_path: Path) -> None:
    (tmp_path / "run-1" / "shard-2").mkdir(parents=True)
    assert "from an earlier time" in asyncio.run(refusal(tmp_path))


def test_nothing_runs_on_when_the_driver_is_lost(tmp_path: Path) -> None:
    async def scene() -> None:
        async with waiting(tmp_path) as one:
            attached = AttachedHost(await one.address(), "run-1", "secret", lambda _: None)
            await attached.dial()
            await attached.attach(hello())
            attached.send(StartLaunch(1, "127.0.0.1:1", 0))
            log = tmp_path / "run-1" / "shard-2" / "logs" / "shard-2.1.log"
            async with asyncio.timeout(20):
                while not (log.exists() and log.read_bytes()):
                    await asyncio.sleep(0.05)
            attached.why_lost = "as if this process had died"
            await attached.close()
            with pytest.raises(HostGivenUp, match="lost the driver"):
                await asyncio.wait_for(one.over, 20)  # it has killed and reaped the role by then

    asyncio.run(scene())


@pytest.mark.parametrize("names", [("shard-2", "shard-2"), ("shard-2", "shard")])
def test_two_hosts_cannot_claim_one_cut(names: tuple[str, str], tmp_path: Path) -> None:
    async def scene() -> str:
        homes = [tmp_path / f"home-{number}" for number in range(3)]
        async with (
            waiting(homes[0], role="shard-1", cut="") as one,
            waiting(homes[1], role=names[0], cut="") as two,
            waiting(homes[2], role=names[1], cut="") as three,
        ):
            addresses = [await each.address() for each in (one, two, three)]
            attach = (("", addresses[0]), ("", addresses[1]), ("shard-2", addresses[2]))
            lan = LanSettings(attach, "secret", "127.0.0.1", "run-1")
            with pytest.raises(EngineError) as error:
                await asyncio.to_thread(testbed.run, "shards-clean", "lan", steps=3, lan=lan, out=tmp_path / "run")
            return str(error.value)

    assert "both claim shard-2" in asyncio.run(scene())


def test_parts_of_files_stay_inside_and_in_order(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    (source / "deep").mkdir(parents=True)
    target.mkdir()
    (source / "deep" / "long").write_bytes(bytes(range(256)) * 9000)
    (source / "empty").write_bytes(b"")
    parts = FileParts(RootedDisk(str(target)))
    for path, _ in changed_files(source, {}):
        for part in FileParts.of(source, path):
            parts.take(part)
    assert (target / "deep" / "long").read_bytes() == (source / "deep" / "long").read_bytes()
    assert (target / "empty").read_bytes() == b""
    with pytest.raises(PermissionError):
        parts.take(FilePart("../out", 0, b"x"))
    with pytest.raises(ValueError, match="is next"):
        parts.take(FilePart("empty", 5, b"x"))
    assert changed_files(source, dict(changed_files(source, {}))) == []
