"""What the daemon says of the containers of one run, as it happens, on a thread of its own.

The daemon's stream never times out and may break; it is then opened again from before the last event that was seen,
so that none is lost and none comes twice. Events come nearly in the order of their times: the daemon takes the time of
each before it puts it in line, so that two containers which end together may be told the later one first.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from testbed.containers.docker_adapter import Docker
from testbed.containers.docker_errors import DockerError, translated
from testbed.containers.labels import LAUNCH, ROLE, RUN

_REOPEN_S = 0.2
_REOPENED_MAX = 25
_CLOSE_S = 5.0
_LATE_NS = 10_000_000_000  # so much older than the newest one an event may be when it comes; usual are some 100 us
_NS_PER_S = 1_000_000_000


@dataclass(frozen=True, slots=True)
class ContainerEvent:
    """`action` in Docker's words: start, die, oom, kill, pause, unpause, destroy, "health_status: healthy", …"""

    action: str
    container: str
    id: str
    role: str
    launch: int
    exit_code: int | None  # of a "die"
    at_ns: int  # the daemon's clock


class EventWatcher:
    """Calls `on_event` for each event of the run, and `on_lost(reason)` once if the daemon stays away for good.

    Both are called on the watcher's thread and must not block. The caller closes it.
    """

    def __init__(
        self,
        docker: Docker,
        run_id: str,
        on_event: Callable[[ContainerEvent], None],
        on_lost: Callable[[str], None],
    ) -> None:
        self._docker = docker
        self._filters = {"type": ["container"], "label": [f"{RUN}={run_id}"]}
        self._on_event = on_event
        self._on_lost = on_lost
        self._since_ns = self._newest_ns = _nanoseconds(docker.now())
        self._seen: set[tuple[int, str, str]] = set()  # of those that may come once more
        self._closed = threading.Event()
        self._lock = threading.Lock()
        self._stream: Any = None
        self._thread = threading.Thread(target=self._watch, name=f"docker events of {run_id}", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the thread; safe to call twice. Nothing is called after it returns."""
        self._closed.set()
        self._hang_up()
        self._thread.join(_CLOSE_S)
        if self._thread.is_alive():
            raise DockerError(f"the watcher of Docker's events does not end within {_CLOSE_S:g} s")

    def _hang_up(self) -> None:
        with self._lock:
            if self._stream is not None:
                with contextlib.suppress(OSError, AttributeError):  # it may be closed, or half closed, already
                    self._stream.close()

    def _watch(self) -> None:
        failures, why = 0, ""
        while not self._closed.is_set():
            try:
                if self._follow():
                    failures = 0
                why = "its stream of events ended"
            except DockerError as error:
                why = str(error)
            failures += 1
            if failures > _REOPENED_MAX:
                self._on_lost(why)
                return
            self._closed.wait(_REOPEN_S)

    def _follow(self) -> bool:
        """Follow one stream until it ends; whether it gave anything."""
        since_ns = self._oldest_ns()
        since = f"{since_ns // _NS_PER_S}.{since_ns % _NS_PER_S:09d}"
        stream = self._docker.open_events(self._filters, since)
        with self._lock:
            self._stream = stream
        gave = False
        try:
            if self._closed.is_set():  # closed while it was opened
                self._stream.close()
            with translated("watching events", str(self._docker.target)):
                for document in stream:
                    gave = True
                    if not self._closed.is_set():
                        self._tell(document)
        finally:
            with self._lock:
                self._stream = None
        return gave

    def _tell(self, document: Any) -> None:
        event = _read_event(document)
        key = (event.at_ns, event.action, event.id)
        if event.at_ns < self._oldest_ns() or key in self._seen:
            return
        self._newest_ns = max(self._newest_ns, event.at_ns)
        self._seen = {one for one in self._seen if one[0] >= self._oldest_ns()} | {key}
        self._on_event(event)

    def _oldest_ns(self) -> int:
        """What is older than this has been seen, or was before the watcher."""
        return max(self._since_ns, self._newest_ns - _LATE_NS)


def _read_event(document: Any) -> ContainerEvent:
    attributes = document["Actor"].get("Attributes") or {}
    exit_code, launch = attributes.get("exitCode", ""), attributes.get(LAUNCH, "")
    return ContainerEvent(
        action=document["Action"],
        container=attributes.get("name", ""),
        id=document["Actor"]["ID"],
        role=attributes.get(ROLE, ""),
        launch=int(launch) if launch.isdigit() else 0,
        exit_code=int(exit_code) if exit_code else None,
        at_ns=int(document["timeNano"]),
    )


def _nanoseconds(rfc3339: str) -> int:
    """Of the daemon's clock, which writes nanoseconds; rounded down to microseconds, so never past an event."""
    return int(datetime.fromisoformat(rfc3339.replace("Z", "+00:00")).timestamp() * 1_000_000) * 1000
