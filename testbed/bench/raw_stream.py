"""The floor: the same bytes over one plain gRPC stream between two processes, with nothing else done to them.

    python -m testbed.bench.raw_stream serve                    prints the port, serves until its input ends
    python -m testbed.bench.raw_stream call PORT '[[BYTES, TURNS], ...]'

A turn sends BYTES in messages of at most 1 MiB; once it has all of them, the server sends as many back. Half of that is
the time of one way. Same library, same channel options, same event loop, same Python as our links.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import grpc

from services.shell.channel import channel_options, server_options
from services.shell.loop import run
from services.shell.options import TransportOptions
from testbed.engines.base import EngineError

MESSAGE_BYTES = 1 << 20
WARM_UP_TURNS = 3
_METHOD = "/gradstorm.bench.Raw/Echo"


def measure_raw(plan: Sequence[tuple[int, int]], timeout_s: float) -> list[list[float]]:
    """Microseconds of one way, per entry of `plan` (bytes, turns) and turn. Raises EngineError."""
    command = [sys.executable, "-P", "-c", _START, str(Path(__file__).resolve().parents[2])]
    server = subprocess.Popen([*command, "serve"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        port = server.stdout.readline().strip()
        done = subprocess.run(
            [*command, "call", port, json.dumps(plan)], capture_output=True, text=True, timeout=timeout_s, check=False
        )
    except subprocess.TimeoutExpired:
        raise EngineError(f"the raw gRPC stream did not end within {timeout_s:g} s") from None
    finally:
        server.kill()
        server.communicate()
    if done.returncode != 0:
        raise EngineError(f"the raw gRPC stream failed:\n{done.stderr[-1000:].strip()}")
    took_us: list[list[float]] = json.loads(done.stdout)
    return took_us


_START = "import sys; sys.path.insert(0, sys.argv[1]); from testbed.bench.raw_stream import main; main(sys.argv[2:])"


def main(arguments: Sequence[str]) -> None:
    """One of the two processes."""
    if arguments[0] == "serve":
        with contextlib.suppress(KeyboardInterrupt):
            run(_serve())
    else:
        took_us = run(_call(arguments[1], json.loads(arguments[2])))
        sys.stdout.write(json.dumps(took_us) + "\n")


async def _serve() -> None:
    server = grpc.aio.server(options=server_options(TransportOptions()))
    method: Any = grpc.stream_stream_rpc_method_handler(_echo)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("gradstorm.bench.Raw", {"Echo": method}),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    sys.stdout.write(f"{port}\n")
    sys.stdout.flush()
    await server.wait_for_termination()


async def _echo(_requests: Any, context: Any) -> None:
    while (head := await context.read()) is not grpc.aio.EOF:
        awaited, chunks = int.from_bytes(head, "little"), []
        while awaited > 0:
            chunk = await context.read()
            awaited -= len(chunk)
            chunks.append(chunk)
        for chunk in chunks:
            await context.write(chunk)


async def _call(port: str, plan: Sequence[tuple[int, int]]) -> list[list[float]]:
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=channel_options(TransportOptions())) as channel:
        stream: Any = channel.stream_stream(_METHOD)()
        results = []
        for size_bytes, turns in plan:
            took_us = [await _turn(stream, size_bytes) for _ in range(WARM_UP_TURNS + turns)]
            results.append(took_us[WARM_UP_TURNS:])
        await stream.done_writing()
        return results


async def _turn(stream: Any, size_bytes: int) -> float:
    whole = bytes(min(size_bytes, MESSAGE_BYTES))
    sizes = [min(MESSAGE_BYTES, size_bytes - at) for at in range(0, size_bytes, MESSAGE_BYTES)]
    began_s = time.perf_counter()
    await stream.write(size_bytes.to_bytes(8, "little"))
    for size in sizes:
        await stream.write(whole if size == len(whole) else whole[:size])
    left = size_bytes
    while left > 0:
        left -= len(await stream.read())
    return (time.perf_counter() - began_s) * 1e6 / 2
