"""Roles in containers of this run: one each, on a network of the run's own, every link between them through Toxiproxy.

    sweep what killed drivers left -> networks -> Toxiproxy -> a proxy for every link -> roles, one container a launch

The network `links` leads nowhere else; this process listens on the address that this machine has there. Toxiproxy's
interface is on `control`, where no role is. Roles listen at their own name; each is told the proxies that it has to
dial instead (`--via`), so that one direction between two workers can be disturbed alone. The links with the verifier
and with the driver bypass Toxiproxy. Everything carries labels and is removed by them.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from chaos.actions import ApplyLinkFault
from services.shell.driver_link import LinksSeen
from services.shell.options import TOKEN_VARIABLE
from testbed.containers.addresses import Addresses, create_with_own_subnet
from testbed.containers.container import Attachment, ContainerSpec, ContainerState
from testbed.containers.docker_adapter import Docker
from testbed.containers.docker_errors import (
    DockerError,
    DockerHung,
    DockerRefused,
    DockerUnavailable,
    ImageMissing,
    NotRunning,
)
from testbed.containers.docker_events import ContainerEvent, EventWatcher
from testbed.containers.health_probe import ROLE_PORT
from testbed.containers.image_source import why_stale
from testbed.containers.labels import Ownership, this_driver, this_owner
from testbed.containers.limits import read_limits
from testbed.containers.sweep import left_over_of, of_run, sweep
from testbed.engines.base import EngineError, ProgressSink, RunPlan
from testbed.engines.local_cast import arguments, whole_cast, write_settings
from testbed.engines.place import Ears
from testbed.engines.proxied_links import ProxiedLinks, Waiting
from testbed.run_folder import RunFolder

NETWORKS = {"links": True, "control": False}  # name -> whether it leads nowhere else
IMAGE_VARIABLE, IMAGE = "GRADSTORM_IMAGE", "gradstorm:local"
TOXIPROXY_VARIABLE, TOXIPROXY_IMAGE = "GRADSTORM_TOXIPROXY_IMAGE", "ghcr.io/shopify/toxiproxy:2.12.0"
BASE_VARIABLE, BASE_IMAGE = "GRADSTORM_PYTHON_IMAGE", "python:3.11-slim"
_NUMERICS = ("OPENBLAS_", "OMP_", "MKL_", "VECLIB_", "NPY_")  # what the host's numbers depend on reaches the roles
_INSIDE = Path("/run-folder")
_ROLE_USER = 10001  # as in the Dockerfile; for a driver that is root
_TOXIPROXY = "toxiproxy"
_API_PORT, _FIRST_PORT = 8474, 20000
_EXPIRES_S = 6 * 3600
_CALL_S = 60.0  # a loaded machine starts a container slowly
_READY_S = 20.0
_GIVES_UP_SOON = {"net.ipv4.tcp_syn_retries": "1"}  # while a proxy dials a dead role's address, it takes nobody
_GRACE_S = 10.0  # for a role that is asked to end
_ADDRESS_FREE_S = 5.0


class ContainerPlace:
    """A `Place`. Calls to Docker run on threads: one lane for each role keeps their order."""

    def __init__(self, plan: RunPlan, folder: RunFolder, progress: ProgressSink) -> None:
        self._plan = plan
        self._folder = folder
        self._progress = progress
        self._settings = write_settings(plan, folder, _INSIDE)
        self._whose = Ownership(this_owner(), plan.config.run_id, int(time.time()) + _EXPIRES_S, this_driver())
        self._user = os.getuid() or _ROLE_USER
        self._images = images(os.environ)
        self._limits = read_limits(os.environ)
        self._oom: set[tuple[str, int]] = set()  # launches that the kernel killed for want of memory
        self._running: dict[str, bool] = {}
        self._addresses: Addresses | None = None  # where nobody gives any, Docker does
        self._off: dict[str, list[tuple[str, Attachment]]] = {}  # fault -> who is off the network
        self._ids: dict[str, str] = {}  # role -> container of its newest launch
        self._lanes: dict[str, ThreadPoolExecutor] = {}
        self._closing = threading.Event()
        self._docker: Docker | None = None
        self._watcher: EventWatcher | None = None
        self._links: ProxiedLinks | None = None
        self._gateway = ""

    @property
    def driver_listen(self) -> str:
        return f"{self._gateway}:0"

    @property
    def target(self) -> str:
        """Which daemon it is, once the place is open."""
        return str(self._connected.target)

    @property
    def running(self) -> Mapping[str, bool]:
        return dict(self._running)

    async def open(self, ears: Ears) -> None:
        self._loop = asyncio.get_running_loop()
        self._ears = ears
        await asyncio.wrap_future(self._lane(_TOXIPROXY).submit(self._open))

    # ------------------------------------------------------------ roles

    def start(self, role: str, launch: int, driver: str) -> None:
        assert role not in self._running, f"{role} runs already"
        self._running[role] = False
        address = self._addresses.next_of(role) if self._addresses is not None else ""
        if launch > 1 and address:
            self._progress.note(f"{role} is started again at {address}")
        self._in_lane(role, lambda: self._start(role, launch, driver, address))

    def kill(self, role: str) -> None:
        self._to_process(role, lambda docker, container: docker.kill(container))

    def terminate(self, role: str) -> None:
        self._to_process(role, lambda docker, container: docker.stop(container, _GRACE_S))

    def suspend(self, role: str) -> None:
        if role in self._running:
            self._running[role] = True
        self._to_process(role, lambda docker, container: docker.pause(container))

    def resume(self, role: str) -> None:
        if role in self._running:
            self._running[role] = False
        self._to_process(role, lambda docker, container: docker.unpause(container))

    async def arrived(self, role: str, address: str) -> None:
        """Its proxies lead to its name, wherever that is by now."""

    def regrouped(self, generation: int) -> None:
        """Nobody asks for it here."""

    def from_here(self, role: str, address: str) -> str:
        host = self._connected.inspect(self._ids[role]).address_on(self._network("links"))
        return f"{host}:{address.rpartition(':')[2]}"

    # ------------------------------------------------------------ links

    def seen(self, role: str, report: LinksSeen) -> None:
        if self._links is not None:
            self._links.seen(role, report)

    async def apply(self, fault: ApplyLinkFault) -> None:
        assert self._links is not None, "the place is not open"
        if fault.kind != "disconnect":
            await self._links.apply(fault)
            return
        off = str(fault.settings["off"]).split(",")
        if fault.fault not in self._off:
            self._off[fault.fault] = [(role, await self._ask(role, self._take_off)) for role in off]
        if fault.source in off:  # whoever is off cannot tell what it hears
            self._links.watch(fault)

    async def undo(self, fault: str) -> None:
        assert self._links is not None, "the place is not open"
        same = self._addresses is not None
        for role, attachment in self._off.pop(fault, ()):
            await self._ask(role, lambda docker, container, back=attachment: docker.connect_to(container, back, same))  # type: ignore[misc]
        await self._links.undo(fault)

    def _take_off(self, docker: Docker, container: str) -> Attachment:
        return docker.disconnect(container, self._network("links"))

    async def _ask(self, role: str, what: Callable[[Docker, str], Attachment]) -> Attachment:
        """Done in the role's lane, after whatever is under way there."""
        return await asyncio.wrap_future(self._lane(role).submit(lambda: what(self._connected, self._ids[role])))

    # ------------------------------------------------------------ the end

    async def close(self) -> None:
        self._closing.set()
        if self._links is not None:
            await self._links.close()
        await asyncio.get_running_loop().run_in_executor(None, self._close)

    def _close(self) -> None:
        """Whatever is under way ends first, then everything of this run goes."""
        for lane in self._lanes.values():
            lane.shutdown(wait=True, cancel_futures=True)
        docker, self._docker = self._docker, None
        if docker is None:
            return
        try:
            if self._watcher is not None:
                self._watcher.close()
            with ThreadPoolExecutor(4) as several:
                ours = docker.containers(run_id=self._whose.run_id)
                list(several.map(lambda container: _removed(docker, container.id), ours))
            sweep(docker, of_run(self._whose.run_id))
        except (DockerUnavailable, DockerHung) as error:  # what the run failed of is told, not this
            self._progress.note(f"containers may be left, `gradstorm clean` removes them: {error}")
        finally:
            docker.close()

    # ------------------------------------------------------------ on threads

    def _open(self) -> None:
        docker = self._docker = Docker.connect(os.environ, _CALL_S)
        self._progress.note(docker.target_line)
        for line in sweep(docker, left_over_of(this_owner(), time.time())).lines():
            self._progress.note(line)
        self._require_images(docker)
        self._own_folder()
        self._create_networks(docker)
        self._gateway = docker.gateway(self._network("links"))
        self._watcher = EventWatcher(docker, self._whose.run_id, self._heard, self._lost)
        self._open_links(docker)

    def _create_networks(self, docker: Docker) -> None:
        self._addresses = create_with_own_subnet(docker, self._network("links"), self._whose)
        docker.create_network(self._network("control"), self._whose, internal=NETWORKS["control"])

    def _start_container(self, docker: Docker, spec: ContainerSpec) -> ContainerState:
        return docker.start(spec)

    def _require_images(self, docker: Docker) -> None:
        docker.ensure_image(self._images[TOXIPROXY_VARIABLE])
        image = self._images[IMAGE_VARIABLE]
        try:
            docker.image_id(image)
        except ImageMissing as error:
            raise ImageMissing(f"image {image} is not here; `make image` builds it") from error
        stale = why_stale(docker, image, self._images[BASE_VARIABLE])
        if stale:
            self._progress.note(f"WARNING: {stale}")

    def _own_folder(self) -> None:
        """The roles are not root: give them the run folder, when we are."""
        if os.getuid() != 0:
            return
        for path in (self._folder.path, *self._folder.path.rglob("*")):
            os.chown(path, self._user, self._user, follow_symlinks=False)

    def _toxiproxy_spec(self) -> ContainerSpec:
        links, control = self._network("links"), self._network("control")
        return ContainerSpec(
            name=self._name(_TOXIPROXY),
            image=self._images[TOXIPROXY_VARIABLE],
            command=("-host", "toxiproxy-control"),  # its interface is bound on that network and nowhere else
            whose=self._whose,
            role=_TOXIPROXY,
            sysctls=_GIVES_UP_SOON,
            launch=1,
            attachments=(Attachment(links), Attachment(control, ("toxiproxy-control",))),
            ports=(_API_PORT,),
            user=f"{self._user}:{self._user}",
            health_check=False,
        )

    def _open_links(self, docker: Docker) -> None:
        state = self._start_container(docker, self._toxiproxy_spec())
        at = state.address_on(self._network("links"))
        self._links = ProxiedLinks(state.published[_API_PORT], self._plan.config.seed, self._loop, self._ears)
        self._links.open(
            self._whole_cast(),
            listen_at=lambda number: f"{at}:{_FIRST_PORT + number}",
            leads_to=lambda role: f"{role}:{ROLE_PORT}",
            wait=Waiting(_READY_S, lambda seconds: void(self._closing.wait(seconds))),
        )

    def _whole_cast(self) -> tuple[str, ...]:
        """Who may ever live here, and needs links."""
        return whole_cast(self._plan)

    def _start(self, role: str, launch: int, driver: str, address: str) -> None:
        spec = self._spec(role, launch, driver, address)
        self._ids[role] = spec.name  # a role may be heard before Docker says that it has started it
        self._ids[role] = self._started(spec).id

    def _started(self, spec: ContainerSpec) -> ContainerState:
        """An address that was left just now may still be taken for a moment."""
        until_s = time.monotonic() + _ADDRESS_FREE_S
        while True:
            try:
                return self._start_container(self._connected, spec)
            except DockerRefused as error:
                if "already in use" not in str(error).lower() or time.monotonic() > until_s:
                    raise
            self._closing.wait(0.1)

    def _spec(self, role: str, launch: int, driver: str, address: str = "") -> ContainerSpec:
        assert self._links is not None, "the place is not open"
        via = tuple(f"--via={to}={address}" for to, address in self._links.via(role).items())
        listen = f"{role}:{ROLE_PORT}"
        log = _INSIDE / "logs" / self._folder.log_path(role, launch).name
        return ContainerSpec(
            name=f"{self._name(role)}.{launch}",
            image=self._images[IMAGE_VARIABLE],
            entrypoint=("sh", "-c", 'exec "$@" >>"$0" 2>&1', str(log), "python3", "-m", "services.shell"),
            command=(
                *arguments(role, launch, self._plan, _INSIDE, driver, self._settings),
                f"--listen={listen}",
                "--measure-links",
                *via,
            ),
            whose=self._whose,
            role=role,
            launch=launch,
            attachments=(Attachment(self._network("links"), (role,), address),),
            environment={**_numerics(os.environ), TOKEN_VARIABLE: self._plan.token},
            folders=((self._folder.path, str(_INSIDE)),),
            user=f"{self._user}:{self._user}",
            hostname=role,
            health_check=False,
            memory_bytes=self._limits.memory_bytes,
            cpus=self._limits.cpus,
        )

    def _to_process(self, role: str, what: Callable[[Docker, str], object]) -> None:
        def carry_out() -> None:
            with contextlib.suppress(NotRunning):  # it has just ended by itself; its exit is told anyway
                what(self._connected, self._ids[role])

        if role in self._running:
            self._in_lane(role, carry_out)

    # ------------------------------------------------------------ what the daemon says

    def _heard(self, event: ContainerEvent) -> None:
        if event.action == "oom":
            self._oom.add((event.role, event.launch))
        if event.action == "die":
            self._loop.call_soon_threadsafe(self._died, event)

    def _died(self, event: ContainerEvent) -> None:
        if self._closing.is_set():
            return
        if event.role == _TOXIPROXY:
            self._ears.failed(EngineError(f"Toxiproxy ended with exit code {event.exit_code}"))
            return
        if (event.role, event.launch) in self._oom:
            limit = f"{self._limits.memory_bytes / 2**20:g} MiB" if self._limits.memory_bytes else "the machine"
            self._ears.failed(EngineError(f"{event.role} was killed for want of memory: {limit} is too little for it"))
        self._running.pop(event.role, None)
        if self._addresses is not None:
            self._addresses.gone(event.role)
        self._ears.exited(event.role, event.launch, -1 if event.exit_code is None else event.exit_code)

    def _lost(self, why: str) -> None:
        self._loop.call_soon_threadsafe(self._ears.failed, EngineError(f"lost the Docker daemon: {why}"))

    # ------------------------------------------------------------ helpers

    @property
    def _connected(self) -> Docker:
        if self._docker is None:
            raise EngineError("not connected to Docker")
        return self._docker

    def _network(self, name: str) -> str:
        return self._name(name)

    def _name(self, what: str) -> str:
        return f"gradstorm-{self._whose.run_id}-{what}"

    def _lane(self, role: str) -> ThreadPoolExecutor:
        if role not in self._lanes:
            self._lanes[role] = ThreadPoolExecutor(1, thread_name_prefix=f"docker {role}")
        return self._lanes[role]

    def _in_lane(self, role: str, what: Callable[[], None]) -> None:
        def carry_out() -> None:
            if self._closing.is_set():
                return
            try:
                what()
            except EngineError as error:
                self._loop.call_soon_threadsafe(self._ears.failed, error)

        self._lane(role).submit(carry_out)


_USUAL_IMAGES = {IMAGE_VARIABLE: IMAGE, TOXIPROXY_VARIABLE: TOXIPROXY_IMAGE, BASE_VARIABLE: BASE_IMAGE}


def images(environment: Mapping[str, str]) -> dict[str, str]:
    """Variable -> image, as the environment names it or as usual."""
    return {name: environment.get(name) or usual for name, usual in _USUAL_IMAGES.items()}


def _numerics(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in sorted(environment.items()) if name.startswith(_NUMERICS)}


def void(_: object) -> None:
    """Nothing comes back."""


def _removed(docker: Docker, container: str) -> None:
    with contextlib.suppress(DockerError):  # the sweep that follows tells what could not be removed
        docker.remove(container)
