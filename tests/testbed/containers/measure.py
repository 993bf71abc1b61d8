"""Run inside a container: `serve PORT`, `measure HOST:PORT` (prints JSON), or `knock HOST PORT`."""

from __future__ import annotations

import json
import socket
import sys

from tests.testbed.containers.tcp import Client, accept


def main() -> None:
    if sys.argv[1] == "serve":
        host = socket.gethostbyname(socket.gethostname())
        with socket.create_server((host, int(sys.argv[2]))) as listener:
            sys.stdout.write("ready\n")
            sys.stdout.flush()
            accept(listener)
    elif sys.argv[1] == "measure":
        with Client(sys.argv[2]) as client:
            shortest = client.least()
        sys.stdout.write(json.dumps({"there_ms": shortest.there_ms, "back_ms": shortest.back_ms}) + "\n")
    else:
        try:
            socket.create_connection((sys.argv[2], int(sys.argv[3])), timeout=3).close()
            sys.stdout.write("connected\n")
        except OSError as error:
            sys.stdout.write(f"{error}\n")


main()
