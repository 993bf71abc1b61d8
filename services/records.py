"""Facts: what roles report to the verifier. All of a run's facts, numbered and in order, are its history.

A fact carries no wall time. Fields are ints, floats, strings, bools, tuples and dicts of those, or arrays (fields
typed `Array | None`, which travel and are stored beside the JSON). Digests are SHA-256 hex of the canonical float64
bytes (`training.digest.array_digest`). The reporter of a fact is in the history line, not in the fact.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import get_args

from services.members import (
    Array,
)
from services.quick import quicken
from services.shard_records import (
    BoundarySent,
    BoundaryUsed,
    ShardLoaded,
    ShardPrepared,
    ShardProven,
    ShardsCommitted,
    ShardsEvaluated,
    ShardsOpened,
    ShardsRolledBack,
    ShardsSwapped,
    ShardSwapped,
    Stale,
)

# ---------------------------------------------------------------- coordinator


@dataclass(frozen=True, slots=True)
class RunStarted:
    """First fact of a run. `config_json` is the `RunConfig`; the state is the one that step `step` + 1 starts from.

    A fresh run starts at step 0 from initial parameters; `resumed_from` names run and checkpoint otherwise, and
    `sampler_json` is the sampler state that the checkpoint held.
    """

    config_json: str
    dataset_sha256: str
    step: int
    sampler_json: str
    parameters_digest: str
    velocity_digest: str
    parameters: Array | None = None
    velocity: Array | None = None
    resumed_from: str = ""


@dataclass(frozen=True, slots=True)
class Recovered:
    """A relaunched coordinator read its log: it stands at `step`, having raised the generation."""

    incarnation: int
    step: int
    generation: int
    undecided: str  # "" or what was open when it died: "open", "close", "commit"


@dataclass(frozen=True, slots=True)
class Admitted:
    worker: int
    incarnation: int
    numerics: str


@dataclass(frozen=True, slots=True)
class DataChecked:
    """A worker (or shard) holds the run's data; `numerics` is its fingerprint, the run's own model included."""

    worker: int
    incarnation: int
    numerics: str


@dataclass(frozen=True, slots=True)
class Refused:
    """A message or caller was refused. `incarnation` and `generation` are the sender's, `current` the receiver's.

    reason: "old generation" | "old incarnation" | "not a member" | "late" | "duplicate" | "conflict" | "contract"
    | "digest" | "numerics" | "dataset" | "claimed" | …
    """

    what: str
    source: str
    incarnation: int
    generation: int
    step: int
    reason: str
    current_generation: int


@dataclass(frozen=True, slots=True)
class Died:
    """The coordinator holds the member for dead. reason: "link broken" | "lease ended" | "left"."""

    worker: int
    incarnation: int
    reason: str
    step: int


@dataclass(frozen=True, slots=True)
class Regrouped:
    """A new generation is durable. `members` are (worker, incarnation), ascending."""

    generation: int
    members: tuple[tuple[int, int], ...]
    step: int
    reason: str


@dataclass(frozen=True, slots=True)
class Proven:
    """A joiner's state after `step` was proved by hash; it takes part from step + 1 on."""

    worker: int
    incarnation: int
    step: int
    generation: int
    parameters_digest: str
    velocity_digest: str


@dataclass(frozen=True, slots=True)
class Opened:
    """Step `step` is open, durably. `deals`: worker id (as a string) -> sample ids. `remaining` counts before it."""

    step: int
    generation: int
    epoch: int
    deals: dict[str, tuple[int, ...]]
    remaining: int


@dataclass(frozen=True, slots=True)
class Closed:
    """Contributors of an attempt: (worker, incarnation, n), ascending. `left_out`: (worker, reason)."""

    step: int
    generation: int
    attempt: int
    contributors: tuple[tuple[int, int, int], ...]
    total: int
    left_out: tuple[tuple[int, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Committed:
    """The decision, after it is durable and before it is told. Lists run parallel to `contributors`."""

    step: int
    generation: int
    attempt: int
    epoch: int
    contributors: tuple[tuple[int, int, int], ...]
    sample_ids: tuple[tuple[int, ...], ...]
    digests: tuple[str, ...]
    total: int
    reduced_digest: str
    loss: float
    skip: bool = False
    offenders: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class StepApplied:
    """Every live member has applied `step`. `applied`: (worker, incarnation, parameters digest, velocity digest)."""

    step: int
    generation: int
    applied: tuple[tuple[int, int, str, str], ...]


@dataclass(frozen=True, slots=True)
class Published:
    """The checkpoint pointer names `name`, durably."""

    step: int
    name: str
    writer: int
    incarnation: int
    parameters_digest: str
    velocity_digest: str
    sampler_json: str


@dataclass(frozen=True, slots=True)
class RolledBack:
    """Durable: steps above `to_step` are void; everybody restarts from checkpoint `name`. `damaged`: (name, why)."""

    to_step: int
    generation: int
    name: str
    parameters_digest: str
    velocity_digest: str
    sampler_json: str
    reason: str
    damaged: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Finished:
    step: int
    condition: str  # "finished" or what stopped the run
    reason: str = ""


# ---------------------------------------------------------------- workers and server


@dataclass(frozen=True, slots=True)
class Contributed:
    """A worker's gradient over its samples at the parameters after step - 1. `gradient` only for small models."""

    worker: int
    incarnation: int
    generation: int
    step: int
    sample_ids: tuple[int, ...]
    digest: str
    loss: float
    gradient: Array | None = None


@dataclass(frozen=True, slots=True)
class Summed:
    """The order in which contributions were added, as the finished value carries it."""

    role: str
    step: int
    attempt: int
    generation: int
    order: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Reduced:
    """The reduced gradient of an attempt as its holder has it. From the lowest live contributor, or on demand."""

    worker: int
    incarnation: int
    step: int
    attempt: int
    generation: int
    digest: str
    order: tuple[int, ...]
    value: Array | None = None


@dataclass(frozen=True, slots=True)
class StateApplied:
    """A member's state after `step` (its own digests). Also told by a joiner that adopted it (`adopted`)."""

    worker: int
    incarnation: int
    generation: int
    step: int
    parameters_digest: str
    velocity_digest: str
    adopted: bool = False


@dataclass(frozen=True, slots=True)
class CheckpointWritten:
    """A member made checkpoint `name` durable: every file and the folder synced before it was told."""

    worker: int
    incarnation: int
    step: int
    name: str
    parameters_digest: str
    velocity_digest: str
    sampler_json: str


# ---------------------------------------------------------------- host, disk and driver


@dataclass(frozen=True, slots=True)
class Durable:
    """Told by the host, not the role, when a `Persist` has returned.

    `operations` counts by kind ("write", "append", "sync_file", "rename", "sync_dir", "make_dir", "remove").
    "early_rename" counts the renames, if any, of what was not synced at that moment.
    what: "open 7" | "close 7.0" | "commit 7.0" | "skip 7.0" | "generation 3" | "admission 2.5" | "rollback 4" |
    "checkpoint 8 <name>" | "publish 8 <name>" | …
    """

    what: str
    operations: dict[str, int]


@dataclass(frozen=True, slots=True)
class FaultArmed:
    """The driver armed a fault. `trigger` is {"role", "step", "phase", "chunk"} or {"at_ms"}."""

    fault: str  # unique within the run, e.g. "1-kill-worker-2"
    kind: str
    target: str
    trigger: dict[str, str | int | float]


@dataclass(frozen=True, slots=True)
class FaultActed:
    """The fault acted, with the witness: exit code, phase stood at, messages dropped, milliseconds measured, …"""

    fault: str
    witness: dict[str, str | int | float]


@dataclass(frozen=True, slots=True)
class FaultUndone:
    fault: str
    witness: dict[str, str | int | float]


@dataclass(frozen=True, slots=True)
class FaultMissed:
    """The fault never acted (its trigger was not reached, or it had no effect). Makes a named scenario unknown."""

    fault: str
    reason: str


@dataclass(frozen=True, slots=True)
class Healed:
    """All faults are undone; a step must commit within `bound_ms` of the role clock, `clean_steps` steps in all.

    `step` is the newest committed one that the driver had heard of: records of different reporters arrive in any
    order, above all at a verifier that was away. -1: not told; then the order of arrival decides.
    """

    bound_ms: float
    clean_steps: int
    step: int = -1


@dataclass(frozen=True, slots=True)
class Expectation:
    """What the scenario promises beside the invariants: e.g. {"refused_stale": 1}. Told by the driver at the start."""

    scenario: str
    fixed: bool
    promises: dict[str, str | int | float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Ended:
    """Last line of a history, written by the verifier: how many lines before it, and records by source and launch."""

    lines: int
    reporters: dict[str, int]
    excused: dict[str, str] = field(default_factory=dict)


Fact = (
    RunStarted | Recovered | Admitted | DataChecked | Refused | Died | Regrouped | Proven | Opened | Closed | Committed
    | StepApplied | Published | RolledBack | Finished | Contributed | Summed | Reduced | StateApplied
    | CheckpointWritten | ShardsOpened | ShardsCommitted | ShardsSwapped | ShardsRolledBack | ShardsEvaluated
    | ShardProven | Stale | ShardLoaded | BoundarySent | BoundaryUsed | ShardPrepared | ShardSwapped
    | Durable | FaultArmed | FaultActed | FaultUndone | FaultMissed | Healed | Expectation | Ended
)  # fmt: skip

quicken(*get_args(Fact))
