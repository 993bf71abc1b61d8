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


_INTERRUPTED = """
import asyncio, os, signal
from services.shell.loop import run

async def main():
    try:
        os.kill(os.getpid(), NUMBER)
        os.kill(os.getpid(), NUMBER)
        await asyncio.sleep(60)
    finally:
        await asyncio.sleep(0.05)
        print("cleaned up")

signal.signal(NUMBER, signal.default_int_handler)
for _ in range(2):
    try:
        run(main())
    except KeyboardInterrupt:
        print("interrupted")
print(signal.getsignal(NUMBER) is signal.default_int_handler)
"""


@pytest.mark.local
@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP"])
def test_a_signal_that_interrupts_lets_everything_be_cleaned_up(name: str) -> None:
    script = _INTERRUPTED.replace("NUMBER", f"signal.{name}")
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    told = "cleaned up\ninterrupted\n" * 2 + "True\n"
    assert (done.returncode, done.stdout) == (0, told), done.stderr
