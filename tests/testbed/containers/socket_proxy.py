"""A Unix socket in front of the Docker daemon's, for tests in which the daemon goes away though it must not."""

from __future__ import annotations

import contextlib
import socket
import threading
from pathlib import Path


class SocketProxy:
    """Listens at `path` and passes bytes on to `target`. After `cut` nobody answers there any more."""

    def __init__(self, path: Path, target: str) -> None:
        self._path = path
        self._target = target
        self._open: list[socket.socket] = []
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen()
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """End every connection, and accept none."""
        self._path.unlink(missing_ok=True)
        for one in [self._listener, *self._open]:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                daemon = socket.socket(socket.AF_UNIX)
                daemon.connect(self._target)
                self._open += [client, daemon]
                for source, sink in ((client, daemon), (daemon, client)):
                    threading.Thread(target=_pass_on, args=(source, sink), daemon=True).start()


def _pass_on(source: socket.socket, sink: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while content := source.recv(65536):
            sink.sendall(content)
    with contextlib.suppress(OSError):
        sink.shutdown(socket.SHUT_WR)
