"""Facts of layer-sharded training; part of `services.records`, where their union is."""

from __future__ import annotations

from dataclasses import dataclass

from services.members import Array

PARTS_ELEMENTS_MAX = 1 << 16  # of one shard and step: so many are recorded apart, micro-batch by micro-batch


@dataclass(frozen=True, slots=True)
class ShardsOpened:
    """Durable: this attempt of `step` is told to every shard. `members`: (shard, incarnation).

    `skip`: who said that what is not finite, so that this attempt changes nothing; empty for every other attempt.
    """

    step: int
    generation: int
    attempt: int
    members: tuple[tuple[int, int], ...]
    skip: str = ""


@dataclass(frozen=True, slots=True)
class ShardsCommitted:
    """Durable, before it is told: (step, attempt) stands with these states.

    `prepared`: (shard, incarnation, file or "", parameters digest, moments digest), ascending.
    """

    step: int
    generation: int
    attempt: int
    prepared: tuple[tuple[int, int, str, str, str], ...]
    loss: float


@dataclass(frozen=True, slots=True)
class ShardsSwapped:
    """Every live shard stands at `step`. `swapped`: (shard, incarnation, parameters digest, moments digest)."""

    step: int
    generation: int
    swapped: tuple[tuple[int, int, str, str], ...]


@dataclass(frozen=True, slots=True)
class ShardsRolledBack:
    """Durable: steps above `to_step` are void; every shard loads `files` ("" is the initial state)."""

    to_step: int
    generation: int
    files: tuple[tuple[int, str], ...]
    reason: str


@dataclass(frozen=True, slots=True)
class ShardsEvaluated:
    step: int
    generation: int
    loss: float


@dataclass(frozen=True, slots=True)
class ShardProven:
    """A joining shard's state after `step` was accepted."""

    shard: int
    incarnation: int
    step: int
    generation: int
    file: str
    parameters_digest: str
    moments_digest: str


@dataclass(frozen=True, slots=True)
class Stale:
    """A boundary older than the bound arrived and stopped the run."""

    shard: int
    step: int
    attempt: int
    micro_batch: int
    cut: int
    direction: str
    age: int
    bound: int


@dataclass(frozen=True, slots=True)
class ShardLoaded:
    """A shard's own state as it starts from it; the arrays only at step 0, where nothing precedes them."""

    shard: int
    incarnation: int
    generation: int
    step: int
    file: str
    parameters_digest: str
    moments_digest: str
    parameters: Array | None = None


@dataclass(frozen=True, slots=True)
class BoundarySent:
    """What a shard handed on. `payload_sha256` and `payload_bytes` are of the payload field; `dense` is its input."""

    shard: int
    incarnation: int
    generation: int
    step: int
    attempt: int
    micro_batch: int
    cut: int
    direction: str
    age: int
    payload_bytes: int
    payload_sha256: str
    density: float
    dense: Array | None = None
    decoded: Array | None = None


@dataclass(frozen=True, slots=True)
class BoundaryUsed:
    """What a shard used: the payload as it was received, its age and the weight that it was scaled by.

    `transit_ms`: how long it was on its way, from the sender's link to ours, where ages are measured; else 0.0.
    """

    shard: int
    incarnation: int
    generation: int
    step: int
    attempt: int
    micro_batch: int
    cut: int
    direction: str
    age: int
    transit_ms: float
    weight: float
    payload_bytes: int
    payload_sha256: str


@dataclass(frozen=True, slots=True)
class ShardPrepared:
    """A shard's state after `step`, computed and (unless `file` is empty) durable. `gradient` for the judge.

    `parts`: the gradients of the micro-batches (see `has_parts`), one behind the other, so that the judge can replay
    their sum bitwise: its order is below what a tolerance sees.
    """

    shard: int
    incarnation: int
    generation: int
    step: int
    attempt: int
    file: str
    loss: float
    parameters_digest: str
    moments_digest: str
    gradient: Array | None = None
    parts: Array | None = None


def has_parts(gradient_elements: int, micro_batches: int) -> bool:
    """Whether the micro-batches' gradients are recorded beside their sum: more than one, and not too large."""
    return micro_batches > 1 and gradient_elements * micro_batches <= PARTS_ELEMENTS_MAX


@dataclass(frozen=True, slots=True)
class ShardSwapped:
    """A shard stands at `step`. `version` counts its commits since it was first loaded."""

    shard: int
    incarnation: int
    generation: int
    step: int
    parameters_digest: str
    moments_digest: str
