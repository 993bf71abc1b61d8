"""The two threads beside the loop: one computes, one works the disk, each in the order in which it was asked.

Answers come back in the loop as events. A job that says it is small (`inline`) runs in place: the thread would cost
more than it does.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from services.events import Compute, Computed, Event, Load, Loaded, Persist, Persisted, PersistFailed
from training.disk import Disk, DiskOp

Emit = Callable[[Event], None]
Failed = Callable[[BaseException], None]


class JobThread:
    """Runs `Compute` jobs. `emit` and `failed` are called in the loop."""

    def __init__(self, emit: Emit, failed: Failed) -> None:
        self._emit = emit
        self._failed = failed
        self._loop = asyncio.get_running_loop()
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="compute")

    def compute(self, effect: Compute) -> None:
        if getattr(effect.job, "inline", False):
            self._emit(_computed(effect))
        else:
            _answer_in_loop(self._loop, self._emit, self._failed, self._thread.submit(_computed, effect))

    def close(self) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)


class DiskThread:
    """Carries out `Persist` and `Load` on one disk, in order. `emit` and `failed` are called in the loop.

    What a disk refuses (OSError) is the role's to judge; anything else in a `Persist` is an error of our own.
    """

    def __init__(self, disk: Disk, emit: Emit, failed: Failed) -> None:
        self._disk = disk
        self._emit = emit
        self._failed = failed
        self._loop = asyncio.get_running_loop()
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="disk")

    def persist(self, effect: Persist) -> None:
        _answer_in_loop(self._loop, self._emit, self._failed, self._thread.submit(self._persisted, effect))

    def load(self, effect: Load) -> None:
        _answer_in_loop(self._loop, self._emit, self._failed, self._thread.submit(self._loaded, effect))

    def close(self) -> None:
        """What was begun is finished, what was only asked for is not begun."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _persisted(self, effect: Persist) -> Event:
        operation: DiskOp | None = None
        try:
            for operation in effect.operations:
                self._disk.apply(operation)
        except OSError as error:
            path = getattr(operation, "path", "") or getattr(operation, "target", "")
            return PersistFailed(effect.token, errno.errorcode.get(error.errno or 0, type(error).__name__), path)
        return Persisted(effect.token)

    def _loaded(self, effect: Load) -> Event:
        try:
            return Loaded(effect.token, effect.job(self._disk))
        except Exception as error:  # noqa: BLE001 - the role is told what its job raised, whatever it is
            return Loaded(effect.token, None, f"{type(error).__name__}: {error}")


def _computed(effect: Compute) -> Event:
    try:
        return Computed(effect.token, effect.job())
    except Exception as error:  # noqa: BLE001 - the role is told what its job raised, whatever it is
        return Computed(effect.token, None, f"{type(error).__name__}: {error}")


def _answer_in_loop(loop: asyncio.AbstractEventLoop, emit: Emit, failed: Failed, future: Future[Event]) -> None:
    def done(finished: Future[Event]) -> None:
        if finished.cancelled() or loop.is_closed():
            return
        error = finished.exception()
        if error is None:
            loop.call_soon_threadsafe(emit, finished.result())
        else:
            loop.call_soon_threadsafe(failed, error)

    future.add_done_callback(done)
