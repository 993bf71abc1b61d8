"""Messages of layer-sharded training; part of `services.messages`, where their union is."""

from __future__ import annotations

from dataclasses import dataclass

from services.members import Member


@dataclass(frozen=True, slots=True)
class OpenShards:
    """Coordinator -> every shard: do this attempt of `step` (or, with `evaluate`, the evaluation after `step`).

    `skip`: something was not finite, so prepare the state as it is, with the batch counted as drawn.
    """

    generation: int
    step: int
    attempt: int
    evaluate: bool
    members: tuple[Member, ...]
    skip: bool = False


@dataclass(frozen=True, slots=True)
class Boundary:
    """Shard -> neighbour: what crosses cut `cut` for one micro-batch. `payload` is the codec's own format.

    direction: forward (activation), backward (activation gradient), evaluate (activation, no way back). `age` counts
    ticks between production and use. The version is (generation, step, attempt, micro_batch, cut, direction).
    `sent_us` is the link's: the monotonic clock as the message went onto it.
    """

    generation: int
    step: int
    attempt: int
    micro_batch: int
    cut: int
    direction: str
    age: int
    payload: bytes
    sent_us: int = 0


@dataclass(frozen=True, slots=True)
class Prepared:
    """Shard -> coordinator: my state after `step` is computed and, unless `file` is empty, durable in `file`."""

    generation: int
    step: int
    attempt: int
    file: str
    parameters_digest: str
    moments_digest: str
    loss: float  # of the whole batch; only the last shard knows it, the others say 0
    error: str = ""


@dataclass(frozen=True, slots=True)
class CommitShards:
    """Coordinator -> every shard: (step, attempt) stands; swap it in."""

    generation: int
    step: int
    attempt: int


@dataclass(frozen=True, slots=True)
class Swapped:
    """Shard -> coordinator: I stand at `step`."""

    generation: int
    step: int
    parameters_digest: str
    moments_digest: str


@dataclass(frozen=True, slots=True)
class Evaluated:
    """Last shard -> coordinator: the evaluation loss after `step`."""

    generation: int
    step: int
    loss: float


@dataclass(frozen=True, slots=True)
class NotFinite:
    """Shard -> coordinator: something of this attempt is NaN or infinite; nothing was sent or applied."""

    generation: int
    step: int
    attempt: int
    what: str


@dataclass(frozen=True, slots=True)
class StaleBoundary:
    """Shard -> coordinator: a boundary older than the bound arrived; it was not used."""

    generation: int
    step: int
    attempt: int
    micro_batch: int
    cut: int
    direction: str
    age: int
    bound: int


@dataclass(frozen=True, slots=True)
class AdoptShard:
    """Coordinator -> joining shard: load `file` (empty: the initial state) and prove it. Empty digests: not known."""

    generation: int
    step: int
    file: str
    parameters_digest: str
    moments_digest: str


@dataclass(frozen=True, slots=True)
class ProvedShard:
    """Joining shard -> coordinator: I hold the state after `step`. `error`: why I do not."""

    generation: int
    step: int
    parameters_digest: str
    moments_digest: str
    error: str = ""
