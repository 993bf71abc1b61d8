"""How commands talk to the driver of a standing testbed: one JSON line asks, one answers, on this machine's loopback.

`testbed.json` in the run folder, readable by its owner alone, says where the driver listens and the word that it wants
to hear; it is there while the testbed is up.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import json
import os
import socket
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from testbed.containers.labels import is_alive
from testbed.engines.base import EngineError
from testbed.run_folder import runs_home
from training.errors import ConfigurationError, GradstormError

CONTROL_FILE = "testbed.json"
_LOOPBACK = "127.0.0.1"
_LINE_MAX = 1 << 22
_ANSWER_S = 60.0

Answer = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Standing:
    """A testbed that is up, as its file has it."""

    run_id: str
    folder: str
    project: str  # as `docker compose ls` shows it
    docker: str  # which daemon
    driver: str  # the process that answers, see `testbed.containers.labels`
    pid: int
    port: int
    word: str


def find_standing(name: str = "") -> Standing:
    """The testbed of that name (run id or folder), or the only one that is up. Raises ConfigurationError."""
    up = [one for one in all_standing() if name in ("", one.run_id, one.folder, Path(one.folder).name)]
    if name and not up:
        up = _read(Path(name) / CONTROL_FILE)  # brought up with --out
    if len(up) == 1:
        return up[0]
    if up:
        raise ConfigurationError(f"several testbeds are up, name one: {', '.join(one.run_id for one in up)}")
    which = f"no testbed {name!r} is up" if name else "no testbed is up"
    raise ConfigurationError(f"{which} in {runs_home()}; `gradstorm up` brings one up")


def all_standing() -> list[Standing]:
    """Those whose driver lives, by name. What a killed driver left is not among them."""
    return [one for path in sorted(runs_home().glob(f"*/{CONTROL_FILE}")) for one in _read(path)]


def _read(path: Path) -> list[Standing]:
    """The testbed that this file tells of, if its driver lives."""
    with contextlib.suppress(OSError, ValueError, TypeError):
        one = Standing(**json.loads(path.read_text(encoding="utf-8")))
        if is_alive(one.driver):
            return [one]
    return []


def ask(standing: Standing, request: dict[str, Any], bound_s: float = _ANSWER_S) -> Answer:
    """Raises EngineError when the driver does not answer in time, or what it says went wrong."""
    try:
        with socket.create_connection((_LOOPBACK, standing.port), timeout=5.0) as connection:
            connection.settimeout(bound_s)
            connection.sendall(json.dumps({**request, "word": standing.word}).encode() + b"\n")
            line = connection.makefile("rb").readline(_LINE_MAX)
    except OSError as error:
        raise EngineError(f"the driver of testbed {standing.run_id} does not answer: {error}") from error
    if not line:
        raise EngineError(f"the driver of testbed {standing.run_id} ended; see {standing.folder}/logs")
    answer: Answer = json.loads(line)
    if "error" in answer:
        kind = ConfigurationError if answer.get("usage") else EngineError
        raise kind(str(answer["error"]))
    return answer


class ControlServer:
    """The driver's side. `answer` is awaited for each request; what it raises (GradstormError), the asker sees."""

    def __init__(self, word: str, answer: Callable[[Answer], Awaitable[Answer]]) -> None:
        self._word = word
        self._answer = answer
        self._server: asyncio.Server | None = None

    async def start(self) -> int:
        """The port."""
        self._server = await asyncio.start_server(self._serve, _LOOPBACK, 0, limit=_LINE_MAX)
        return int(self._server.sockets[0].getsockname()[1])

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, ValueError):
            answer = await self._answer_to(await reader.readline())
            writer.write(json.dumps(answer).encode() + b"\n")
            await writer.drain()
        writer.close()

    async def _answer_to(self, line: bytes) -> Answer:
        try:
            request = json.loads(line)
        except ValueError:
            return {"error": "that is no JSON"}
        if not hmac.compare_digest(str(request.get("word", "")).encode(), self._word.encode()):
            return {"error": "refused: the word is another one"}
        try:
            return await self._answer(request)
        except GradstormError as error:
            return {"error": str(error), "usage": isinstance(error, ConfigurationError)}


def write_control(standing: Standing) -> None:
    """Readable by its owner alone: whoever has the word may break the testbed."""
    path = Path(standing.folder) / CONTROL_FILE
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
        json.dump(asdict(standing), file, indent=2)


def remove_control(folder: Path) -> None:
    """The testbed is not up any more."""
    (folder / CONTROL_FILE).unlink(missing_ok=True)
