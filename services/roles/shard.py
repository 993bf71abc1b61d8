"""A shard: some contiguous layers of the model, on their own.

    joining -> loading (tokens) -> idle -> syncing (load the file that the coordinator names, prove) -> member

A step: open -> forward and backward over the micro-batches, boundary by boundary -> prepare (shadow state computed)
-> prepared (durable) -> commit -> committed (swapped). Until the commit the shard stands at the step before, and a
regroup or another attempt drops the shadow. Each boundary is used once, by the step and micro-batch it belongs to.
"""

from __future__ import annotations

import math

from services.events import (
    COORDINATOR,
    Compute,
    Computed,
    Effect,
    Event,
    Linked,
    Load,
    Loaded,
    Note,
    Persist,
    Persisted,
    PersistFailed,
    Phase,
    Received,
    Record,
    Started,
    Stop,
    TimerFired,
)
from services.messages import (
    AdoptShard,
    Boundary,
    CommitShards,
    DataPart,
    Evaluated,
    Finish,
    Message,
    NotFinite,
    OpenShards,
    Prepared,
    ProvedShard,
    Regroup,
    Swapped,
    Turned,
    Welcome,
)
from services.records import ShardLoaded, ShardPrepared, ShardSwapped
from services.roles.shard_links import ShardLinks
from services.roles.shard_work import ShardWork
from services.shard_jobs import (
    BackwardJob,
    EncodeShardJob,
    EvaluateJob,
    ForwardJob,
    HeldCorpus,
    InitialShardJob,
    LoadShardJob,
    LossJob,
    Returned,
    ShardRetentionJob,
    ShardState,
    SkipShardJob,
    UpdateShardJob,
    Went,
)
from training.errors import NonFiniteError
from training.shard_snapshot import file_name
from training.tokens import draw_batch, evaluation_batch
from training.transformer.step import mean_loss, micro_batches


class Shard(ShardLinks):
    """See the module's docstring. `number` counts from 1, from the embedding to the head."""

    # ------------------------------------------------------------ the loop

    def handle(self, now_ms: float, event: Event) -> list[Effect]:
        self._now_out = []
        match event:
            case Received(source, _, Boundary() as boundary, transit_ms):
                self._boundary(source, self._aged(boundary, transit_ms), transit_ms)
                self._advance()
            case Received(source, _, message):
                self._received(source, message)
            case Computed():
                self._computed(event)
            case Loaded(token, result, error):
                self._loaded(token, result, error)
            case Persisted(token):
                self._persisted(token, "")
            case PersistFailed(token, error_name, _):
                self._persisted(token, error_name)
            case Started(numerics, address):
                self._numerics, self._address = numerics, address
            case Linked(peer) if peer == COORDINATOR:
                self._linked = True
                self._present()
            case TimerFired("join"):
                self._present()
            case TimerFired(name):
                self._due(name)
            case _:
                pass
        return self._now_out

    # ------------------------------------------------------------ messages

    def _received(self, source: str, message: Message) -> None:
        match message:
            case Turned() if source == COORDINATOR:
                self._turned(message)
            case Welcome() if source == COORDINATOR:
                self._welcome(message)
            case DataPart() if source == COORDINATOR:
                self._data_part(message)
            case _ if source != COORDINATOR or self.incarnation == 0:
                self._refuse(source, message, "not the coordinator")
            case _ if getattr(message, "generation", 0) < self.generation:
                self._refuse(source, message, "old generation")
            case _:
                self.generation = getattr(message, "generation", self.generation)
                self._asked(message)

    def _asked(self, message: Message) -> None:
        match message:
            case AdoptShard():
                self._adopt(message)
            case Regroup():
                pass  # an attempt that is not committed is opened again under the new generation
            case OpenShards():
                self._open(message)
            case CommitShards():
                self._committed(message)
            case Finish(_, reason):
                self._now_out.append(Stop("finished", reason))
            case _:
                self._refuse(COORDINATOR, message, "contract")

    # ------------------------------------------------------------ adopting a state

    def _adopt(self, message: AdoptShard) -> None:
        """Load what the coordinator names, unless that is under way or said already."""
        if message == self._adopting:
            if isinstance(self._answered, ProvedShard):
                self._send(COORDINATOR, self._answered)
            return
        self._adopting, self._answered, self._work = message, None, None
        self._now_out.append(Phase("sync", message.step + 1))
        if message.file:
            token = f"adopt {self.incarnation} {message.generation} {message.step}"
            self._now_out.append(Load(token, LoadShardJob(message.file, self.spec)))
        else:
            self._compute("initial", InitialShardJob(self.spec, self.config.optimizer, self.config.seed))

    def _loaded(self, token: str, result: object, error: str) -> None:
        if token.startswith("retention "):
            if error:
                self._now_out.append(Note(f"old files stay: {error}"))
            elif isinstance(result, tuple) and result:
                self._now_out.append(Persist(token, result, token))
            return
        adopt = self._adopting
        if adopt is None or token != f"adopt {self.incarnation} {adopt.generation} {adopt.step}":
            return
        if error:
            self._now_out.append(Note(f"{adopt.file} cannot be used: {error}"))
            self._answer(ProvedShard(self.generation, adopt.step, "", "", error))
        else:
            assert isinstance(result, ShardState)
            self._adopted(result)

    def _adopted(self, state: ShardState) -> None:
        adopt = self._adopting
        assert adopt is not None
        digests = (state.parameters_digest, state.moments_digest)
        if adopt.parameters_digest and digests != (adopt.parameters_digest, adopt.moments_digest):
            self._answer(ProvedShard(self.generation, adopt.step, *digests, error=f"{adopt.file} holds another state"))
            return
        self.state, self.step = state, adopt.step
        arrays = state.snapshot.parameters if adopt.step == 0 else None
        loaded = ShardLoaded(
            self.number, self.incarnation, self.generation, self.step, adopt.file, *digests, parameters=arrays
        )  # fmt: skip
        self._now_out.append(Record(loaded))
        self._now_out.append(Phase("proved", adopt.step + 1))
        self._answer(ProvedShard(self.generation, adopt.step, *digests))

    # ------------------------------------------------------------ a step

    def _open(self, message: OpenShards) -> None:
        due = self.step if message.evaluate else self.step + 1
        if self.state is None or message.step != due:
            self._refuse(COORDINATOR, message, "not at that step")
            return
        key = (message.generation, message.step, message.attempt)
        if self._work is not None and self._work.key == key and self._work.evaluate == message.evaluate:
            if (
                isinstance(self._answered, Prepared | Evaluated | NotFinite)
                and self._answered.generation == message.generation
            ):
                self._send(COORDINATOR, self._answered)
            return
        self._answered = None
        self._now_out.append(Phase("evaluate" if message.evaluate else "open", message.step))
        self._work = self._new_work(message)
        self._take_early()
        self._advance()

    def _new_work(self, message: OpenShards) -> ShardWork:
        config, corpus = self.config, self.corpus
        assert self.state is not None
        key = (message.generation, message.step, message.attempt)
        generator = self.state.snapshot.generator
        context = config.model.context
        if message.evaluate:
            batch = evaluation_batch(corpus.evaluation, config.evaluation_contexts, context)
            bounds: tuple[tuple[int, int], ...] = ((0, len(batch.inputs)),)
        else:
            batch, generator = draw_batch(corpus.train, config.batch, context, generator)
            bounds = micro_batches(config.batch, config.micro_batches)
        spec = self.spec
        return ShardWork(
            key, message.evaluate, batch, bounds, generator, spec.has_embedding, spec.has_head, skip=message.skip
        )

    def _advance(self) -> None:
        """Start the next computation, if one can be done and none is under way."""
        work = self._work
        task = work.next_task() if work is not None else None
        if work is None or task is None or self.state is None:
            return
        kind, micro_batch = task
        work.busy = True
        if kind == "update":
            self._update(work)
        elif kind == "skip":
            self._work_compute("update", SkipShardJob(self.state.snapshot, work.generator))
        elif kind == "backward":
            arrived = self._use(work, "backward", micro_batch)
            cache = work.caches[micro_batch]
            job = BackwardJob(self.spec, self.parameters, micro_batch, cache, arrived)
            self._work_compute("backward", job)
        else:
            self._forward(work, micro_batch)

    def _forward(self, work: ShardWork, micro_batch: int) -> None:
        start, stop = work.bounds[micro_batch]
        direction = "evaluate" if work.evaluate else "forward"
        given = work.batch.inputs[start:stop] if work.first else self._use(work, direction, micro_batch)
        targets = work.batch.targets[start:stop]
        if work.last and work.evaluate:
            self._work_compute("evaluated", EvaluateJob(self.spec, self.parameters, given, targets))
        elif work.last:
            job = LossJob(self.spec, self.parameters, micro_batch, given, targets)
            self._work_compute("backward", job)
        else:
            compression = None if work.evaluate else self.config.compression
            self._work_compute("forward", ForwardJob(self.spec, self.parameters, micro_batch, given, compression))

    def _went(self, work: ShardWork, went: Went) -> None:
        work.next_forward += 1
        if not work.evaluate:
            work.caches[went.micro_batch] = went.cache
            self._now_out.append(Phase("forward", work.key[1], went.micro_batch))
        self._hand_on(work, "evaluate" if work.evaluate else "forward", went.micro_batch, went.crossing)

    def _returned(self, work: ShardWork, returned: Returned) -> None:
        if work.last:
            work.next_forward += 1
        work.add_gradient(returned.micro_batch, returned.gradient, returned.loss)
        if returned.crossing is not None:
            self._now_out.append(Phase("backward", work.key[1], returned.micro_batch))
            self._hand_on(work, "backward", returned.micro_batch, returned.crossing)

    # ------------------------------------------------------------ prepare, prepared

    def _update(self, work: ShardWork) -> None:
        assert self.state is not None
        assert work.gradient is not None
        job = UpdateShardJob(self.config.optimizer, self.state.snapshot, work.gradient, work.generator)
        self._work_compute("update", job)

    def _updated(self, work: ShardWork, shadow: ShardState) -> None:
        work.shadow = shadow
        generation, step, attempt = work.key
        self._now_out.append(Phase("prepare", step))
        if step % self.config.checkpoint_every == 0 or step == self.config.steps:
            work.file = file_name(self.number, step, generation, attempt)
            self._work_compute("encode", EncodeShardJob(work.file, self.spec, shadow.snapshot))
        else:
            self._prepared(work, "")

    def _encoded(self, work: ShardWork, operations: object) -> None:
        assert isinstance(operations, tuple)
        self._now_out.append(Persist(f"prepared {work.file}", operations, f"prepared {work.key[1]} {work.file}"))

    def _persisted(self, token: str, error_name: str) -> None:
        work = self._work
        if work is not None and work.shadow is not None and token == f"prepared {work.file}":
            self._prepared(work, error_name)

    def _prepared(self, work: ShardWork, error_name: str) -> None:
        generation, step, attempt = work.key
        shadow = work.shadow
        assert shadow is not None
        loss = mean_loss(work.losses, len(work.batch.inputs)) if work.last and not work.skip else 0.0
        digests = (shadow.parameters_digest, shadow.moments_digest)
        if not error_name:
            fact = ShardPrepared(
                self.number, self.incarnation, generation, step, attempt, work.file, loss, *digests,
                gradient=work.gradient, parts=work.all_parts,
            )  # fmt: skip
            self._now_out.append(Record(fact))
        self._now_out.append(Phase("prepared", step))
        self._answer(Prepared(generation, step, attempt, work.file, *digests, loss, error_name))

    # ------------------------------------------------------------ commit, committed

    def _committed(self, message: CommitShards) -> None:
        if self.state is not None and message.step == self.step:
            digests = (self.state.parameters_digest, self.state.moments_digest)
            self._answer(Swapped(self.generation, self.step, *digests))
            return
        work = self._work
        if work is None or work.shadow is None or work.key[1:] != (message.step, message.attempt):
            self._refuse(COORDINATOR, message, "not prepared")
            return
        self._now_out.append(Phase("commit", message.step))
        self.state, self.step, self._work = work.shadow, message.step, None
        digests = (self.state.parameters_digest, self.state.moments_digest)
        self._now_out.append(Record(ShardSwapped(self.number, self.incarnation, self.generation, self.step, *digests)))
        self._now_out.append(Phase("committed", self.step))
        self._answer(Swapped(self.generation, self.step, *digests))
        self._forget_old_files()

    def _forget_old_files(self) -> None:
        """Whoever comes back, or goes back, needs one of the newest files that decisions name."""
        oldest = self.step - self.config.checkpoint_every * self.config.checkpoint_keep
        if self.step % self.config.checkpoint_every == 0 and oldest > 0:
            self._now_out.append(Load(f"retention {self.step}", ShardRetentionJob(self.number, oldest)))

    # ------------------------------------------------------------ computations

    def _work_compute(self, kind: str, job: object) -> None:
        assert self._work is not None
        generation, step, attempt = self._work.key
        self._now_out.append(Compute(f"{kind} {self.incarnation} {generation} {step} {attempt}", job))

    def _computed(self, event: Computed) -> None:
        kind, incarnation, *key = event.token.split(" ")
        if int(incarnation) != self.incarnation:
            return  # of a life that is over
        if event.error.startswith(f"{NonFiniteError.__name__}:"):
            self._not_finite(kind, tuple(int(part) for part in key), event.error.partition(": ")[2])
        elif event.error:
            self._now_out.append(Stop("computation failed", f"{kind}: {event.error}"))
        elif isinstance(event.result, HeldCorpus):
            self._data, self._blob = event.result, bytearray()
            self._data_held()
        elif kind == "initial":
            self._initial(event.result)
        elif self._work is not None and self._work.key == tuple(int(part) for part in key):
            self._done(self._work, kind, event.result)
            self._advance()

    def _not_finite(self, kind: str, key: tuple[int, ...], what: str) -> None:
        """Nothing of it was sent or applied. The attempt stands still here until the coordinator opens another one."""
        work = self._work
        if work is None or work.key != key:
            return
        if work.evaluate:
            self._answer(Evaluated(work.key[0], work.key[1], math.nan))
        else:
            self._answer(NotFinite(*work.key, f"{kind}: {what}"))

    def _initial(self, state: object) -> None:
        assert isinstance(state, ShardState)
        if self._adopting is not None and not self._adopting.file:
            self._adopted(state)

    def _done(self, work: ShardWork, kind: str, result: object) -> None:
        work.busy = False
        match kind, result:
            case "forward", Went():
                self._went(work, result)
            case "backward", Returned():
                self._returned(work, result)
            case "update", ShardState():
                self._updated(work, result)
            case "encode", _:
                self._encoded(work, result)
            case "evaluated", float():
                work.next_forward += 1
                self._answer(Evaluated(work.key[0], work.key[1], result))
            case _:
                raise AssertionError(f"unexpected result of {kind}")
