"""A link over a stream within one process: fragments, bounds, order, heartbeats, and that nothing blocks receiving."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import numpy as np
import pytest

from services.codec import encode
from services.frames import Fragment, Heartbeat, Hello, Identify
from services.messages import Applied, Conclude, DataPart, Message, Part
from services.shell.link import Link, Outgoing
from services.shell.options import TransportOptions
from services.shell.stream import StreamBroken
from tests.services.shell.pipes import pipe

SMALL = TransportOptions(frame_bytes_max=65_536, message_bytes_max=2**20, outbox_bytes_max=2**20, heartbeat_ms=20.0)


class Heard:
    """A link owner that keeps what it hears."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.beats = 0
        self.incarnations: list[int] = []

    def received(self, link: Link, message: Message) -> None:
        self.messages.append(message)

    def heard(self, link: Link) -> None:
        self.beats += 1

    def identified(self, link: Link) -> None:
        self.incarnations.append(link.incarnation)


class Pair:
    """Two linked ends, a and b."""

    def __init__(self, options: TransportOptions = SMALL, frames_max: int = 4) -> None:
        self.ends = pipe(frames_max)
        self.owners = (Heard(), Heard())
        names = ("a", "b")
        self.a, self.b = (
            Link(self.ends[k], Hello(names[1 - k], 1, 3, names[k]), k == 0, self.owners[k], options) for k in (0, 1)
        )
        self.runs = [asyncio.ensure_future(link.run()) for link in (self.a, self.b)]

    async def until(self, condition: Any) -> None:
        async with asyncio.timeout(10.0):
            while not condition():
                await asyncio.sleep(0.001)

    async def end(self) -> list[str]:
        for link in (self.a, self.b):
            link.close("test is over")
        return await asyncio.gather(*self.runs)


def run(body: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(body, 30.0))


def message_of(encoded_bytes: int) -> DataPart:
    """A message whose frame has exactly this many bytes."""
    size = encoded_bytes - 40
    while len(encode(DataPart(0, 1, bytes(size)))) < encoded_bytes:
        size += 1
    message = DataPart(0, 1, bytes(size))
    assert len(encode(message)) == encoded_bytes
    return message


@pytest.mark.parametrize("excess", [-1, 0, 1, 65_536, 500_000])
def test_kind_15_a_message_at_below_and_above_the_frame_limit_arrives(excess: int) -> None:
    async def body() -> None:
        pair = Pair()
        message = message_of(SMALL.frame_bytes_max + excess)
        pair.a.send(message)
        pair.a.send(Applied(1, 2, "", ""))
        await pair.until(lambda: len(pair.owners[1].messages) == 2)
        assert pair.owners[1].messages == [message, Applied(1, 2, "", "")]
        assert pair.ends[0].frame_bytes_max <= SMALL.frame_bytes_max
        await pair.end()

    run(body())


def test_kind_15_a_message_beyond_what_may_be_sent_is_refused_before_it_is_encoded() -> None:
    async def body() -> None:
        pair = Pair()
        outgoing = Outgoing(DataPart(0, 1, bytes(SMALL.message_bytes_max + 1)))
        pair.a.send(outgoing)
        assert "a DataPart of 1048833 bytes for b; 1048576 may be sent" in await asyncio.wait_for(pair.runs[0], 5.0)
        assert outgoing._data is None
        assert pair.owners[1].messages == []
        await pair.end()

    run(body())


def test_a_large_part_arrives_whole_in_fragments() -> None:
    async def body() -> None:
        pair = Pair()
        data = np.random.default_rng(1).normal(size=100_000)
        pair.a.send(Part(1, 2, 0, "lap", 0, 1, 0, data.size, (1,), data))
        await pair.until(lambda: pair.owners[1].messages)
        received = pair.owners[1].messages[0]
        assert isinstance(received, Part)
        assert received.data.tobytes() == data.tobytes()
        await pair.end()

    run(body())


def test_order_is_kept_and_writes_are_serialised() -> None:
    async def body() -> None:
        pair = Pair(frames_max=1)
        sent: list[Message] = []
        for step in range(300):
            message: Message = Conclude("x" * 70_000) if step % 10 == 3 else Applied(1, step, "", "")
            sent.append(message)
            pair.a.send(message)
            if step % 7 == 0:
                await asyncio.sleep(0)
            if pair.a._outbox_bytes > 500_000:
                await pair.until(lambda: pair.a._outbox_bytes == 0)
        await pair.until(lambda: len(pair.owners[1].messages) == len(sent))
        assert pair.owners[1].messages == sent
        await pair.end()

    run(body())


def test_both_directions_full_and_both_still_receive() -> None:
    async def body() -> None:
        pair = Pair(frames_max=1)
        for step in range(400):
            pair.a.send(DataPart(step, 1, bytes(2000)))
            pair.b.send(DataPart(step, 1, bytes(2000)))
        await pair.until(lambda: all(len(owner.messages) == 400 for owner in pair.owners))
        await pair.end()

    run(body())


def test_a_peer_that_does_not_read_is_cut_off_and_does_not_stop_us_from_hearing_it() -> None:
    async def body() -> None:
        ours, theirs = pipe(2)
        owner = Heard()
        link = Link(ours, Hello("b", 1, 0, "a"), True, owner, SMALL)
        end = asyncio.ensure_future(link.run())
        for step in range(20):
            link.send(DataPart(step, 1, bytes(40_000)))
        await theirs.write(encode(Applied(1, 7, "", "")))
        async with asyncio.timeout(5.0):
            while not owner.messages:
                await asyncio.sleep(0.001)
        for step in range(20):
            link.send(DataPart(step, 1, bytes(40_000)))
        assert "b does not read" in await asyncio.wait_for(end, 5.0)

    run(body())


def test_heartbeats_go_both_ways_and_overtake_what_waits() -> None:
    async def body() -> None:
        ours, theirs = pipe(1)
        link = Link(ours, Hello("b", 1, 0, "a"), True, Heard(), SMALL)
        end = asyncio.ensure_future(link.run())
        for step in range(15):
            link.send(DataPart(step, 1, bytes(60_000)))
        await asyncio.sleep(0.05)  # a heartbeat is due by now, and fifteen messages wait
        frames = [await theirs.read() for _ in range(6)]
        assert encode(Heartbeat()) in frames[2:]
        link.close("")
        await end

    run(body())


def test_identify_changes_the_incarnation_in_order() -> None:
    async def body() -> None:
        pair = Pair()
        pair.a.send(Identify(9))
        await pair.until(lambda: pair.owners[1].incarnations)
        assert pair.owners[1].incarnations == [9]
        assert pair.b.incarnation == 9
        await pair.end()

    run(body())


def test_finish_sends_what_waits_and_hears_nothing_more() -> None:
    async def body() -> None:
        pair = Pair(frames_max=1)
        for step in range(50):
            pair.a.send(Applied(1, step, "", ""))
        pair.a.finish("fenced")
        pair.b.send(Applied(1, 1000, "", ""))
        assert await asyncio.wait_for(pair.runs[0], 5.0) == "fenced"
        await pair.until(lambda: len(pair.owners[1].messages) == 50)
        assert pair.owners[0].messages == []
        await pair.end()

    run(body())


def test_finish_is_bounded_when_the_peer_does_not_read() -> None:
    async def body() -> None:
        ours, _theirs = pipe(1)
        link = Link(ours, Hello("b", 1, 0, "a"), True, Heard(), SMALL)
        end = asyncio.ensure_future(link.run())
        for step in range(10):
            link.send(Applied(1, step, "", ""))
        link.finish("fenced")
        assert await asyncio.wait_for(end, SMALL.drain_ms / 1000.0 + 1.0) == "fenced"

    run(body())


NONSENSE = {
    "no frame": [b"\xff" * 10],
    "a second hello": [encode(Hello("b", 1, 0, "a"))],
    "too large a message": [encode(Fragment(2**21, 0, b"x"))],
    "no size": [encode(Fragment(0, 0, b"x"))],
    "empty piece": [encode(Fragment(10, 0, b""))],
    "begins in the middle": [encode(Fragment(10, 5, b"x"))],
    "a hole": [encode(Fragment(10, 0, b"x")), encode(Fragment(10, 2, b"x"))],
    "another total": [encode(Fragment(10, 0, b"x")), encode(Fragment(11, 1, b"x"))],
    "longer than it said": [encode(Fragment(2, 0, b"xyz"))],
    "interrupted": [encode(Fragment(10, 0, b"x")), encode(Applied(1, 1, "", ""))],
    "a fragment of a fragment": [
        encode(Fragment(len(encode(Fragment(9, 0, b"x"))), 0, encode(Fragment(9, 0, b"x")))),
    ],
}


@pytest.mark.parametrize("name", NONSENSE)
def test_nonsense_breaks_the_link_and_nothing_else(name: str) -> None:
    async def body() -> None:
        ours, theirs = pipe(4)
        owner = Heard()
        link = Link(ours, Hello("b", 1, 0, "a"), True, owner, SMALL)
        end = asyncio.ensure_future(link.run())
        for data in NONSENSE[name]:
            await theirs.write(data)
        assert (await asyncio.wait_for(end, 5.0)).startswith("b: ")
        assert owner.messages == []

    run(body())


def test_the_end_of_the_stream_ends_the_link() -> None:
    async def body() -> None:
        ours, theirs = pipe(4)
        link = Link(ours, Hello("b", 1, 0, "a"), True, Heard(), SMALL)
        end = asyncio.ensure_future(link.run())
        await theirs.finish("")
        assert await asyncio.wait_for(end, 5.0) == "ended by the other side"
        ours.close("")
        with pytest.raises(StreamBroken):
            await ours.read()

    run(body())


def test_the_pipe_notices_two_writers() -> None:
    async def body() -> None:
        end, _ = pipe(1)
        await end.write(b"1")
        first = asyncio.ensure_future(end.write(b"2"))
        await asyncio.sleep(0)
        with pytest.raises(AssertionError):
            await end.write(b"3")
        end.close("")
        await asyncio.wait((first,))

    run(body())


def test_what_goes_to_several_peers_is_encoded_once() -> None:
    outgoing = Outgoing(Applied(1, 2, "a", "b"))
    assert outgoing.encoded() == encode(outgoing.message)
    assert outgoing.encoded() is outgoing.encoded()
