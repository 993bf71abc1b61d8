"""A small compressed message that would be a large one: gRPC stops at our limit, and the memory stays where it was."""

from __future__ import annotations

import asyncio
import resource
import sys

import grpc
import pytest

from services.shell.channel import LINK_METHOD, call_metadata
from tests.services.shell.parties import Party

BOMB_MIB = 64
GROWTH_MIB_MAX = 24

# In a process of its own, so that what the sender holds is not counted.
SENDER = f"""
import asyncio, sys, grpc

async def main(address, method, algorithm):
    options = [("grpc.max_send_message_length", -1)]
    async with grpc.aio.insecure_channel(address, options, compression=grpc.Compression(algorithm)) as channel:
        call = channel.stream_stream(method)(metadata={call_metadata("run-1", "secret")!r})
        try:
            await call.write(bytes({BOMB_MIB} * 2**20))
            await call.read()
        except grpc.aio.AioRpcError:
            pass
        print((await call.code()).name)

asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
"""


def peak_mib() -> float:
    """Highest memory of this process so far."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 2**20 if sys.platform == "darwin" else peak / 2**10


@pytest.mark.local
@pytest.mark.parametrize("algorithm", [grpc.Compression.Gzip, grpc.Compression.Deflate])
def test_a_compressed_bomb_is_refused_before_it_unfolds(algorithm: grpc.Compression) -> None:
    async def body() -> None:
        coordinator = await Party("coordinator").start()
        before_mib = peak_mib()
        arguments = (sys.executable, "-c", SENDER, coordinator.address, LINK_METHOD, str(int(algorithm)))
        sender = await asyncio.create_subprocess_exec(*arguments, stdout=asyncio.subprocess.PIPE)
        said, _ = await sender.communicate()
        assert said.decode().strip() in ("RESOURCE_EXHAUSTED", "INTERNAL")
        assert peak_mib() - before_mib < GROWTH_MIB_MAX
        assert coordinator.events == []
        await coordinator.stop()

    asyncio.run(body())
