"""Real TCP for the tests of network faults: a server that stamps what it receives, and a client that measures.

One way is measured apart from the other: the server answers each line with the time at which it had it (one clock:
both are on this machine), so that a delay is seen in the direction in which it is.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

LOOPBACK = "127.0.0.1"
_WAIT_S = 10.0


@dataclass(frozen=True, slots=True)
class OneWay:
    """Milliseconds that one line took there, and its answer took back."""

    there_ms: float
    back_ms: float


@contextmanager
def stamping_server() -> Iterator[str]:
    """Answers each line with the monotonic time at which it arrived. Yields its "host:port"."""
    with socket.create_server((LOOPBACK, 0)) as listener:
        thread = threading.Thread(target=accept, args=(listener,), daemon=True)
        thread.start()
        yield f"{LOOPBACK}:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)
    thread.join(_WAIT_S)
    assert not thread.is_alive()


def accept(listener: socket.socket) -> None:
    while True:
        try:
            connection, _ = listener.accept()
        except OSError:  # closed: the test is over
            return
        threading.Thread(target=_serve, args=(connection,), daemon=True).start()


def _serve(connection: socket.socket) -> None:
    try:
        with connection, connection.makefile("rb") as lines:
            for _ in lines:
                connection.sendall(f"{time.monotonic()}\n".encode())
    except OSError:  # cut: that is what is tested
        return


class Client:
    """A connection to `address` that measures. Every wait ends after ten seconds with TimeoutError."""

    def __init__(self, address: str, wait_s: float = _WAIT_S) -> None:
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), timeout=wait_s)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._lines = self._socket.makefile("rb")

    def send(self, payload_bytes: int = 1) -> float:
        """Send one line; returns when."""
        sent_s = time.monotonic()
        self._socket.sendall(b"x" * (payload_bytes - 1) + b"\n")
        return sent_s

    def arrived_ms(self, sent_s: float) -> float:
        """Wait for the answer; returns how long the line took there. Raises ConnectionError when there is none."""
        answer = self._lines.readline()
        if not answer.endswith(b"\n"):
            raise ConnectionAbortedError("the connection ended")
        return (float(answer) - sent_s) * 1000.0

    def exchange(self, payload_bytes: int = 1) -> OneWay:
        """Send one line and wait for its answer."""
        sent_s = self.send(payload_bytes)
        there_ms = self.arrived_ms(sent_s)
        return OneWay(there_ms, (time.monotonic() - sent_s) * 1000.0 - there_ms)

    def say_no_more(self) -> None:
        """End our direction of the connection."""
        self._socket.shutdown(socket.SHUT_WR)

    def ended(self) -> bool:
        """Wait for the next byte: whether there is none because the other direction ended in order."""
        return self._lines.read(1) == b""

    def least(self, times: int = 5) -> OneWay:
        """The shortest of several, each direction for itself: a busy machine adds to a delay and never takes away."""
        taken = [self.exchange() for _ in range(times)]
        return OneWay(min(one.there_ms for one in taken), min(one.back_ms for one in taken))

    def close(self) -> None:
        self._lines.close()
        self._socket.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
