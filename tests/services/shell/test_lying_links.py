"""A member that holds the token and says over its link what is no array: cut off by name before a role hears of it.

The frames are those of `tests.services.roles.test_lying_members`, here over gRPC.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from typing import Any

import grpc
import pytest

from services.codec import encode
from services.events import Linked, Received
from services.frames import Hello
from services.messages import Applied
from services.shell.channel import LINK_METHOD, call_metadata
from services.wire import messages_pb2 as pb
from tests.services.roles.test_lying_members import WRONG_BYTES
from tests.services.shell.parties import Party, until

HONEST = Applied(1, 1, "a", "b")


def lying_frames() -> Iterator[tuple[str, bytes, str]]:
    """(name, frame, words of the reason)."""
    for name, (told, why) in WRONG_BYTES.items():
        part = pb.Part(generation=1, step=1, lane="chain", count=1, total=4, data=told)
        yield name, pb.Frame(part=part).SerializeToString(), why
    yield "a pickle", b"\x80\x04\x95\x0b\x00\x00\x00\x00\x00\x00\x00\x8c\x05posix\x94.", ""
    yield "nothing at all", b"", ""


async def say(address: str, *frames: bytes) -> None:
    """As worker-3, with the run's token: a hello, then these frames."""
    async with grpc.aio.insecure_channel(address) as channel:
        call: Any = channel.stream_stream(LINK_METHOD)(metadata=call_metadata("run-1", "secret"))
        await call.write(encode(Hello("worker-3", 1, 3, "coordinator")))
        with contextlib.suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):  # the other side has ended it
            for frame in frames:
                await call.write(frame)
            while await call.read() is not grpc.aio.EOF:
                pass


@pytest.mark.parametrize(("name", "frame", "why"), [pytest.param(*case, id=case[0]) for case in lying_frames()])
def test_who_says_what_is_no_array_is_cut_off_by_name(name: str, frame: bytes, why: str) -> None:
    async def body() -> None:
        coordinator, honest = await Party("coordinator").start(), await Party("worker-1").start()
        honest.board.directory({"coordinator": coordinator.address})
        await until(lambda: coordinator.of(Linked))
        await asyncio.wait_for(say(coordinator.address, encode(HONEST), frame, encode(HONEST)), 10.0)
        await until(lambda: coordinator.logged("unlinked"))
        (cut,) = coordinator.logged("unlinked")
        assert cut["peer"] == "worker-3"
        assert cut["why"].startswith("worker-3: ")
        assert why in cut["why"]
        assert [(one.source, one.message) for one in coordinator.of(Received)] == [("worker-3", HONEST)]
        honest.board.send("coordinator", HONEST)  # nobody else is any the worse for it
        await until(lambda: len(coordinator.of(Received)) == 2)
        await honest.stop()
        await coordinator.stop()

    asyncio.run(body())
