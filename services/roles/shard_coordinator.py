"""The coordinator of layer-sharded training: every shard or none stands at a step.

    boundary   between steps; a missing shard is awaited, a joining one loads the state that the decisions name
    evaluate   told to evaluate; the last shard's loss is awaited
    run        open told; prepared is awaited from all shards
    apply      commit told; committed (swapped) is awaited from all shards

A death before the commit: the survivors drop their shadow state, the shard is relaunched from its committed file, and
the step is tried again. After the commit the step stands: the relaunched shard loads the prepared file that the
decision names. When a named file cannot be used (or none was written for that step), all go back to the newest step
whose files every shard can load; that rollback is durable before it is told.
"""

from __future__ import annotations

from collections.abc import Callable

from services import decision_log
from services.events import CancelTimer, Note, Phase, Record, SetTimer, Started
from services.messages import (
    AdoptShard,
    CommitShards,
    Evaluated,
    Message,
    NotFinite,
    OpenShards,
    Prepared,
    ProvedShard,
    StaleBoundary,
    Swapped,
)
from services.records import (
    RunStarted,
    ShardProven,
    ShardsCommitted,
    ShardsEvaluated,
    ShardsOpened,
    ShardsRolledBack,
    ShardsSwapped,
    Stale,
)
from services.roles.coordinator_core import CoordinatorCore
from services.roles.peers import LOADED, MEMBER, PROVED, SYNCING, Peer
from services.roles.shard_attempt import ShardAttempt
from services.roles.shard_recovery import recover
from services.shard_config import ShardRunConfig

Files = dict[int, tuple[str, str, str]]  # shard -> file, parameters digest, moments digest


class ShardCoordinator(CoordinatorCore):
    """See the module's docstring."""

    member_kind = "shard"
    config: ShardRunConfig  # type: ignore[assignment]

    def __init__(self, config: ShardRunConfig, launch: int, dataset_blob: bytes) -> None:
        super().__init__(config, launch, dataset_blob)  # type: ignore[arg-type]
        self.current: ShardAttempt | None = None
        self.attempt = 0  # number of the next attempt at step + 1
        self.files: dict[int, Files] = {0: {}}  # step -> what every shard holds, newest decisions last
        self.evaluations = 0  # started so far; numbers their attempts
        self.evaluated = -1  # newest step whose evaluation is recorded
        self._adopted_files: Files = {}

    # ------------------------------------------------------------ start

    def _start(self, event: Started) -> None:
        self._leases_checked_ms = self._now
        self._out.append(SetTimer("lease", self.config.timing.lease_ms / 4))
        try:
            facts, torn = decision_log.read_log(event.files.get(decision_log.PATH, b""))
        except decision_log.LogDamaged as damaged:
            self._stop("log damaged", str(damaged))
            return
        if facts:
            recover(self, facts, torn)
            return
        started = RunStarted(self.config.to_json(), self.config.dataset_sha256, 0, "", "", "")

        def logged() -> None:
            self._out.append(Record(started))
            self._boundary()

        self._persist("start", decision_log.begin_plan((started,)), logged)

    # ------------------------------------------------------------ who is here

    def _awaited(self) -> list[int]:
        """Every shard is needed, always."""
        here = {peer.worker for peer in self.peers.in_state(LOADED, SYNCING, PROVED, MEMBER)}
        return [shard for shard in range(1, self.config.workers + 1) if shard not in here]

    def _may_join(self, peer: Peer) -> bool:
        return peer.worker <= self.config.workers

    def _can_serve(self) -> bool:
        return True

    def _with_state(self, then: Callable[[], None]) -> None:
        """A joiner loads the file that the decision of `step` names; without one, everybody goes back."""
        joiners = [peer.worker for peer in self.peers.in_state(LOADED)]
        held = self.files.get(self.step, {})
        if self.step == 0 or all(held.get(shard, ("",))[0] for shard in joiners):
            then()
        else:
            self._go_back(f"no file of step {self.step}", then)

    def _go_back(self, reason: str, then: Callable[[], None]) -> None:
        """Roll all shards back to the newest step before this one that has files of all of them (step 0 always)."""
        older = [step for step, files in self.files.items() if step < self.step and all(f[0] for f in files.values())]
        target = max(older, default=0)
        files = tuple((shard, held[0]) for shard, held in sorted(self.files.get(target, {}).items()))
        fact = ShardsRolledBack(target, self.generation, files, reason)

        def durable() -> None:
            self.rolled_back(fact)
            for peer in self.peers.in_state(MEMBER, SYNCING, PROVED):
                peer.state, peer.demoted = LOADED, True
            then()

        self._decide(f"rollback {target}", fact, durable)

    def rolled_back(self, fact: ShardsRolledBack) -> None:
        """The rollback is durable: steps above it are void."""
        self.step, self.current, self.attempt = fact.to_step, None, 0
        self.files = {step: files for step, files in self.files.items() if step <= fact.to_step}
        self.evaluated = min(self.evaluated, fact.to_step)

    def _sync(self, joiners: list[Peer]) -> None:
        super()._sync(self.peers.in_state(LOADED))

    def _adopt(self, peer: Peer) -> None:
        file, parameters_digest, moments_digest = self.files.get(self.step, {}).get(peer.worker, ("", "", ""))
        self._send(peer.name, AdoptShard(self.generation, self.step, file, parameters_digest, moments_digest))

    def _joiner_message(self, peer: Peer, message: Message) -> bool:
        if not isinstance(message, ProvedShard):
            return False
        if peer.state != SYNCING or message.step != self.step:
            self._refuse(peer.name, peer.incarnation, message, "late")
        elif message.error:
            self._out.append(Note(f"{peer.name} cannot stand at step {self.step}: {message.error}"))
            self._go_back(f"{peer.name}: {message.error}", self._boundary)
        else:
            self._proved(peer, message)
        return True

    def _proved(self, peer: Peer, message: ProvedShard) -> None:
        file, parameters_digest, _ = self.files.get(self.step, {}).get(peer.worker, ("", "", ""))
        digests = (message.parameters_digest, message.moments_digest)
        if parameters_digest and self.files[self.step][peer.worker][1:] != digests:
            self._refuse(peer.name, peer.incarnation, message, "digest")
            return
        peer.state = PROVED
        if self.step == 0:
            self.files[0][peer.worker] = ("", *digests)
        fact = ShardProven(peer.worker, peer.incarnation, self.step, message.generation, file, *digests)
        self._out.append(Record(fact))
        self._synced()

    # ------------------------------------------------------------ open, evaluate

    def _open_next(self) -> None:
        due = self.step % self.config.evaluate_every == 0 or self.step >= self.config.steps
        if due and self.evaluated < self.step:
            self._open(self.step, evaluate=True)
        elif self.step >= self.config.steps:
            self._stop("finished", "")
        else:
            self._open(self.step + 1, evaluate=False)

    def _open(self, step: int, evaluate: bool, skip: str = "") -> None:
        members = tuple((peer.worker, peer.incarnation) for peer in self.peers.members())
        opened = ShardsOpened(step, self.generation, self.evaluations if evaluate else self.attempt, members, skip)
        self.evaluations += evaluate
        self.attempt += not evaluate
        self.current = ShardAttempt(opened, evaluate)
        self.stage = "evaluate" if evaluate else "run"
        if evaluate:
            self._tell_open()
            return
        self.high_step = max(self.high_step, step)

        def durable() -> None:
            self._out.append(Phase("opened", step))
            self._tell_open()

        self._decide(f"open {step}.{opened.attempt}", opened, durable)

    def _tell_open(self) -> None:
        for peer in self.peers.members():
            self._ask(peer)
        assert self.current is not None
        patience = 1 + min(self.current.opened.attempt, 3)
        self._out.append(SetTimer("exchange", self.config.timing.exchange_ms * patience))
        self._out.append(SetTimer("resend", self.config.timing.resend_ms))

    def _ask(self, peer: Peer) -> None:
        now = self.current
        if now is None:
            return
        opened = now.opened
        if self.stage == "evaluate" or (self.stage == "run" and peer.worker not in now.prepared):
            self._send(
                peer.name,
                OpenShards(
                    self.generation,
                    opened.step,
                    opened.attempt,
                    now.evaluate,
                    self.peers.as_members(),
                    bool(opened.skip),
                ),
            )
        elif self.stage == "apply" and now.committed is not None and peer.worker not in now.swapped:
            self._send(peer.name, CommitShards(self.generation, now.committed.step, now.committed.attempt))

    # ------------------------------------------------------------ messages of a step

    def _step_message(self, peer: Peer, message: Message) -> None:
        match message:
            case Prepared():
                self._prepared(peer, message)
            case Swapped():
                self._swapped(peer, message)
            case Evaluated():
                self._evaluated(peer, message)
            case StaleBoundary():
                self._stale(peer, message)
            case NotFinite():
                self._not_finite(peer, message)
            case _:
                self._refuse(peer.name, peer.incarnation, message, "contract")

    def _prepared(self, peer: Peer, message: Prepared) -> None:
        now = self.current
        if now is None or self.stage != "run" or (message.step, message.attempt) != (
            now.opened.step, now.opened.attempt,
        ):  # fmt: skip
            self._refuse(peer.name, peer.incarnation, message, "late")
        elif message.error:
            self._stop(f"disk {message.error}", f"{peer.name} could not make step {message.step} durable")
        else:
            now.prepared[peer.worker] = message
            if len(now.prepared) == self.config.workers:
                self._commit(now)

    def _commit(self, now: ShardAttempt) -> None:
        prepared = tuple(
            (peer.worker, peer.incarnation, said.file, said.parameters_digest, said.moments_digest)
            for peer in self.peers.members()
            if (said := now.prepared[peer.worker])
        )
        loss = now.prepared[self.config.workers].loss
        fact = ShardsCommitted(now.opened.step, self.generation, now.opened.attempt, prepared, loss)

        def durable() -> None:
            self.committed(fact)
            self._out.append(Phase("tell", fact.step))
            for peer in self.peers.members():
                self._ask(peer)

        self._out.append(CancelTimer("exchange"))
        self._out.append(Phase("decide", fact.step))
        self._decide(f"commit {fact.step}.{fact.attempt}", fact, durable)

    def committed(self, fact: ShardsCommitted) -> None:
        """The decision is durable: the step stands, whoever dies now."""
        assert self.current is not None
        self.current.committed = fact
        self.stage, self.attempt = "apply", 0
        self.files[fact.step] = {shard: (file, p, m) for shard, _, file, p, m in fact.prepared}

    def _swapped(self, peer: Peer, message: Swapped) -> None:
        now = self.current
        if now is None or now.committed is None or message.step != now.committed.step:
            self._refuse(peer.name, peer.incarnation, message, "late")
            return
        now.swapped[peer.worker] = message
        self._all_swapped()

    def _all_swapped(self) -> None:
        now = self.current
        assert now is not None
        assert now.committed is not None
        members = self.peers.members()
        if any(peer.worker not in now.swapped for peer in members):
            return
        answers = [(peer, now.swapped[peer.worker]) for peer in members]
        rows = tuple((p.worker, p.incarnation, a.parameters_digest, a.moments_digest) for p, a in answers)
        self._out.append(Record(ShardsSwapped(now.committed.step, self.generation, rows)))
        self._out.append(CancelTimer("resend"))
        self.step, self.current = now.committed.step, None
        self._boundary()

    def _evaluated(self, peer: Peer, message: Evaluated) -> None:
        now = self.current
        if now is None or self.stage != "evaluate" or message.step != self.step:
            self._refuse(peer.name, peer.incarnation, message, "late")
            return
        self.evaluated, self.current = self.step, None
        self._out.append(Record(ShardsEvaluated(self.step, self.generation, message.loss)))
        self._out.append(CancelTimer("exchange"))
        self._boundary()

    def _not_finite(self, peer: Peer, message: NotFinite) -> None:
        """The step is tried once more, and changes nothing: it is committed, and its batch counts as drawn."""
        now = self.current
        if now is None or self.stage != "run" or (message.step, message.attempt) != (
            now.opened.step, now.opened.attempt,
        ):  # fmt: skip
            self._refuse(peer.name, peer.incarnation, message, "late")
            return
        self.current = None
        self._open(message.step, evaluate=False, skip=f"{peer.name}: {message.what}")

    def _stale(self, peer: Peer, message: StaleBoundary) -> None:
        fields = (message.micro_batch, message.cut, message.direction, message.age, message.bound)
        self._out.append(Record(Stale(peer.worker, message.step, message.attempt, *fields)))
        self._stop(
            "stale boundary",
            f"{message.direction} boundary of step {message.step}, micro-batch {message.micro_batch}, cut {message.cut}"
            f" reached {peer.name} at age {message.age}; max_staleness is {message.bound}",
        )

    # ------------------------------------------------------------ deaths, timers

    def _member_lost(self, worker: int) -> None:
        if self.current is not None:
            self.current.swapped.pop(worker, None)

    def _resume_step(self) -> None:
        if self.stage == "apply" and self.peers.members():
            for peer in self.peers.members():
                self._ask(peer)
            self._all_swapped()
            return
        if self.stage == "apply" and self.current is not None and self.current.committed is not None:
            self.step = self.current.committed.step  # nobody is left to swap; the files are named by the decision
        self.current = None
        self._boundary()

    def _step_timer(self, name: str) -> None:
        if name == "exchange" and self.stage in ("run", "evaluate"):
            self._out.append(Note(f"{self.stage} of step {self.step} stalled; another attempt"))
            self.current = None
            self._boundary()
        elif name == "resend" and self.stage in ("run", "apply", "evaluate"):
            self._out.append(SetTimer("resend", self.config.timing.resend_ms))
            for peer in self.peers.members():
                self._ask(peer)
