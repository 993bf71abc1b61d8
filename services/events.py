"""Events and effects: everything that can happen to a role, and everything that a role can want.

Read this file first. A role is a pure state machine with one entry point,

    handle(now_ms, event) -> list[Effect]

and nothing else moves it. It owns no clock, socket, thread, file or random source. Its caller (the simulator or
the gRPC shell, both by way of `services.host.Host`) has these duties:

1. Call `handle` for one event at a time, with a `now_ms` that never falls (monotonic, not wall clock).
2. Carry out the returned effects in order. `Send` may lose, delay or repeat a message when a link breaks, but
   messages that arrive over one link arrive in the order in which they were sent.
3. Answer every `Compute` with one `Computed`, every `Persist` with one `Persisted` or `PersistFailed`, every `Load`
   with one `Loaded`. `Persisted` is told only after every operation, syncs included, has returned.
4. Fire a timer once, no earlier than asked. Setting a timer again replaces it.
5. Treat `Phase` as the point at which an armed hold makes the role stand: later effects and events wait, while the
   transport and its heartbeats go on.
6. Number every `Record` and keep it until the verifier has stored it.
7. After `Stop`, flush the records and let the role go.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, get_args

from services.quick import quicken
from training.disk import DiskOp

if TYPE_CHECKING:
    from services.messages import Message
    from services.records import Fact

# Names of the single roles. Workers are "worker-<id>", shards "shard-<index>".
COORDINATOR = "coordinator"
SERVER = "server"
VERIFIER = "verifier"
DRIVER = "driver"


def worker_name(worker: int) -> str:
    """Name of the role that worker `worker` plays."""
    return f"worker-{worker}"


def worker_id(name: str) -> int:
    """Inverse of `worker_name`. Raises ValueError for a name that is no worker's."""
    kind, _, number = name.partition("-")
    if kind != "worker" or not number.isdigit():
        raise ValueError(f"{name!r} is not the name of a worker; expected worker-<number>")
    return int(number)


def shard_name(shard: int) -> str:
    """Name of the role that shard `shard` plays; shards count from 1, from the embedding to the head."""
    return f"shard-{shard}"


def shard_id(name: str) -> int:
    """Inverse of `shard_name`. Raises ValueError for a name that is no shard's."""
    kind, _, number = name.partition("-")
    if kind != "shard" or not number.isdigit():
        raise ValueError(f"{name!r} is not the name of a shard; expected shard-<number>")
    return int(number)


# ---------------------------------------------------------------- events


@dataclass(frozen=True, slots=True)
class Started:
    """The role's first event. `files` holds what its folder already had (path -> content) when it is a relaunch."""

    numerics: str
    address: str = ""
    files: Mapping[str, bytes] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Received:
    """A message from `source`, whose link proved the run's token and this incarnation (0: not admitted yet).

    `transit_ms`, of a `Boundary`: from its sender's link to ours, without what waited in an outbox or waits for the
    role. Only where both ends have one clock, that is on one machine, does it mean anything.
    """

    source: str
    incarnation: int
    message: Message
    transit_ms: float = 0.0


@dataclass(frozen=True, slots=True)
class Linked:
    """A link with `peer` is up; whatever was sent before and not answered may be lost."""

    peer: str
    incarnation: int


@dataclass(frozen=True, slots=True)
class Unlinked:
    """The link with `peer` broke. It may come back."""

    peer: str
    incarnation: int


@dataclass(frozen=True, slots=True)
class Heard:
    """A heartbeat of `peer`'s transport: its process lives and can reach us, whatever its role is doing."""

    peer: str
    incarnation: int


@dataclass(frozen=True, slots=True)
class TimerFired:
    name: str


@dataclass(frozen=True, slots=True)
class Computed:
    """The result of the `Compute` with this token. `error` is set, and `result` is None, when the job raised."""

    token: str
    result: Any
    error: str = ""


@dataclass(frozen=True, slots=True)
class Persisted:
    token: str


@dataclass(frozen=True, slots=True)
class PersistFailed:
    """The disk refused. `error_name` is errno's symbol (ENOSPC, EIO, …). Never retried by a role."""

    token: str
    error_name: str
    path: str


@dataclass(frozen=True, slots=True)
class Loaded:
    """The result of `Load`: what the job returned after it read the disk, or why it could not."""

    token: str
    result: Any
    error: str = ""


Event = Started | Received | Linked | Unlinked | Heard | TimerFired | Computed | Persisted | PersistFailed | Loaded


# ---------------------------------------------------------------- effects


@dataclass(frozen=True, slots=True)
class Send:
    to: str
    message: Message


@dataclass(frozen=True, slots=True)
class SendStored:
    """As `Send`, once the verifier has stored every record made so far; at once while it cannot be reached.

    The host keeps it until then, so a shell never sees it. What depends on the message then has its evidence.
    """

    to: str
    message: Message


@dataclass(frozen=True, slots=True)
class Cut:
    """Close every link with `peer` that claims `incarnation`: it is no longer a member."""

    peer: str
    incarnation: int


@dataclass(frozen=True, slots=True)
class Compute:
    """Run `job()` (a pure callable of `services.jobs`), perhaps on a thread, and answer with `Computed`."""

    token: str
    job: Any


@dataclass(frozen=True, slots=True)
class Persist:
    """Carry out `operations` on the role's disk, in order. `what` says what becomes durable, for the evidence."""

    token: str
    operations: tuple[DiskOp, ...]
    what: str


@dataclass(frozen=True, slots=True)
class Load:
    """Call `job(disk)` on the role's disk and answer with `Loaded`."""

    token: str
    job: Any


@dataclass(frozen=True, slots=True)
class SetTimer:
    name: str
    after_ms: float


@dataclass(frozen=True, slots=True)
class CancelTimer:
    name: str


@dataclass(frozen=True, slots=True)
class Record:
    """Evidence for the verifier."""

    fact: Fact


@dataclass(frozen=True, slots=True)
class Phase:
    """The role stands at a named point of its step. `chunk` counts chunks handled within `reduce`, else 0."""

    name: str
    step: int
    chunk: int = 0


@dataclass(frozen=True, slots=True)
class Note:
    """A decision and its reason, for the log."""

    text: str


@dataclass(frozen=True, slots=True)
class Identify:
    """From now on the role's links carry this incarnation (0: none)."""

    incarnation: int


@dataclass(frozen=True, slots=True)
class Stop:
    """The role is done. `condition` is "finished" or the name of what stopped it; `reason` is for people."""

    condition: str
    reason: str = ""


Effect = (
    Send | SendStored | Cut | Compute | Persist | Load | SetTimer | CancelTimer | Record | Phase | Note | Identify
    | Stop
)  # fmt: skip

quicken(*get_args(Event), *get_args(Effect))
