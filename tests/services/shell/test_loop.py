"""The event loop of roles and driver: a process that is done ends, whatever of gRPC it leaves behind."""

from __future__ import annotations

import subprocess
import sys

import pytest

_LEFT_BEHIND = """
import asyncio, gc
import grpc.aio
from services.shell.loop import run

async def main():
    server = grpc.aio.server()
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    channel = grpc.aio.insecure_channel(f"127.0.0.1:{port}")
    await channel.channel_ready()
    return server, channel

left = run(main())
left = None
gc.collect()
print("collected")
"""


@pytest.mark.local
def test_a_server_that_nobody_stopped_does_not_keep_the_process_from_ending() -> None:
    done = subprocess.run([sys.executable, "-c", _LEFT_BEHIND], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (0, "collected\n"), done.stderr
