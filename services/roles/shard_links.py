"""A shard's boundaries: who may send which, how old they may be, how long ours wait, and what is recorded of them.

The delay of a boundary is drawn from the seed by its sender, really waited, and stamped on it as its age; the age alone
decides whether the receiver may use it (`max_staleness`) and how it is scaled (decay). Where the run says that ages are
measured the sender does not wait, and the receiver gives it the ticks that it was on its way.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import replace

from services.events import Note, Record, Send, SetTimer, shard_name
from services.messages import AdoptShard, Array, Boundary, StaleBoundary
from services.records import BoundarySent, BoundaryUsed
from services.roles.joining import Joining
from services.roles.shard_work import ShardWork
from services.shard_config import ShardRunConfig
from services.shard_jobs import Arrived, Crossing, HeldCorpus, OpenCorpusJob, ShardState
from training.boundary_codec.payload import HEADER_BYTES
from training.staleness import decay_weight, delay_ticks
from training.tokens import Corpus
from training.transformer.sharding import ShardSpec


class ShardLinks(Joining[ShardRunConfig, HeldCorpus]):
    """See the module's docstring."""

    @property
    def name(self) -> str:
        return shard_name(self.number)

    def _read_config(self, text: str) -> ShardRunConfig:
        return ShardRunConfig.from_json(text)

    def _open_job(self, blob: bytes) -> OpenCorpusJob:
        return OpenCorpusJob(blob, self.config)

    def _reset(self) -> None:
        super()._reset()
        self.state: ShardState | None = None
        self._work: ShardWork | None = None
        self._adopting: AdoptShard | None = None
        self._waiting: dict[str, tuple[str, Boundary]] = {}  # timer -> receiver and what it waits with
        # By source, direction and micro-batch: its newest, and how long that was on its way.
        self._early: dict[tuple[str, str, int], tuple[Boundary, float]] = {}

    @property
    def spec(self) -> ShardSpec:
        return self.config.specs[self.number - 1]

    @property
    def corpus(self) -> Corpus:
        assert self._data is not None
        return self._data.corpus

    @property
    def parameters(self) -> Array:
        assert self.state is not None
        return self.state.snapshot.parameters

    # ------------------------------------------------------------ in

    def _aged(self, boundary: Boundary, transit_ms: float) -> Boundary:
        """With the age that counts: the one that it brings, or the one that is measured. Evaluations have none."""
        staleness = None if self._config is None else self.config.staleness
        if staleness is None or staleness.age == "injected" or boundary.direction == "evaluate":
            return boundary
        return replace(boundary, age=math.floor(transit_ms / staleness.tick_ms))

    def _boundary(self, source: str, boundary: Boundary, transit_ms: float) -> None:
        """Take a boundary of this attempt; keep one of a newer attempt; refuse all others."""
        key = (boundary.generation, boundary.step, boundary.attempt)
        if self._config is None or boundary.generation < self.generation:
            self._refuse(source, boundary, "old generation")
        elif self._work is None or key > self._work.key:
            self._keep_early(source, boundary, transit_ms)
        elif key < self._work.key:
            self._refuse(source, boundary, "late")
        else:
            self._accept(self._work, source, boundary, transit_ms)

    def _keep_early(self, source: str, boundary: Boundary, transit_ms: float) -> None:
        """Of an attempt that is not open here yet: what a neighbour may send, and of each version the newest.

        So no more is kept than one attempt can need, whatever attempt somebody claims.
        """
        version = (source, boundary.direction, boundary.micro_batch)
        kept = self._early[version][0] if version in self._early else None
        if not self._fits(source, boundary, evaluate=boundary.direction == "evaluate"):
            self._refuse(source, boundary, "contract")
        elif kept is None or _key(boundary) > _key(kept):
            self._early[version] = boundary, transit_ms
        else:
            self._refuse(source, boundary, "duplicate" if _key(boundary) == _key(kept) else "late")

    def _take_early(self) -> None:
        work = self._work
        assert work is not None
        early, self._early = self._early, {}
        for version, (boundary, transit_ms) in early.items():
            if _key(boundary) == work.key:
                self._accept(work, version[0], boundary, transit_ms)
            elif _key(boundary) > work.key:
                self._early[version] = boundary, transit_ms

    def _fits(self, source: str, boundary: Boundary, evaluate: bool) -> bool:
        """Whether it is a boundary that this neighbour hands to this shard, and no larger than one can be."""
        config = self.config
        cut, sender = (self.number, self.number + 1) if boundary.direction == "backward" else (self.number - 1,) * 2
        if source != shard_name(sender) or boundary.cut != cut:
            return False
        directions = ("evaluate",) if evaluate else ("forward", "backward")
        count = 1 if evaluate else config.micro_batches
        if boundary.direction not in directions or boundary.age < 0 or not 0 <= boundary.micro_batch < count:
            return False
        contexts = config.evaluation_contexts if evaluate else -(-config.batch // config.micro_batches)
        elements = contexts * config.model.context * config.model.width
        return len(boundary.payload) <= HEADER_BYTES + 8 * elements  # dense is the largest

    def _accept(self, work: ShardWork, source: str, boundary: Boundary, transit_ms: float) -> None:
        if not self._fits(source, boundary, work.evaluate):
            self._refuse(source, boundary, "contract")
        elif boundary.age > self.config.staleness.max_staleness:
            self._stale(boundary)
        elif not work.keep(boundary, transit_ms):
            self._refuse(source, boundary, "duplicate")

    def _stale(self, boundary: Boundary) -> None:
        bound = self.config.staleness.max_staleness
        self._answer(
            StaleBoundary(
                boundary.generation, boundary.step, boundary.attempt, boundary.micro_batch, boundary.cut,
                boundary.direction, boundary.age, bound,
            )
        )  # fmt: skip

    def _use(self, work: ShardWork, direction: str, micro_batch: int) -> Arrived:
        """The boundary of this version, once, with the weight that its age gives it."""
        boundary, transit_ms = work.take(direction, micro_batch)
        weight = self._weight(boundary)
        contexts, length = work.contexts(micro_batch), work.batch.inputs.shape[1]
        if direction != "evaluate":
            measured = self.config.staleness.age == "measured"
            fact = BoundaryUsed(
                self.number, self.incarnation, *_key(boundary), micro_batch, boundary.cut, direction, boundary.age,
                transit_ms if measured else 0.0, weight, len(boundary.payload),
                hashlib.sha256(boundary.payload).hexdigest(),
            )  # fmt: skip
            self._now_out.append(Record(fact))
        return Arrived(boundary.payload, (contexts, length, self.config.model.width), weight)

    def _weight(self, boundary: Boundary) -> float:
        decay = self.config.staleness.decay
        if decay is None or boundary.direction == "evaluate":
            return 1.0
        return decay_weight(boundary.age, decay.rate, decay.floor)

    # ------------------------------------------------------------ out

    def _hand_on(self, work: ShardWork, direction: str, micro_batch: int, crossing: Crossing) -> None:
        """Send to the neighbour, after the delay that the seed says."""
        cut, receiver = (self.number - 1,) * 2 if direction == "backward" else (self.number, self.number + 1)
        ticks = self._delay_ticks(work, direction, micro_batch, cut)
        boundary = Boundary(*work.key, micro_batch, cut, direction, ticks, crossing.payload)
        if direction != "evaluate":
            compression = self.config.compression if direction == "forward" else None
            kept = compression.keep_percent / 100 if compression else 1.0
            fact = BoundarySent(
                self.number, self.incarnation, *work.key, micro_batch, cut, direction, ticks, len(crossing.payload),
                hashlib.sha256(crossing.payload).hexdigest(), kept, crossing.dense,
            )  # fmt: skip
            self._now_out.append(Record(fact))
        if ticks == 0:
            self._now_out.append(Send(shard_name(receiver), boundary))
            return
        timer = f"boundary {' '.join(map(str, work.key))} {micro_batch} {cut} {direction}"
        self._waiting[timer] = (shard_name(receiver), boundary)
        self._now_out.append(SetTimer(timer, ticks * self.config.staleness.tick_ms))

    def _delay_ticks(self, work: ShardWork, direction: str, micro_batch: int, cut: int) -> int:
        if direction == "evaluate":
            return 0
        way = "backward" if direction == "backward" else "forward"
        return delay_ticks(self.config.staleness.delay, self.config.seed, work.key[1], micro_batch, cut, way)  # type: ignore[arg-type]

    def _due(self, timer: str) -> None:
        """A boundary has waited; it goes, unless its attempt is over."""
        waiting = self._waiting.pop(timer, None)
        if waiting is None:
            return
        receiver, boundary = waiting
        if self._work is not None and self._work.key == _key(boundary):
            self._now_out.append(Send(receiver, boundary))
        else:
            self._now_out.append(Note(f"{timer} is not sent: its attempt is over"))


def _key(boundary: Boundary) -> tuple[int, int, int]:
    return boundary.generation, boundary.step, boundary.attempt
