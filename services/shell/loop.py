"""How roles, driver and benchmarks run their event loop: libuv's, by way of uvloop.

A third of the processor time of a small gRPC message between two processes is asyncio's own loop (measured: 107 us a
message, 68 us with uvloop), and a step is dozens of messages.
"""

from __future__ import annotations

import asyncio
import functools
import signal
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

import uvloop
from grpc.aio import init_grpc_aio

_T = TypeVar("_T")


def run(main: Coroutine[Any, Any, _T]) -> _T:
    """As `asyncio.run`. A signal with the handler of Ctrl-C raises KeyboardInterrupt, once `main` has cleaned up."""
    interruption = _Interruption()
    try:
        return uvloop.run(interruption.carry(main))
    except asyncio.CancelledError:
        if interruption.came:
            raise KeyboardInterrupt from None
        raise
    finally:
        interruption.hand_back()


class _Interruption:
    """`asyncio.run` makes a cancellation of Ctrl-C. Of other signals whose handler is that of Ctrl-C this does.

    Such a handler raises wherever the process happens to be, gRPC's and libuv's callbacks among it, and those fall
    over it: one interruption in five ended by a segmentation fault.
    """

    def __init__(self) -> None:
        main = threading.current_thread() is threading.main_thread()
        known = (signal.SIGTERM, signal.SIGHUP) if main else ()
        self._numbers = [number for number in known if signal.getsignal(number) is signal.default_int_handler]
        self.came = False

    async def carry(self, main: Coroutine[Any, Any, _T]) -> _T:
        _keep_grpc()
        task = asyncio.current_task()
        assert task is not None
        for number in self._numbers:
            asyncio.get_running_loop().add_signal_handler(number, self._come, task)
        return await main

    def _come(self, task: asyncio.Task[Any]) -> None:
        if not self.came:
            self.came = True
            task.cancel()

    def hand_back(self) -> None:
        for number in self._numbers:
            signal.signal(number, signal.default_int_handler)


@functools.cache
def _keep_grpc() -> None:
    """Hold gRPC's asyncio state until the process ends.

    When the last server or channel is collected gRPC takes that state down, and waits without end for an operation
    whose loop is closed: a process that had done all its work would not exit.
    """
    init_grpc_aio()
