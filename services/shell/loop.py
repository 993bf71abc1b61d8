"""How roles, driver and benchmarks run their event loop: libuv's, by way of uvloop.

A third of the processor time of a small gRPC message between two processes is asyncio's own loop (measured: 107 us a
message, 68 us with uvloop), and a step is dozens of messages.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, TypeVar

import uvloop

_T = TypeVar("_T")


def run(main: Coroutine[Any, Any, _T]) -> _T:
    """As `asyncio.run`."""
    return uvloop.run(main)
