"""Links between switchboards over real gRPC connections: handshake, refusal, fencing, breaks and returns."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Coroutine
from typing import Any

import grpc
import numpy as np
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from services.codec import encode
from services.events import Heard, Linked, Received, Unlinked
from services.frames import Hello
from services.messages import Applied, Member, Part, Regroup
from services.shell import loop
from services.shell.channel import LINK_METHOD, call_metadata, new_channel
from services.shell.options import TransportOptions
from services.shell.switchboard import dials
from tests.services.shell.parties import FAST, Party, Relay, until
from training.errors import ConfigurationError

APPLIED = Applied(1, 2, "a", "b")


def run(body: Coroutine[Any, Any, None]) -> None:
    loop.run(asyncio.wait_for(body, 60.0))


async def linked_pair(**changes: Any) -> tuple[Party, Party]:
    """A coordinator and worker-1, linked."""
    coordinator = await Party("coordinator").start()
    worker = await Party("worker-1", **changes).start()
    worker.board.directory({"coordinator": coordinator.address})
    await until(lambda: worker.of(Linked) and coordinator.of(Linked))
    return coordinator, worker


def test_who_dials_whom() -> None:
    roles = ("coordinator", "server", "verifier", "worker-1", "worker-2", "driver")
    assert {(source, target) for source in roles for target in roles if source != target and dials(source, target)} == {
        ("worker-1", "coordinator"), ("worker-2", "coordinator"), ("server", "coordinator"),
        ("worker-1", "server"), ("worker-2", "server"), ("worker-1", "worker-2"), ("worker-2", "worker-1"),
        ("worker-1", "verifier"), ("worker-2", "verifier"), ("coordinator", "verifier"), ("server", "verifier"),
        ("driver", "verifier"),
    }  # fmt: skip


@pytest.mark.parametrize("role", ["coordinator", "server", "verifier", "driver"])
def test_nobody_is_let_in_whom_we_dial_and_who_never_dials_us(role: str) -> None:
    """Or whoever has the token could be a worker's coordinator."""

    async def body() -> None:
        worker = await Party("worker-1").start()
        assert worker.board.why_not(Hello(role, 1, 1, "worker-1")) == f"{role} never dials worker-1"
        assert worker.board.why_not(Hello("worker-2", 1, 1, "worker-1")) == ""
        await worker.stop()

    run(body())


def test_messages_go_both_ways_with_the_incarnation() -> None:
    async def body() -> None:
        coordinator, worker = await linked_pair()
        assert coordinator.of(Linked) == [Linked("worker-1", 0)]
        assert worker.of(Linked) == [Linked("coordinator", 1)]
        worker.board.identify(5)
        worker.board.send("coordinator", APPLIED)
        coordinator.board.send("worker-1", APPLIED)
        await until(lambda: worker.of(Received) and coordinator.of(Received))
        assert coordinator.of(Received) == [Received("worker-1", 5, APPLIED)]
        assert coordinator.of(Linked) == [Linked("worker-1", 0), Linked("worker-1", 5)]
        assert worker.of(Received) == [Received("coordinator", 1, APPLIED)]
        await until(lambda: worker.of(Heard) and Heard("worker-1", 5) in coordinator.events)
        await worker.stop()
        await coordinator.stop()

    run(body())


@pytest.mark.parametrize("first", ["coordinator", "worker-1"])
def test_the_last_message_before_the_end_arrives(first: str) -> None:
    async def body() -> None:
        for _ in range(20):
            pair = await linked_pair()
            leaving, staying = pair if first == "coordinator" else pair[::-1]
            for _ in range(5):
                leaving.board.send(staying.options.role, APPLIED)
            await leaving.stop()
            await until(lambda: staying.of(Unlinked))  # noqa: B023 - used at once
            assert len(staying.of(Received)) == 5
            await staying.stop()

    run(body())


@pytest.mark.parametrize(
    ("changes", "why"),
    [({"token": "guess"}, "wrong token"), ({"run_id": "run-2"}, "another run")],
)
def test_a_stranger_is_refused_and_logged(changes: dict[str, Any], why: str) -> None:
    async def body() -> None:
        coordinator = await Party("coordinator").start()
        stranger = await Party("worker-1", **changes).start()
        stranger.board.directory({"coordinator": coordinator.address})
        await until(lambda: coordinator.logged("stranger refused") and stranger.logged("cannot link"))
        assert coordinator.logged("stranger refused")[0]["why"] == why
        assert why in stranger.logged("cannot link")[0]["why"]
        assert "secret" not in str(coordinator.entries)
        assert coordinator.events == []
        assert stranger.events == []
        await stranger.stop()
        await coordinator.stop()

    run(body())


async def refusal(coordinator: Party, first: bytes, metadata: Any) -> tuple[grpc.StatusCode, str]:
    """What a hand-made caller gets that sends `first`."""
    async with grpc.aio.insecure_channel(coordinator.address) as channel:
        call: Any = channel.stream_stream(LINK_METHOD)(metadata=metadata)
        await call.initial_metadata()
        if not call.done():
            await call.write(first)
        return await call.code(), str(await call.details())


def test_without_token_or_with_nonsense_nobody_comes_in() -> None:
    async def body() -> None:
        coordinator = await Party("coordinator").start()
        good = call_metadata("run-1", "secret")
        hello = encode(Hello("worker-1", 1, 0, "coordinator"))
        assert await refusal(coordinator, hello, ()) == (grpc.StatusCode.UNAUTHENTICATED, "no token")
        for first, what in (
            (b"\xff\xff\xff", "no frame"),
            (b"\x80\x04\x95\x00pickle", ""),
            (encode(APPLIED), "Applied before Hello"),
            (encode(Hello("worker-1", 1, 0, "worker-2")), "this is coordinator, not worker-2"),
            (encode(Hello("coordinator", 1, 0, "coordinator")), "cannot call"),
            (encode(Hello("", 1, 0, "coordinator")), "nobody"),
        ):
            code, details = await refusal(coordinator, first, good)
            assert code == grpc.StatusCode.PERMISSION_DENIED
            assert what in details
        assert coordinator.events == []
        await coordinator.stop()

    run(body())


def test_a_frame_beyond_the_limit_is_refused_before_it_is_parsed() -> None:
    async def body() -> None:
        coordinator = await Party("coordinator").start()
        tokened = call_metadata("run-1", "secret")
        code, _ = await refusal(coordinator, bytes(FAST.frame_bytes_max + 100_000), tokened)
        assert code == grpc.StatusCode.RESOURCE_EXHAUSTED
        assert coordinator.logged("caller refused")
        await coordinator.stop()

    run(body())


@pytest.mark.alone
def test_kind_17_somebody_else_at_the_old_address_is_refused_and_the_new_one_found() -> None:
    async def body() -> None:
        wrong = await Party("worker-2").start()
        worker = await Party("worker-1").start()
        worker.board.directory({"coordinator": wrong.address})
        await until(lambda: worker.logged("cannot link"))
        assert "this is worker-2, not coordinator" in worker.logged("cannot link")[0]["why"]
        coordinator = await Party("coordinator").start()
        began = time.monotonic()
        worker.board.directory({"coordinator": coordinator.address})
        await until(lambda: worker.of(Linked))
        assert time.monotonic() - began < 1.0
        for party in (worker, coordinator, wrong):
            await party.stop()

    run(body())


@pytest.mark.alone
def test_a_broken_connection_is_back_within_150_ms_with_the_same_incarnation() -> None:
    async def body() -> None:
        coordinator = await Party("coordinator").start()
        relay = await Relay(coordinator.address).start()
        worker = await Party("worker-1").start()
        worker.board.directory({"coordinator": relay.address})
        await until(lambda: worker.of(Linked))
        worker.board.identify(5)
        await until(lambda: Linked("worker-1", 5) in coordinator.events)
        took_ms = []
        for _ in range(5):
            count = len(coordinator.of(Linked))
            began = time.monotonic()
            relay.reset()
            await until(lambda: len(coordinator.of(Linked)) > count)  # noqa: B023 - used at once
            took_ms.append((time.monotonic() - began) * 1000.0)
            await asyncio.sleep(0.05)
        assert set(coordinator.of(Unlinked)) == {Unlinked("worker-1", 5)}
        assert set(coordinator.of(Linked)[1:]) == {Linked("worker-1", 5)}
        assert min(took_ms) < 150.0, took_ms  # the others say how busy the machine is
        await worker.stop()
        await coordinator.stop()
        await relay.stop()

    run(body())


@pytest.mark.alone
def test_a_partition_heals_soon_after_the_network_does() -> None:
    async def body() -> None:
        coordinator = await Party("coordinator").start()
        relay = await Relay(coordinator.address).start()
        worker = await Party("worker-1").start()
        worker.board.directory({"coordinator": relay.address})
        await until(lambda: worker.of(Linked))
        relay.refusing = True
        relay.reset()
        await until(lambda: worker.of(Unlinked) and coordinator.of(Unlinked))
        await asyncio.sleep(1.5)
        began = time.monotonic()
        relay.refusing = False
        await until(lambda: len(worker.of(Linked)) == 2)
        assert time.monotonic() - began < 1.0
        await worker.stop()
        await coordinator.stop()
        await relay.stop()

    run(body())


def test_cut_closes_what_claims_the_incarnation_after_the_last_word_and_nothing_else() -> None:
    async def body() -> None:
        coordinator, worker = await linked_pair()
        other = await Party("worker-2").start()
        other.board.directory({"coordinator": coordinator.address})
        worker.board.identify(5)
        await until(lambda: Linked("worker-1", 5) in coordinator.events and Linked("worker-2", 0) in coordinator.events)
        coordinator.board.cut("worker-1", 4)
        coordinator.board.send("worker-1", APPLIED)
        coordinator.board.cut("worker-1", 5)
        await until(lambda: worker.of(Unlinked) and coordinator.of(Unlinked))
        assert [event.message for event in worker.of(Received)] == [APPLIED]
        await until(lambda: len(worker.of(Linked)) == 2)  # it may call again, and is told what it is then
        await until(lambda: coordinator.events.count(Linked("worker-1", 5)) == 2)
        assert other.of(Unlinked) == []
        for party in (worker, other, coordinator):
            await party.stop()

    run(body())


def test_a_newer_launch_replaces_an_older_one_which_is_refused_from_then_on() -> None:
    async def body() -> None:
        coordinator, old = await linked_pair()
        new = await Party("worker-1", launch=2).start()
        new.board.directory({"coordinator": coordinator.address})
        await until(lambda: new.of(Linked) and old.of(Unlinked))
        await until(lambda: old.logged("cannot link"))
        assert "launch 1 of worker-1 was replaced by launch 2" in old.logged("cannot link")[-1]["why"]
        coordinator.board.send("worker-1", APPLIED)
        await until(lambda: new.of(Received))
        assert old.of(Received) == []
        for party in (old, new, coordinator):
            await party.stop()

    run(body())


def test_workers_dial_each_other_for_what_they_send_and_the_first_message_waits() -> None:
    async def body() -> None:
        one, two = await Party("worker-1").start(), await Party("worker-2").start()
        one.board.send("worker-2", APPLIED)  # nobody knows yet where that is
        regroup = Regroup(1, (Member(1, 1, one.address), Member(2, 2, two.address)))
        coordinator = await Party("coordinator").start()
        for party in (one, two):
            party.board.directory({"coordinator": coordinator.address})
        await until(lambda: len(coordinator.of(Linked)) == 2)
        coordinator.board.send("worker-1", regroup)
        coordinator.board.send("worker-2", regroup)
        await until(lambda: len(two.of(Received)) == 2)
        two.board.send("worker-1", APPLIED)
        await until(lambda: len(one.of(Received)) == 2)
        assert Received("worker-1", 0, APPLIED) in two.events
        assert [event.peer for party in (one, two) for event in party.of(Linked)] == ["coordinator"] * 2
        for party in (one, two, coordinator):
            await party.stop()

    run(body())


def test_a_message_outlasts_the_3_s_for_which_a_proxy_is_deaf_when_it_dials_a_dead_address() -> None:
    async def body() -> None:
        one, two = await Party("worker-1").start(), await Party("worker-2").start()
        with socket.create_server(("127.0.0.1", 0)) as deaf:  # takes connections and never says a word
            one.board.directory({"worker-2": f"127.0.0.1:{deaf.getsockname()[1]}"})
            one.board.send("worker-2", APPLIED)
            await asyncio.sleep(3.2)
            one.board.directory({"worker-2": two.address})
            await until(lambda: two.of(Received))
        await one.stop()
        await two.stop()

    run(body())


def test_a_reply_uses_the_callers_link_when_nobody_knows_where_it_listens() -> None:
    async def body() -> None:
        one, two = await Party("worker-1").start(), await Party("worker-2").start()
        one.board.directory({"worker-2": two.address})
        one.board.send("worker-2", APPLIED)
        await until(lambda: two.of(Received))
        two.board.send("worker-1", APPLIED)
        await until(lambda: one.of(Received))
        await one.stop()
        await two.stop()

    run(body())


def test_kind_15_8_7_megabytes_in_parts_and_in_one_message_both_ways_at_once() -> None:
    async def body() -> None:
        one, two = await Party("worker-1").start(), await Party("worker-2").start()
        addresses = {"worker-1": one.address, "worker-2": two.address}
        value = np.random.default_rng(2).normal(size=1_087_500)  # 8.7 MB
        chunk = 131_072
        bounds = [(start, min(start + chunk, value.size)) for start in range(0, value.size, chunk)]
        for party, peer in ((one, "worker-2"), (two, "worker-1")):
            party.board.directory({role: address for role, address in addresses.items() if role == peer})
            party.board.send(peer, Part(1, 1, 0, "lap", 0, 1, 0, value.size, (1,), value))
            for index, (start, stop) in enumerate(bounds):
                data = value[start:stop]
                party.board.send(peer, Part(1, 1, 0, "lap", index, len(bounds), start, value.size, (1,), data))
        await until(lambda: all(len(party.of(Received)) == len(bounds) + 1 for party in (one, two)), 30.0)
        for party in (one, two):
            whole, *parts = (event.message for event in party.of(Received))
            assert whole.data.tobytes() == value.tobytes()
            assert b"".join(part.data.tobytes() for part in parts) == value.tobytes()
        await one.stop()
        await two.stop()

    run(body())


def test_both_directions_full_over_grpc_and_both_arrive() -> None:
    async def body() -> None:
        coordinator, worker = await linked_pair()
        data = np.zeros(131_072)
        for index in range(60):
            for party, peer in ((worker, "coordinator"), (coordinator, "worker-1")):
                party.board.send(peer, Part(1, 1, 0, "lap", index, 60, 0, data.size, (1,), data))
        await until(lambda: all(len(party.of(Received)) == 60 for party in (worker, coordinator)), 30.0)
        await worker.stop()
        await coordinator.stop()

    run(body())


def test_a_blackholed_link_is_found_by_the_ping_timeout() -> None:
    async def body() -> None:
        transport = TransportOptions(ping_ms=500.0)
        coordinator = await Party("coordinator", transport=transport).start()
        relay = await Relay(coordinator.address).start()
        worker = await Party("worker-1", transport=transport).start()
        worker.board.directory({"coordinator": relay.address})
        await until(lambda: worker.of(Linked))
        relay.stall()
        await until(lambda: worker.of(Unlinked), 20.0)
        relay.resume()
        await until(lambda: len(worker.of(Linked)) == 2, 20.0)
        await worker.stop()
        await coordinator.stop()
        await relay.stop()

    run(body())


def test_health_is_served_and_turns_serving_when_the_role_is_open() -> None:
    async def body() -> None:
        party = Party("worker-1")
        await party.server.start()
        async with new_channel(party.address, party.options) as channel:
            stub = health_pb2_grpc.HealthStub(channel)
            answer = await stub.Check(health_pb2.HealthCheckRequest())
            assert answer.status == health_pb2.HealthCheckResponse.NOT_SERVING
            await party.server.open()
            answer = await stub.Check(health_pb2.HealthCheckRequest(service="gradstorm.v1.LinkService"))
            assert answer.status == health_pb2.HealthCheckResponse.SERVING
        await party.stop()

    run(body())


def test_kind_19_every_bind_to_port_0_gets_a_port_of_its_own_and_a_busy_port_is_an_error() -> None:
    async def body() -> None:
        hog = socket.socket()
        hog.bind(("127.0.0.1", 0))
        hog.listen()
        parties = [await Party(f"worker-{number}").start() for number in range(1, 21)]
        assert len({party.address for party in parties} | {f"127.0.0.1:{hog.getsockname()[1]}"}) == 21
        busy = f"127.0.0.1:{hog.getsockname()[1]}"
        with pytest.raises(ConfigurationError, match="cannot listen"):
            Party("worker-99", listen=busy)
        with pytest.raises(ConfigurationError, match="cannot listen"):
            Party("worker-99", listen=parties[0].address)
        for party in parties:
            await party.stop()
        hog.close()

    run(body())


@pytest.mark.alone
def test_closing_ends_although_peers_keep_calling() -> None:
    async def body() -> None:
        coordinator, worker = await linked_pair()
        callers = [await Party(f"worker-{number}").start() for number in range(2, 8)]
        for caller in callers:
            caller.board.directory({"coordinator": coordinator.address})
        await until(lambda: len(coordinator.of(Linked)) == 7)
        began = time.monotonic()
        await coordinator.board.close()
        assert time.monotonic() - began < 2.0
        assert coordinator.board.links() == []
        await until(lambda: any("coordinator is done" in entry["why"] for entry in callers[0].logged("cannot link")))
        for party in (*callers, worker, coordinator):
            await party.stop()

    run(body())
