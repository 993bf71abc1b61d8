"""What the roles of a running run use: resident memory and open descriptors, looked at from outside.

    watch = UsageWatch("containers", folder, ("coordinator", "server", "verifier"))
    with watch: …run…
    watch.growth()    # of each role: what it used at the start and at the end

Roles of `local` are children of this process; in a container the role is process 1, and is asked through Docker. A
role that is not there at some moment (killed, not started yet) is passed over at that moment.
"""

from __future__ import annotations

import contextlib
import os
import re
import resource
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from types import TracebackType

import psutil

from testbed.engines.base import EngineError
from testbed.run_folder import RunFolder, RunFolderError

_EVERY_S = 2.0
_WARM_UP_SHARE = 0.2
_LEAST_SAMPLES = 6
_UNSEEN_S_MAX = 60.0
RSS_GROWTH_MIB_MAX = 16.0
RSS_GROWTH_SHARE_MAX = 0.10
DESCRIPTORS_GROWTH_MAX = 3
_MIB = 2**20
_ASK = "cat /proc/1/statm; ls /proc/1/fd | wc -l"


@dataclass(frozen=True, slots=True)
class Sample:
    """One look at one role. `process` tells launches apart."""

    at_s: float
    process: str
    rss_mib: float
    descriptors: int


@dataclass(frozen=True, slots=True)
class Growth:
    """The medians of the first and the last third of the samples, the warm-up left out."""

    role: str
    samples: int
    rss_mib: tuple[float, float]
    descriptors: tuple[float, float]

    @property
    def grows(self) -> bool:
        """More than noise: memory by 16 MiB and by a tenth, or descriptors by more than three."""
        before, after = self.rss_mib
        memory = after - before > max(RSS_GROWTH_MIB_MAX, RSS_GROWTH_SHARE_MAX * before)
        return memory or self.descriptors[1] - self.descriptors[0] > DESCRIPTORS_GROWTH_MAX


@dataclass(slots=True)
class UsageWatch:
    """Looks every two seconds, on a thread of its own, from `with` to its end."""

    engine: str
    folder: Path
    roles: tuple[str, ...]
    samples: dict[str, list[Sample]] = field(default_factory=dict)
    trouble: str = ""
    ended_s: float = 0.0
    _over: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def __enter__(self) -> UsageWatch:
        self._thread = threading.Thread(target=self._watch, name="usage", daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.ended_s = time.monotonic()
        self._over.set()
        assert self._thread is not None
        self._thread.join()

    def growth(self) -> list[Growth]:
        """Of every role that was seen often enough, and until the end."""
        return [growth_of(role, found) for role, found in self.samples.items() if self._suffices(found)]

    def _suffices(self, found: list[Sample]) -> bool:
        return len(found) >= _LEAST_SAMPLES and self.ended_s - found[-1].at_s <= _UNSEEN_S_MAX

    def _watch(self) -> None:
        while not self._over.wait(_EVERY_S):
            try:
                found = self._look()
            except (EngineError, RunFolderError) as error:
                self.trouble = str(error)
                continue
            except Exception as error:  # noqa: BLE001 - a thread's error must not get lost: nobody looks any more
                self.trouble = f"the watch ended by {error!r}"
                return
            for role, sample in found.items():
                self.samples.setdefault(role, []).append(sample)

    def _look(self) -> dict[str, Sample]:
        if not self.folder.exists():
            return {}
        run_id = str(RunFolder(self.folder).manifest()["run_id"])
        return _of_containers(run_id, self.roles) if self.engine == "containers" else _of_children(run_id, self.roles)


def growth_of(role: str, samples: list[Sample]) -> Growth:
    """See `Growth`."""
    began_s, ended_s = samples[0].at_s, samples[-1].at_s
    warm = [one for one in samples if one.at_s >= began_s + _WARM_UP_SHARE * (ended_s - began_s)]
    third = max(1, len(warm) // 3)
    first, last = warm[:third], warm[-third:]
    return Growth(
        role,
        len(samples),
        (median(one.rss_mib for one in first), median(one.rss_mib for one in last)),
        (median(one.descriptors for one in first), median(one.descriptors for one in last)),
    )


def _of_children(run_id: str, roles: tuple[str, ...]) -> dict[str, Sample]:
    found = {}
    for child in psutil.Process().children():
        with contextlib.suppress(psutil.Error):
            words = child.cmdline()
            role = next((role for role in roles if role in words and f"--run-id={run_id}" in words), "")
            if role:
                rss_mib = child.memory_info().rss / _MIB
                found[role] = Sample(time.monotonic(), str(child.pid), rss_mib, child.num_fds())
    return found


def _of_containers(run_id: str, roles: tuple[str, ...]) -> dict[str, Sample]:
    from testbed.containers.docker_adapter import Docker
    from testbed.containers.docker_errors import DockerError

    found = {}
    docker = Docker.connect(os.environ, timeout_s=30.0)
    try:
        for one in docker.containers(run_id=run_id):
            if one.role not in roles or one.status != "running":
                continue
            with contextlib.suppress(DockerError):  # it has just ended
                answer = docker.execute(one.id, ("sh", "-c", _ASK))
                if sample := read_answer(one.id, answer):
                    found[one.role] = sample
    finally:
        docker.close()
    return found


def read_answer(process: str, answer: str) -> Sample | None:
    """What a container answered to `_ASK`; nothing from one that died over it, which may end with exit code 0."""
    match = re.fullmatch(r"\d+ (\d+) [\d ]+\n\s*(\d+)\n", answer)
    if match is None:
        return None
    return Sample(time.monotonic(), process, int(match[1]) * resource.getpagesize() / _MIB, int(match[2]))
