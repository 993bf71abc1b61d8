"""Docker through its SDK as engine, injectors and commands need it: bounded, typed, and nothing touched but our own.

    docker = Docker.connect(os.environ)
    progress.note(docker.target_line)        # before anything is done to it
    state = docker.kill("gradstorm-1a2b-worker-2")
    assert state.exit_code == 137

Duties of the caller: show `target_line` first; sweep (`sweep.py`) at the start and on every way out; `close`. Every
request is bounded by the timeout that `connect` was given, `stop` and `wait_exit` by their own besides. Safe to use
from several threads.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any

import docker
from docker.types import Mount

from testbed.containers.container import Attachment, ContainerSpec, ContainerState, read_container
from testbed.containers.docker_errors import (
    DockerError,
    DockerHung,
    DockerRefused,
    ImageMissing,
    NotRunning,
    NotThere,
    translated,
)
from testbed.containers.docker_target import DockerTarget, find_target
from testbed.containers.labels import OWNER, RUN, Ownership, read_ownership

CALL_TIMEOUT_S = 10.0
PULL_TIMEOUT_S = 300.0
_FREEZES = 5  # tries


class Docker:
    """A connection to one daemon. Containers and networks are named by name or id."""

    def __init__(self, target: DockerTarget, timeout_s: float = CALL_TIMEOUT_S) -> None:
        self.target = target
        self.engine_version = ""
        self._timeout_s = timeout_s
        with translated("connecting", str(target)):
            connection: Any = {"timeout": timeout_s, "version": "auto", **target.connection}
            self._api: Any = docker.APIClient(**connection)

    @classmethod
    def connect(cls, environment: Mapping[str, str], timeout_s: float = CALL_TIMEOUT_S) -> Docker:
        """The daemon that DOCKER_HOST or the current context names. Raises DockerUnavailable or DockerHung."""
        connected = cls(find_target(environment), timeout_s)
        with connected._asking("asking for its version"):
            connected.engine_version = str(connected._api.version()["Version"])
        return connected

    @property
    def target_line(self) -> str:
        """One line that says which daemon this is."""
        return f"Docker engine {self.engine_version} at {self.target}"

    def close(self) -> None:
        self._api.close()

    # ------------------------------------------------------------ images

    def image_id(self, image: str) -> str:
        """Raises ImageMissing when it is not here."""
        with self._asking(f"looking for image {image}"):
            return str(self._api.inspect_image(image)["Id"])

    def image_labels(self, image: str) -> dict[str, str]:
        """Raises ImageMissing when it is not here."""
        with self._asking(f"looking for image {image}"):
            return dict(self._api.inspect_image(image)["Config"].get("Labels") or {})

    def ensure_image(self, image: str, timeout_s: float = PULL_TIMEOUT_S) -> str:
        """Its id, after pulling it where it is missing. Raises ImageMissing with what can be done."""
        try:
            return self.image_id(image)
        except ImageMissing:
            repository, tag = _repository_and_tag(image)
        puller = Docker(self.target, timeout_s)
        try:
            with puller._asking(f"pulling {image}"):
                puller._api.pull(repository, tag=tag)
            return self.image_id(image)
        except DockerError as error:
            raise ImageMissing(
                f"{image} is not here and cannot be pulled ({error}); scripts/docker-images makes it"
            ) from error
        finally:
            puller.close()

    # ------------------------------------------------------------ networks and volumes

    def create_network(self, name: str, whose: Ownership, internal: bool, subnet: str = "", gateway: str = "") -> str:
        """Its id. From an internal network nothing leaves the machine. Raises NameTaken.

        Only where a subnet is given may containers ask for addresses of theirs.
        """
        pool = [docker.types.IPAMPool(subnet=subnet, gateway=gateway or None)] if subnet else None
        with self._asking(f"creating network {name}"):
            made = self._api.create_network(
                name,
                driver="bridge",
                internal=internal,
                labels=whose.labels(),
                check_duplicate=True,
                ipam=docker.types.IPAMConfig(pool_configs=pool) if pool else None,
            )
            return str(made["Id"])

    def subnet(self, network: str) -> str:
        """Its IPv4 addresses ("172.20.0.0/16")."""
        with self._asking(f"looking at network {network}"):
            configured = self._api.inspect_network(network)["IPAM"]["Config"] or []
        return next((str(one["Subnet"]) for one in configured if ":" not in one.get("Subnet", ":")), "")

    def gateway(self, network: str) -> str:
        """The address that this machine has on the network, empty when it has none."""
        with self._asking(f"looking at network {network}"):
            configured = self._api.inspect_network(network)["IPAM"]["Config"] or []
        return next((str(one["Gateway"]) for one in configured if one.get("Gateway")), "")

    def remove_network(self, name: str) -> None:
        """One that is not there is no error; one that containers hang on is (DockerRefused)."""
        try:
            with self._asking(f"removing network {name}"):
                self._api.remove_network(name)
        except NotThere:
            return

    def networks(self, owner: str = "", run_id: str = "") -> dict[str, Ownership]:
        """Name -> whose it is, for those that Gradstorm made, ascending."""
        with self._asking("listing networks"):
            found = self._api.networks(filters={"label": _label_filter(owner, run_id)})
        return _owned(found)

    def volumes(self, owner: str = "", run_id: str = "") -> dict[str, Ownership]:
        """Name -> whose it is, for the volumes that Gradstorm made, ascending."""
        with self._asking("listing volumes"):
            found = self._api.volumes(filters={"label": _label_filter(owner, run_id)})["Volumes"] or []
        return _owned(found)

    def remove_volume(self, name: str) -> None:
        """One that is not there is no error."""
        try:
            with self._asking(f"removing volume {name}"):
                self._api.remove_volume(name)
        except NotThere:
            return

    def disconnect(self, container: str, network: str) -> Attachment:
        """Take it off the network; returns what `connect` wants to put it back."""
        there = [one for one in self.inspect(container).attachments if one.network == network]
        if not there:
            raise NotThere(f"{container} is not on network {network}")
        with self._asking(f"taking {container} off {network}"):
            self._api.disconnect_container_from_network(container, network)
        return there[0]

    def connect_to(self, container: str, attachment: Attachment, same_address: bool = False) -> Attachment:
        """Put it on a network with its aliases; returns how it hangs there now, perhaps at another address.

        `same_address` asks for the one it had, which works on networks whose subnet was given by hand.
        """
        address = attachment.address if same_address else None
        with self._asking(f"putting {container} on {attachment.network}"):
            self._api.connect_container_to_network(
                container, attachment.network, aliases=list(attachment.aliases) or None, ipv4_address=address
            )
        return next(one for one in self.inspect(container).attachments if one.network == attachment.network)

    # ------------------------------------------------------------ containers

    def start(self, spec: ContainerSpec) -> ContainerState:
        """Create and start it; one that does not start is removed again. Raises NameTaken, ImageMissing, …"""
        api = self._api
        first, *others = spec.attachments
        host = api.create_host_config(
            network_mode=first.network,
            restart_policy={"Name": "no"},
            cap_drop=["ALL"],
            security_opt=["no-new-privileges"],
            mem_limit=spec.memory_bytes or None,
            memswap_limit=spec.memory_bytes or None,  # the same: no swap on top
            nano_cpus=round(spec.cpus * 1e9) or None,
            sysctls=dict(spec.sysctls) or None,
            port_bindings=dict.fromkeys(spec.ports, ("127.0.0.1", None)),  # a free one, given by the daemon
            mounts=[Mount(inside, str(outside), type="bind") for outside, inside in spec.folders],
        )
        endpoint = api.create_endpoint_config(aliases=list(first.aliases) or None, ipv4_address=first.address or None)
        with self._asking(f"creating {spec.name}"):
            made = api.create_container(
                spec.image,
                list(spec.command),
                name=spec.name,
                entrypoint=list(spec.entrypoint) if spec.entrypoint is not None else None,
                environment=dict(spec.environment),
                user=spec.user or None,
                hostname=spec.hostname or None,
                healthcheck=None if spec.health_check else {"test": ["NONE"]},
                labels=spec.labels,
                ports=list(spec.ports),
                host_config=host,
                networking_config=api.create_networking_config({first.network: endpoint}),
            )
        try:
            for attachment in others:
                self.connect_to(made["Id"], attachment)
            with self._asking(f"starting {spec.name}"):
                api.start(made["Id"])
        except BaseException:
            self.remove(made["Id"])
            raise
        return self.inspect(made["Id"])

    def inspect(self, container: str) -> ContainerState:
        """Raises NotThere."""
        with self._asking(f"looking at {container}"):
            return read_container(self._api.inspect_container(container))

    def containers(self, owner: str = "", run_id: str = "") -> list[ContainerState]:
        """Those that Gradstorm started, of one owner or run if named, running or not, by name."""
        with self._asking("listing containers"):
            found = self._api.containers(all=True, filters={"label": _label_filter(owner, run_id)})
        states = []
        for one in found:
            try:
                states.append(self.inspect(one["Id"]))
            except NotThere:  # removed between the two looks
                continue
        return sorted((state for state in states if state.whose is not None), key=lambda state: state.name)

    def kill(self, container: str, wait_s: float = CALL_TIMEOUT_S) -> ContainerState:
        """SIGKILL, paused or not; returns how it ended. Raises NotRunning when there was no process to kill."""
        if not self.inspect(container).alive:
            raise NotRunning(f"killing {container}: it has no process")
        with self._asking(f"killing {container}"):
            self._api.kill(container, "SIGKILL")
        return self.wait_exit(container, wait_s)

    def pause(self, container: str) -> ContainerState:
        """Freeze every process in it; its connections stay open. Raises NotRunning."""
        for tries_left in reversed(range(_FREEZES)):
            try:
                with self._asking(f"pausing {container}"):
                    self._api.pause(container)
                break
            except DockerRefused as error:
                if "unable to freeze" not in str(error) or not tries_left:  # runc gives up too soon on a busy machine
                    raise
        return self.inspect(container)

    def unpause(self, container: str) -> ContainerState:
        """Raises NotRunning when it is not paused."""
        with self._asking(f"resuming {container}"):
            self._api.unpause(container)
        return self.inspect(container)

    def stop(self, container: str, grace_s: float) -> ContainerState:
        """SIGTERM, and SIGKILL after `grace_s`; returns how it ended. One that is stopped already is no error."""
        with self._asking(f"stopping {container}"):
            self._api.stop(container, timeout=round(grace_s))  # the SDK adds this to its own timeout
        return self.wait_exit(container, self._timeout_s)

    def wait_exit(self, container: str, timeout_s: float) -> ContainerState:
        """Return once its process is gone. Raises DockerHung, with its state, when it is not in time."""
        try:
            with self._asking(f"waiting for the end of {container}"):
                self._api.wait(container, timeout=timeout_s)
        except DockerHung as error:
            state = self.inspect(container)
            raise DockerHung(f"{container} is still {state.status} after {timeout_s:g} s") from error
        return self.inspect(container)

    def remove(self, container: str) -> None:
        """Kill and remove it with its anonymous volumes; one that is not there, or on its way out, is no error."""
        try:
            with self._asking(f"removing {container}"):
                self._api.remove_container(container, force=True, v=True)
        except NotThere:
            return
        except DockerError as error:
            if "is already in progress" not in str(error):
                raise

    def log_tail(self, container: str, lines: int = 8) -> str:
        """The end of what it wrote, for a message about why it is not there. The two streams may be out of order."""
        with self._asking(f"reading the log of {container}"):
            content: bytes = self._api.logs(container, stdout=True, stderr=True, tail=lines)
        return content.decode(errors="replace").rstrip()

    def execute(self, container: str, command: tuple[str, ...]) -> str:
        """What a command says on its standard output inside a running container. Raises DockerRefused when it fails."""
        with self._asking(f"running {command[0]} in {container}"):
            made = self._api.exec_create(container, list(command), stderr=False)["Id"]
            said: bytes = self._api.exec_start(made)
            code = self._api.exec_inspect(made)["ExitCode"]
        if code != 0:
            raise DockerRefused(f"{command[0]} in {container} ended with exit code {code}")
        return said.decode(errors="replace")

    def info(self) -> dict[str, Any]:
        """What the daemon says of itself: MemTotal, NCPU, DockerRootDir, …"""
        with self._asking("asking about itself"):
            return dict(self._api.info())

    # ------------------------------------------------------------ for the watcher of events

    def open_events(self, filters: Mapping[str, list[str]], since: str) -> Any:
        """The SDK's stream of events; `next` waits without limit, `close` from another thread ends it."""
        with self._asking("watching events"):
            return self._api.events(since=since, filters=dict(filters), decode=True)

    def now(self) -> str:
        """The daemon's clock (RFC 3339): what to watch events from."""
        with self._asking("asking for its clock"):
            return str(self._api.info()["SystemTime"])

    def _asking(self, what: str) -> AbstractContextManager[None]:
        return translated(what, str(self.target))


def _owned(found: list[Any]) -> dict[str, Ownership]:
    whose = {str(thing["Name"]): read_ownership(thing.get("Labels") or {}) for thing in found}
    return {name: owned for name, owned in sorted(whose.items()) if owned is not None}


def _label_filter(owner: str, run_id: str) -> list[str]:
    return [f"{OWNER}={owner}" if owner else OWNER] + ([f"{RUN}={run_id}"] if run_id else [])


def _repository_and_tag(image: str) -> tuple[str, str | None]:
    repository, colon, tag = image.rpartition(":")
    if not colon or "/" in tag or "@" in image:
        return image, None if "@" in image else "latest"
    return repository, tag
