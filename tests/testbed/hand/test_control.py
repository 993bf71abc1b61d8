"""How commands talk to a standing testbed's driver, and how they find it."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from threading import Thread

import pytest

from testbed.containers.labels import this_driver
from testbed.engines.base import EngineError
from testbed.hand.control import (
    CONTROL_FILE,
    Answer,
    ControlServer,
    Standing,
    all_standing,
    ask,
    find_standing,
    remove_control,
    write_control,
)
from training.errors import ConfigurationError


async def answer(request: Answer) -> Answer:
    match request["do"]:
        case "echo":
            return {"said": request["what"]}
        case "usage":
            raise ConfigurationError("no such thing")
    raise EngineError("could not")


@contextmanager
def serving() -> Iterator[int]:
    """A control server on a loop of its own; its port."""
    loop = asyncio.new_event_loop()
    server = ControlServer("the word", answer)
    port = loop.run_until_complete(server.start())
    thread = Thread(target=loop.run_forever)
    thread.start()
    try:
        yield port
    finally:
        asyncio.run_coroutine_threadsafe(server.stop(), loop).result(5)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(5)
        loop.close()


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GRADSTORM_HOME", str(tmp_path))
    return tmp_path


def standing(home: Path, name: str, port: int = 1) -> Standing:
    (home / name).mkdir(parents=True)
    made = Standing(name, str(home / name), name, "unix:///nowhere", this_driver(), os.getpid(), port, "the word")
    write_control(made)
    return made


def test_ask_and_answer(home: Path) -> None:
    with serving() as port:
        one = standing(home, "one", port)
        assert ask(one, {"do": "echo", "what": "w1→w2"}) == {"said": "w1→w2"}
        with pytest.raises(ConfigurationError, match="no such thing"):
            ask(one, {"do": "usage"})
        with pytest.raises(EngineError, match="could not"):
            ask(one, {"do": "other"})


def test_a_stranger_is_refused(home: Path) -> None:
    with serving() as port, pytest.raises(EngineError, match="refused"):
        ask(replace(standing(home, "one", port), word="a guess"), {"do": "echo", "what": ""})


def test_what_is_no_json_is_refused(home: Path) -> None:
    with serving() as port, socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
        connection.sendall(b"GET / HTTP/1.1\n")
        assert b"no JSON" in connection.makefile("rb").readline()


def test_a_driver_that_is_not_there_is_said(home: Path) -> None:
    with pytest.raises(EngineError, match="does not answer"):
        ask(standing(home, "one"), {"do": "status"})


def test_only_its_owner_reads_the_word(home: Path) -> None:
    one = standing(home, "one")
    assert (Path(one.folder) / CONTROL_FILE).stat().st_mode & 0o077 == 0


def test_finding_one(home: Path) -> None:
    with pytest.raises(ConfigurationError, match="no testbed is up"):
        find_standing()
    one = standing(home, "one")
    assert find_standing() == find_standing("one") == one
    other = standing(home, "other")
    with pytest.raises(ConfigurationError, match="name one: one, other"):
        find_standing()
    assert find_standing("other") == other
    with pytest.raises(ConfigurationError, match="no testbed 'third' is up"):
        find_standing("third")
    remove_control(home / "one")
    assert find_standing() == other


def test_one_that_was_brought_up_elsewhere_is_found_by_its_folder(home: Path) -> None:
    one = standing(home / "elsewhere", "mine")
    with pytest.raises(ConfigurationError, match="no testbed is up"):
        find_standing()
    assert find_standing(one.folder) == one


def test_what_a_killed_driver_left_is_not_up(home: Path) -> None:
    gone = replace(standing(home, "one"), driver=this_driver() + "0")
    write_control(gone)
    assert all_standing() == []
