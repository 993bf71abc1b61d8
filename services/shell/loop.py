"""How roles, driver and benchmarks run their event loop: libuv's, by way of uvloop.

A third of the processor time of a small gRPC message between two processes is asyncio's own loop (measured: 107 us a
message, 68 us with uvloop), and a step is dozens of messages.
"""

from __future__ import annotations

import functools
from collections.abc import Coroutine
from typing import Any, TypeVar

import uvloop
from grpc.aio import init_grpc_aio

_T = TypeVar("_T")


def run(main: Coroutine[Any, Any, _T]) -> _T:
    """As `asyncio.run`."""
    return uvloop.run(_keeping_grpc(main))


async def _keeping_grpc(main: Coroutine[Any, Any, _T]) -> _T:
    _keep_grpc()
    return await main


@functools.cache
def _keep_grpc() -> None:
    """Hold gRPC's asyncio state until the process ends.

    When the last server or channel is collected gRPC takes that state down, and waits without end for an operation
    whose loop is closed: a process that had done all its work would not exit.
    """
    init_grpc_aio()
