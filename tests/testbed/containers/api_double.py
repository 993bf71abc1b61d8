"""An HTTP server that answers as it is told: for what a real Toxiproxy cannot be brought to do (hang, lie, babble)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

Answer = Callable[[str, str], tuple[int, bytes | list[bytes]]]
"""(method, path) -> status and body; a list is streamed, a chunk each."""


@contextmanager
def answering(answer: Answer) -> Iterator[str]:
    """Serve `answer` on loopback; yields "host:port"."""

    class Handler(BaseHTTPRequestHandler):
        def _reply(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            status, body = answer(self.command, self.path)
            self.send_response(status)
            if isinstance(body, bytes):
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)
            else:
                self.send_header("Transfer-Encoding", "chunked")
                self.end_headers()
                self.wfile.write(b"".join(b"%x\r\n%s\r\n" % (len(chunk), chunk) for chunk in (*body, b"")))

        do_GET = do_POST = do_PATCH = do_DELETE = _reply

        def log_message(self, format: str, *args: object) -> None:
            """Silence."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)
