"""What the engine `containers` needs of this machine: engine, Compose, images, memory, disk, and nothing left over.

Nothing is changed. Where no daemon answers there is one finding that says so, and the others are left out.
"""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from testbed.containers.compose_file import HOW_TO_GET_IT
from testbed.containers.docker_adapter import Docker
from testbed.containers.docker_errors import DockerError, ImageMissing
from testbed.containers.image_source import why_stale
from testbed.containers.labels import Ownership, this_owner, why_left_over
from testbed.containers.toxiproxy_process import BINARY_VARIABLE, find_toxiproxy
from testbed.doctor_finding import Finding
from testbed.engines.container_place import BASE_VARIABLE, IMAGE_VARIABLE, TOXIPROXY_VARIABLE, images
from training.errors import ConfigurationError

_GIB = 1 << 30
_MEMORY_MIN_BYTES = 2 << 30
_DISK_MIN_BYTES = 2 << 30
_CALL_S = 10.0
_ONLY = "only the engine containers needs it"


def examine_containers(environment: Mapping[str, str]) -> list[Finding]:
    """Every check that can be made here."""
    if shutil.which("docker") is None:
        advice = f"{_ONLY}: install Docker (engine 20.10 or newer) and Compose v2"
        return [Finding("docker", "absent", "no docker command", advice), toxiproxy(environment)]
    try:
        docker = Docker.connect(environment, _CALL_S)
    except DockerError as error:
        advice = (
            f"{_ONLY}: start the daemon, or set DOCKER_HOST; `scripts/docker-daemon start FOLDER` runs a private one"
        )
        return [Finding("docker", "absent", str(error), advice), compose(), toxiproxy(environment)]
    try:
        return [*_of_daemon(docker, images(environment)), compose(), toxiproxy(environment)]
    finally:
        docker.close()


def _of_daemon(docker: Docker, names: Mapping[str, str]) -> list[Finding]:
    checks: tuple[tuple[str, Callable[[], Finding]], ...] = (
        ("docker", lambda: _engine(docker)),
        ("docker memory", lambda: _memory(docker)),
        ("docker disk", lambda: _disk(docker)),
        ("image", lambda: _image(docker, names)),
        ("toxiproxy image", lambda: _toxiproxy_image(docker, names[TOXIPROXY_VARIABLE])),
        ("left over", lambda: _left_over(docker)),
    )
    return [_made(name, check) for name, check in checks]


def _made(name: str, check: Callable[[], Finding]) -> Finding:
    try:
        return check()
    except DockerError as error:
        return Finding(name, "warning", f"could not be checked: {error}", "look at the daemon's log")


def _engine(docker: Docker) -> Finding:
    value = f"engine {docker.engine_version} at {docker.target}"
    if not docker.target.host.startswith(("unix://", "npipe://", "http+docker://")):
        return Finding(
            "docker", "warning", value, "containers want a daemon on this machine: the roles dial its driver"
        )
    return Finding("docker", "ok", value)


def _memory(docker: Docker) -> Finding:
    info = docker.info()
    total = int(info.get("MemTotal", 0))
    value = f"{total / _GIB:.1f} GiB, {info.get('NCPU', '?')} cores"
    if total < _MEMORY_MIN_BYTES:
        return Finding("docker memory", "warning", value, "give Docker more: four workers take about 1 GiB")
    if not info.get("MemoryLimit", True):
        return Finding(
            "docker memory", "warning", value, "its kernel knows no limits: GRADSTORM_ROLE_MEMORY does nothing"
        )
    return Finding("docker memory", "ok", value)


def _disk(docker: Docker) -> Finding:
    place = Path(str(docker.info().get("DockerRootDir", "")))
    if not place.is_dir():
        return Finding("docker disk", "ok", f"{place} is not on this machine, or not ours to look at")
    free = shutil.disk_usage(place).free
    value = f"{free / _GIB:.1f} GiB free at {place}"
    if free < _DISK_MIN_BYTES:
        return Finding("docker disk", "warning", value, "free some; `docker image ls` shows what is there")
    return Finding("docker disk", "ok", value)


def _image(docker: Docker, names: Mapping[str, str]) -> Finding:
    image = names[IMAGE_VARIABLE]
    try:
        stale = why_stale(docker, image, names[BASE_VARIABLE])
    except ImageMissing:
        return Finding("image", "absent", f"{image} is not there", "`make image` builds it")
    if stale:
        return Finding("image", "warning", f"{image} was not built from this source", "`make image` builds it anew")
    return Finding("image", "ok", f"{image}, built from this source")


def _toxiproxy_image(docker: Docker, image: str) -> Finding:
    try:
        docker.image_id(image)
    except ImageMissing:
        return Finding(
            "toxiproxy image", "absent", f"{image} is not there", "it is pulled when wanted, or `make image`"
        )
    return Finding("toxiproxy image", "ok", image)


def _left_over(docker: Docker) -> Finding:
    def why(whose: Ownership) -> str:
        return why_left_over(whose, time.time()) if whose.owner == this_owner() else ""

    found = [one.name for one in docker.containers() if one.whose is not None and why(one.whose)]
    found += [name for name, whose in docker.networks().items() if why(whose)]
    if found:
        return Finding(
            "left over", "warning", f"{len(found)} things of killed drivers", "`gradstorm clean` removes them"
        )
    return Finding("left over", "ok", "nothing")


def compose() -> Finding:
    """Whether `docker compose` is there, in its second version."""
    command = ["docker", "compose", "version", "--short"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_CALL_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return Finding("compose", "warning", f"could not be checked: {error}", HOW_TO_GET_IT)
    if done.returncode != 0:
        return Finding("compose", "absent", "no `docker compose`", f"only `gradstorm up` needs it: {HOW_TO_GET_IT}")
    return Finding("compose", "ok", done.stdout.strip())


def toxiproxy(environment: Mapping[str, str]) -> Finding:
    """The binary that `local` puts faults on links with."""
    advice = f"only faults of links on `local` need it: {BINARY_VARIABLE}=$(scripts/docker-images toxiproxy-binary)"
    try:
        found = find_toxiproxy(environment)
    except ConfigurationError as error:
        return Finding("toxiproxy", "failure", str(error), f"unset {BINARY_VARIABLE}, or let it name the program")
    if found is None:
        return Finding("toxiproxy", "absent", "no toxiproxy-server on PATH", advice)
    return Finding("toxiproxy", "ok", str(found))


def ready_for(findings: list[Finding]) -> list[str]:
    """The engines that this machine can run now."""
    level = {finding.name: finding.level for finding in findings}
    ready = ["sim", "local"]
    if level.get("docker") == "ok" and level.get("image") in ("ok", "warning"):
        ready.append("containers")
    return ready
