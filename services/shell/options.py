"""Everything a role's shell is told, read once at the door and frozen."""

from __future__ import annotations

from dataclasses import dataclass, field

from training.errors import ConfigurationError

TOKEN_VARIABLE = "GRADSTORM_TOKEN"  # the run's secret is no argument: those are seen by every user of the machine


@dataclass(frozen=True, slots=True)
class TransportOptions:
    """Bounds of links. Both ends of a run use the same ones."""

    heartbeat_ms: float = 200.0
    measured: bool = False  # heartbeats carry the time, and the driver hears what comes in over each link
    hello_ms: float = 2000.0  # connection and handshake of one attempt to dial
    redial_first_ms: float = 20.0  # doubles up to the other one
    redial_last_ms: float = 500.0
    drain_ms: float = 500.0  # a link that we close ourselves may first send what it holds, for so long
    frame_bytes_max: int = 4 * 2**20  # larger encodings travel in fragments
    message_bytes_max: int = 2**30  # a message beyond this is refused
    outbox_bytes_max: int = 2**30  # a peer that lets more than this pile up is cut off
    idle_ms: float = 2_000.0  # who listens closes a connection without calls: grpc/grpc 42125
    ping_ms: float = 10_000.0  # HTTP/2 keepalive: finds dead connections; leases find dead members long before

    def __post_init__(self) -> None:
        if not 64 * 1024 <= self.frame_bytes_max <= self.message_bytes_max <= self.outbox_bytes_max:
            raise ConfigurationError(
                f"frame_bytes_max {self.frame_bytes_max}, message_bytes_max {self.message_bytes_max} and"
                f" outbox_bytes_max {self.outbox_bytes_max} must rise in this order, from 65536 on"
            )


@dataclass(frozen=True, slots=True)
class ShellOptions:
    """One launch of one role.

    `folder` is the root of the role's disk: the run folder, shared by all roles of one machine. `driver` is where the
    run's driver listens; empty for a role that is started by hand, which knows its `peers` (role, address) instead.
    `factory` is "module:function"; it is called with these options and returns the role.
    """

    role: str
    launch: int
    run_id: str
    token: str = field(repr=False)
    folder: str
    driver: str = ""
    peers: tuple[tuple[str, str], ...] = ()
    via: tuple[tuple[str, str], ...] = ()  # role -> where to dial it instead of where it listens: a proxy of our own
    listen: str = "127.0.0.1:0"
    advertise: str = ""  # how others reach this role, when it is not the address that it listens on
    factory: str = "services.shell.cast:make_role"
    settings_json: str = "{}"  # for the factory
    observe: bool = False  # tell the driver of every fact
    evidence: bool = True  # keep records for the verifier; a run without one has nobody to keep them for
    flush_ms: float = 5000.0  # after Stop: how long unstored records may take
    first_link_ms: float = 10_000.0  # no first link to the driver for so long ends the role; a loaded machine is slow
    orphan_ms: float = 2000.0  # the driver gone for so long, once linked, ends the role; its exit takes a while, too
    transport: TransportOptions = field(default_factory=TransportOptions)

    def __post_init__(self) -> None:
        if not self.token:
            raise ConfigurationError(f"{self.role} has no token: set {TOKEN_VARIABLE} to the run's")
        if self.launch < 1:
            raise ConfigurationError(f"launch is {self.launch}; launches count from 1")
