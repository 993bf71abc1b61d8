"""Deaths, pauses and networks on a real daemon: what is done has its effect, and what does nothing says so."""

from __future__ import annotations

import dataclasses
import queue
import time
from collections.abc import Callable

import pytest

from testbed.containers.container import SIGKILL_EXIT_CODE, ContainerState
from testbed.containers.docker_errors import (
    DockerHung,
    DockerRefused,
    ImageMissing,
    NameTaken,
    NotRunning,
    NotThere,
)
from testbed.containers.docker_events import ContainerEvent, EventWatcher
from tests.testbed.containers.conftest import Yard

pytestmark = pytest.mark.containers

SLEEP = ("python3", "-c", "import time; time.sleep(600)")
ENDS_IN_ORDER = (
    "import signal, sys, time\nsignal.signal(signal.SIGTERM, lambda *_: sys.exit(7))\nprint('ready', flush=True)\n"
    "time.sleep(600)"
)


def wait_until(holds: Callable[[], bool], what: str, wait_s: float = 20.0) -> None:
    """Poll the daemon, which answers in its own time."""
    until_s = time.monotonic() + wait_s
    while not holds():
        assert time.monotonic() < until_s, f"not within {wait_s} s: {what}"


def test_a_kill_shows_in_the_exit_code_and_a_second_one_does_nothing(yard: Yard) -> None:
    name = yard.start("worker-1", *SLEEP).name
    killed = yard.docker.kill(name)
    assert (killed.exit_code, killed.alive, killed.oom_killed) == (SIGKILL_EXIT_CODE, False, False)
    with pytest.raises(NotRunning, match="it has no process"):
        yard.docker.kill(name)
    with pytest.raises(NotRunning):
        yard.docker.pause(name)


def test_a_paused_one_stands_still_and_can_be_killed(yard: Yard) -> None:
    name = yard.start("worker-1", *SLEEP).name
    assert yard.docker.pause(name).status == "paused"
    assert yard.docker.unpause(name).status == "running"
    with pytest.raises(NotRunning):
        yard.docker.unpause(name)
    yard.docker.pause(name)
    assert yard.docker.kill(name).exit_code == SIGKILL_EXIT_CODE


def test_stop_lets_it_end_in_order_and_kills_it_when_it_does_not(yard: Yard) -> None:
    orderly = yard.start("worker-1", "python3", "-c", ENDS_IN_ORDER).name
    wait_until(lambda: yard.docker.log_tail(orderly) == "ready", "worker-1 is ready")
    assert yard.docker.stop(orderly, grace_s=20).exit_code == 7
    assert yard.docker.stop(orderly, grace_s=20).exit_code == 7
    deaf = yard.start("worker-2", *SLEEP).name  # process 1 of a container ignores what it has no handler for
    assert yard.docker.stop(deaf, grace_s=1).exit_code == SIGKILL_EXIT_CODE


def test_one_that_dies_at_start_is_told_with_its_last_words(yard: Yard) -> None:
    name = yard.start("worker-1", "python3", "-c", "raise SystemExit('hello\\nout of luck')").name
    ended = yard.docker.wait_exit(name, 20.0)
    assert (ended.exit_code, ended.how_it_ended()) == (1, "exit code 1")
    assert yard.docker.log_tail(name, lines=1) == "out of luck"


def test_one_that_cannot_be_started_is_not_left_behind(yard: Yard) -> None:
    with pytest.raises(DockerRefused, match=r"starting .*no-such-program"):
        yard.start("worker-1", "no-such-program")
    assert yard.docker.containers(run_id=yard.whose.run_id) == []


def test_want_of_memory_is_named_as_such(yard: Yard) -> None:
    hungry = "hoard = []\nwhile True:\n    hoard.append(bytearray(8 << 20))"
    name = yard.start("worker-1", "python3", "-c", hungry, memory_bytes=48 << 20).name
    ended = yard.docker.wait_exit(name, 30.0)
    assert ended.oom_killed
    assert "want of memory" in ended.how_it_ended()


def test_waiting_for_an_end_that_does_not_come_is_bounded(yard: Yard) -> None:
    name = yard.start("worker-1", *SLEEP).name
    with pytest.raises(DockerHung, match=r"is still running after 0.5 s"):
        yard.docker.wait_exit(name, 0.5)


def test_off_the_network_and_on_again(yard: Yard) -> None:
    name = yard.start("worker-1", *SLEEP).name
    before = yard.docker.disconnect(name, yard.network)
    assert before.aliases == ("worker-1",)
    assert before.address
    assert yard.docker.inspect(name).attachments == ()
    with pytest.raises(NotThere, match="is not on network"):
        yard.docker.disconnect(name, yard.network)
    after = yard.docker.connect_to(name, before)
    assert (after.network, after.aliases) == (before.network, before.aliases)
    assert after.address


def test_a_name_that_is_taken_an_image_that_is_missing_and_nobody(yard: Yard) -> None:
    yard.start("worker-1", *SLEEP)
    with pytest.raises(NameTaken):
        yard.start("worker-1", *SLEEP)
    with pytest.raises(NameTaken):
        yard.docker.create_network(yard.network, yard.whose, internal=True)
    with pytest.raises(ImageMissing, match="creating"):
        yard.start("worker-2", *SLEEP, image="gradstorm-test-no-such-image:1")
    with pytest.raises(NotThere):
        yard.docker.inspect("gradstorm-test-nobody")
    yard.docker.remove("gradstorm-test-nobody")
    yard.docker.remove_network("gradstorm-test-nobody")
    yard.docker.remove_volume("gradstorm-test-nobody")


def test_it_has_no_privileges_and_sees_only_its_internal_network(yard: Yard) -> None:
    status = "open('/proc/self/status').read()"
    look = f"import os\nprint({status}.split('CapEff:')[1].split()[0], os.listdir('/sys/class/net'))"
    name = yard.start("worker-1", "python3", "-c", look).name
    yard.docker.wait_exit(name, 20.0)
    said = yard.docker.log_tail(name)
    assert said.startswith("0000000000000000 ")
    assert said.count("eth") == 1


class Heard:
    """Collects what a watcher calls."""

    def __init__(self) -> None:
        self.events: queue.Queue[ContainerEvent] = queue.Queue()
        self.lost: list[str] = []

    def next(self, *actions: str) -> ContainerEvent:
        """The next one of these actions; waits ten seconds for it."""
        while True:
            event = self.events.get(timeout=10.0)
            if event.action in actions:
                return event


def watch(yard: Yard) -> tuple[EventWatcher, Heard]:
    heard = Heard()
    return EventWatcher(yard.docker, yard.whose.run_id, heard.events.put, heard.lost.append), heard


def test_events_of_the_run_are_heard_and_no_others(yard: Yard) -> None:
    watcher, heard = watch(yard)
    foreign = dataclasses.replace(yard.whose, run_id=f"{yard.whose.run_id}-other")
    other: ContainerState | None = None
    try:
        other = yard.start("worker-9", *SLEEP, whose=foreign)
        name = yard.start("worker-1", *SLEEP).name
        assert heard.next("create", "start").role == "worker-1"
        yard.docker.kill(name)
        died = heard.next("die")
        assert (died.container, died.role, died.launch, died.exit_code) == (name, "worker-1", 1, SIGKILL_EXIT_CODE)
    finally:
        watcher.close()
        if other is not None:
            yard.docker.remove(other.id)
    assert heard.lost == []


def test_a_stream_that_breaks_loses_nothing_and_repeats_nothing(yard: Yard) -> None:
    watcher, heard = watch(yard)
    try:
        name = yard.start("worker-1", *SLEEP).name
        heard.next("start")
        watcher._hang_up()  # as a connection that breaks; what happens before it is opened again is not lost
        yard.docker.kill(name)
        yard.docker.remove(name)
        actions = []
        while "destroy" not in actions:
            actions.append(heard.next("create", "start", "die", "destroy").action)
    finally:
        watcher.close()
    assert actions == ["die", "destroy"]


def test_a_closed_watcher_says_nothing_and_its_thread_is_gone(yard: Yard) -> None:
    watcher, heard = watch(yard)
    watcher.close()
    watcher.close()
    assert not watcher._thread.is_alive()
    yard.start("worker-1", *SLEEP)
    assert heard.events.empty()
