"""Messages between roles. `proto/gradstorm/v1/messages.proto` is the same contract on the wire.

Every message of a step carries its generation; the receiver refuses an old one and keeps a newer one than it knows.
Arrays are one-dimensional little-endian float64. Worker ids rise from 1. Sample ids index the training set.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import get_args

from services.members import (
    Array,
    Member,
)
from services.quick import quicken
from services.shard_messages import (
    AdoptShard,
    Boundary,
    CommitShards,
    Evaluated,
    NotFinite,
    OpenShards,
    Prepared,
    ProvedShard,
    StaleBoundary,
    Swapped,
)


@dataclass(frozen=True, slots=True)
class Share:
    """One contributor of a closed step and its number of samples."""

    worker: int
    incarnation: int
    sample_count: int


# ---------------------------------------------------------------- joining


@dataclass(frozen=True, slots=True)
class Join:
    """Worker -> coordinator: admit me. Asked again until answered."""

    worker: int
    launch: int  # starts of the worker's process, counted by whoever starts it
    address: str
    numerics: str
    dataset_sha256: str = ""  # of a local copy; empty when it wants the coordinator's


@dataclass(frozen=True, slots=True)
class Enlist:
    """Parameter server -> coordinator: I serve at this address."""

    address: str
    numerics: str


@dataclass(frozen=True, slots=True)
class Welcome:
    """Coordinator -> worker or server: admitted under this incarnation. `config_json` is a `RunConfig`."""

    incarnation: int
    generation: int
    config_json: str
    dataset_bytes: int


@dataclass(frozen=True, slots=True)
class Turned:
    """Coordinator -> anyone: you are refused. `fenced`: this incarnation is over; join again with fresh state."""

    incarnation: int
    reason: str
    fenced: bool


@dataclass(frozen=True, slots=True)
class WantData:
    """Worker -> coordinator: send the dataset from this byte on."""

    incarnation: int
    offset: int


@dataclass(frozen=True, slots=True)
class DataPart:
    """Coordinator -> worker: bytes of the dataset (safetensors form)."""

    offset: int
    total: int
    data: bytes


@dataclass(frozen=True, slots=True)
class DataHeld:
    """Worker -> coordinator: dataset held, its SHA-256 checked, `numerics` includes the run's own model."""

    incarnation: int
    dataset_sha256: str
    numerics: str


@dataclass(frozen=True, slots=True)
class Adopt:
    """Coordinator -> joiner: fetch the state after `step` from `source`, prove it by these digests."""

    generation: int
    step: int
    parameters_digest: str
    velocity_digest: str
    source: str
    source_address: str


@dataclass(frozen=True, slots=True)
class Proved:
    """Joiner -> coordinator: I hold the state after `step`; these are its digests as I computed them."""

    generation: int
    step: int
    parameters_digest: str
    velocity_digest: str


# ---------------------------------------------------------------- membership


@dataclass(frozen=True, slots=True)
class Regroup:
    """Coordinator -> members: the membership changed. What is unanswered is asked again under this generation."""

    generation: int
    members: tuple[Member, ...]
    server_address: str = ""


@dataclass(frozen=True, slots=True)
class Standing:
    """Worker -> coordinator after (re)linking: who and where I am. An old incarnation's is refused."""

    incarnation: int
    launch: int
    address: str
    generation: int
    applied_step: int


# ---------------------------------------------------------------- one step


@dataclass(frozen=True, slots=True)
class Open:
    """Coordinator -> member: compute the mean gradient over these samples at the parameters after step - 1."""

    generation: int
    step: int
    epoch: int
    sample_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Offer:
    """Member -> coordinator: I hold my gradient for `step` (or, with no samples, none)."""

    generation: int
    step: int
    sample_ids: tuple[int, ...]
    digest: str
    element_count: int
    finite: bool
    loss: float


@dataclass(frozen=True, slots=True)
class Close:
    """Coordinator -> members and server: exactly these contribute to this attempt, in this order."""

    generation: int
    step: int
    attempt: int
    contributors: tuple[Share, ...]
    total: int
    members: tuple[Member, ...]
    server_address: str = ""


@dataclass(frozen=True, slots=True)
class Part:
    """One chunk of an array between members, or between a member and the server.

    lane: chain (partial sum), lap (finished value), push (to server), publish (from server), value (fetched
    reduced gradient), state (fetched parameters, then velocity). `summed`: ids added so far, in order.
    """

    generation: int
    step: int
    attempt: int
    lane: str
    index: int
    count: int
    start: int
    total: int
    summed: tuple[int, ...]
    data: Array


@dataclass(frozen=True, slots=True)
class Fetch:
    """Ask a member (or the coordinator) for the reduced value of (step, attempt) or for the state after `step`.

    Some parts are sent from the one with index `first` on; the asker asks again for those behind them.
    """

    generation: int
    step: int
    attempt: int
    what: str  # "value" | "state"
    first: int = 0


@dataclass(frozen=True, slots=True)
class Ready:
    """Contributor -> coordinator: I hold the whole reduced value and have passed it on."""

    generation: int
    step: int
    attempt: int
    sample_ids: tuple[int, ...]
    own_digest: str
    reduced_digest: str
    finite: bool


@dataclass(frozen=True, slots=True)
class Commit:
    """Coordinator -> members: (step, attempt) stands. `skip`: advance without touching parameters or velocity.

    A member that does not hold the value fetches it from `source`.
    """

    generation: int
    step: int
    attempt: int
    skip: bool
    reduced_digest: str
    source: str
    source_address: str


@dataclass(frozen=True, slots=True)
class Applied:
    """Member -> coordinator: my state is the state after `step`."""

    generation: int
    step: int
    parameters_digest: str
    velocity_digest: str


@dataclass(frozen=True, slots=True)
class SaveCheckpoint:
    """Coordinator -> one member: write the state after `step`, with this sampler state (JSON)."""

    generation: int
    step: int
    sampler_json: str


@dataclass(frozen=True, slots=True)
class CheckpointSaved:
    """Member -> coordinator: `name` is durable, files and folder synced. `error` names the failure otherwise."""

    generation: int
    step: int
    name: str
    parameters_digest: str
    velocity_digest: str
    error: str = ""


@dataclass(frozen=True, slots=True)
class Finish:
    """Coordinator -> everyone: the run is over."""

    generation: int
    reason: str


# ---------------------------------------------------------------- evidence


@dataclass(frozen=True, slots=True)
class Numbered:
    """One record as it travels: its number within (source, launch), its kind and body as JSON, its arrays."""

    sequence: int
    kind: str
    body_json: str
    arrays: tuple[tuple[str, Array], ...] = ()


@dataclass(frozen=True, slots=True)
class Report:
    """Any role -> verifier: records. `launch` counts the starts of the reporting process. Empty: where do you stand?"""

    source: str
    launch: int
    records: tuple[Numbered, ...]


@dataclass(frozen=True, slots=True)
class Stored:
    """Verifier -> role: every record of (source, launch) up to this number is on disk (0: none)."""

    source: str
    launch: int
    through: int


@dataclass(frozen=True, slots=True)
class WantEvidence:
    """Verifier -> contributor: the reduced value of a committed step never reached me; send yours."""

    step: int
    attempt: int


@dataclass(frozen=True, slots=True)
class EvidenceStored:
    """Verifier -> contributors: the reduced values up to `step` are stored; let yours go."""

    step: int


@dataclass(frozen=True, slots=True)
class Conclude:
    """Driver -> verifier: nothing more will come.

    `expected_json`: source -> launch -> last number, or "excused: why" when its tail may be missing.
    """

    expected_json: str


@dataclass(frozen=True, slots=True)
class Judged:
    """Verifier -> driver, now and then: where the judge stands, for people who watch; it decides nothing.

    `verdicts_json`: invariant -> "pass", "violated" or "unknown" so far. `lag_lines`: durable, not judged yet.
    """

    step: int
    lag_lines: int
    verdicts_json: str


@dataclass(frozen=True, slots=True)
class Concluded:
    """Verifier -> driver: the verdict document."""

    verdict_json: str


Message = (
    Join | Enlist | Welcome | Turned | WantData | DataPart | DataHeld | Adopt | Proved | Regroup | Standing
    | Open | Offer | Close | Part | Fetch | Ready | Commit | Applied | SaveCheckpoint | CheckpointSaved | Finish
    | OpenShards | Boundary | Prepared | CommitShards | Swapped | Evaluated | StaleBoundary | NotFinite | AdoptShard
    | ProvedShard
    | Report | Stored | WantEvidence | EvidenceStored | Conclude | Concluded | Judged
)  # fmt: skip

quicken(Share, Numbered, *get_args(Message))
