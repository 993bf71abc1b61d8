"""A data-parallel worker: joins, proves its state, and takes part in one step after the other.

    joining -> loading (data) -> idle -> syncing (adopt, prove) -> idle/member, and per step:
    open -> compute -> offer -> close -> reduce -> ready -> commit -> apply -> applied

Everything is asked by the coordinator and may be asked again: a question that was answered is answered again from
what is held. A gradient stays valid through a regroup; only the stamp of the messages changes. What another
generation, step or attempt sent is refused, except parts of a newer attempt than this worker knows, which are kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from services.events import (
    COORDINATOR,
    SERVER,
    VERIFIER,
    Computed,
    Effect,
    Event,
    Linked,
    Note,
    Persisted,
    PersistFailed,
    Phase,
    Received,
    Record,
    Started,
    Stop,
    TimerFired,
    worker_name,
)
from services.exchange import Attempt, ContractBroken, Finished, PushExchange, RingExchange
from services.jobs import (
    ApplyJob,
    Gradient,
    GradientJob,
    HeldData,
    ProveJob,
    State,
)
from services.messages import (
    Adopt,
    Applied,
    Close,
    Commit,
    DataPart,
    EvidenceStored,
    Fetch,
    Finish,
    Message,
    Offer,
    Open,
    Part,
    Ready,
    Regroup,
    SaveCheckpoint,
    Turned,
    WantEvidence,
    Welcome,
)
from services.parts import Assembly
from services.records import Contributed, StateApplied
from services.roles.worker_joining import Held
from services.roles.worker_serving import ServingWorker
from training.models import parameter_count


class Worker(ServingWorker):
    """See the module's docstring. `launch` counts the starts of this worker's process."""

    # ------------------------------------------------------------ the loop

    def handle(self, now_ms: float, event: Event) -> list[Effect]:
        self._now_out = []
        match event:
            case Received(source, _, message):
                self._received(source, message)
            case Computed():
                self._computed(event)
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
            case _:
                pass
        return self._now_out

    # ------------------------------------------------------------ messages

    def _received(self, source: str, message: Message) -> None:
        match message:
            case Part():
                self._part(source, message)
            case Fetch():
                self._serve(source, message)
            case EvidenceStored(step) if source == VERIFIER:
                self._evidence.drop(step)
            case WantEvidence(step, attempt) if source == VERIFIER:
                self._show(step, attempt)
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
            case Adopt():
                self._adopt(message)
            case Regroup(_, members):
                self._show_for_the_dead(members)  # what is unanswered is asked again
            case Open():
                self._open(message)
            case Close():
                self._close(message)
            case Commit():
                self._committed(message)
            case SaveCheckpoint():
                self._save(message)
            case Finish(_, reason):
                self._now_out.append(Stop("finished", reason))
            case _:
                self._refuse(COORDINATOR, message, "contract")

    # ------------------------------------------------------------ open, offer

    def _open(self, message: Open) -> None:
        if self.state is None or message.step != self.step + 1:
            self._refuse(COORDINATOR, message, "not at that step")
            return
        wanted = (message.step, message.sample_ids)
        if self._gradient is not None and self._gradient.sample_ids == message.sample_ids:
            self._offer(message.step, self._gradient)
        elif self._computing != wanted:
            self._now_out.append(Phase("open", message.step))
            self._gradient, self._computing = None, wanted
            if not message.sample_ids:
                self._no_samples(message.step)
                return
            assert self._data is not None
            job = GradientJob(self.config.model, self._data.dataset, self.state.parameters, message.sample_ids)
            self._compute("gradient", job)

    def _no_samples(self, step: int) -> None:
        self._computing = None
        self._now_out.append(Phase("offer", step))
        self._answer(Offer(self.generation, step, (), "", 0, finite=True, loss=0.0))

    def _has_gradient(self, gradient: Gradient) -> None:
        step = self.step + 1
        if self._computing != (step, gradient.sample_ids):
            return  # the step was dealt anew, or went on without this worker
        self._computing, self._gradient = None, gradient
        # What is not finite makes a skip, which only this very gradient can show to be right.
        whole = gradient.value.size <= self.config.evidence_gradient_elements or not gradient.finite
        self._now_out.append(
            Record(
                Contributed(
                    self.worker, self.incarnation, self.generation, step, gradient.sample_ids, gradient.digest,
                    gradient.loss, gradient.value if whole else None,
                )
            )
        )  # fmt: skip
        self._now_out.append(Phase("offer", step))
        self._offer(step, gradient)

    def _offer(self, step: int, gradient: Gradient) -> None:
        self._answer(
            Offer(
                self.generation, step, gradient.sample_ids, gradient.digest, gradient.value.size, gradient.finite,
                gradient.loss,
            )
        )  # fmt: skip

    # ------------------------------------------------------------ close, reduce, ready

    def _close(self, message: Close) -> None:
        if message.step != self.step + 1:
            self._refuse(COORDINATOR, message, "not at that step")
            return
        if self._exchange is not None and self._exchange.attempt.attempt >= message.attempt:
            if self._exchange.attempt.attempt == message.attempt and isinstance(self._answered, Ready):
                self._send(COORDINATOR, self._answered)
            return
        self._held = self._exchange = None
        mine = [share for share in message.contributors if share.worker == self.worker]
        if not mine or mine[0].incarnation != self.incarnation or self._gradient is None:
            return  # no contributor: it fetches the value after the commit
        attempt = Attempt(
            message.generation, message.step, message.attempt, message.contributors, message.total,
            self._gradient.value.size, self.config.chunk_elements,
        )  # fmt: skip
        self._now_out.append(Phase("reduce", message.step))
        self._begin(attempt, self._gradient)
        for source, part in self._early.take(message.generation, message.step, message.attempt):
            self._exchange_part(source, part)

    def _begin(self, attempt: Attempt, gradient: Gradient) -> None:
        if self.config.strategy == "ps":
            self._exchange = push = PushExchange(attempt, self.worker, gradient.value)
            for part in push.begin():
                self._send(SERVER, part)
                self._now_out.append(Phase("reduce", attempt.step, push.handled))
        else:
            self._exchange = ring = RingExchange(attempt, self.worker, gradient.value)
            self._pass_on(ring, ring.begin())

    def _pass_on(self, ring: RingExchange, sends: Iterator[tuple[int, Part] | None]) -> None:
        handled = ring.handled
        for send in sends:
            if send is not None:
                self._send(worker_name(send[0]), send[1])
            if ring.handled != handled:
                handled = ring.handled
                self._now_out.append(Phase("reduce", ring.attempt.step, handled))
        self._finished(ring)

    def _part(self, source: str, part: Part) -> None:
        if part.lane in ("value", "state"):
            self._assemble(source, part)
        elif part.generation < self.generation:
            self._refuse(source, part, "old generation")
        elif part.step <= self.step:
            self._refuse(source, part, "late")
        elif self._exchange is None or self._is_newer(part):
            if self.state is not None:
                self._keep_early(source, part)
        elif self._key() == (part.generation, part.step, part.attempt):
            self._exchange_part(source, part)
        else:
            self._refuse(source, part, "late")

    def _keep_early(self, source: str, part: Part) -> None:
        if not self._early.keep(source, part, parameter_count(self.config.model), self.config.chunk_elements):
            self._refuse(source, part, "contract")

    def _key(self) -> tuple[int, int, int]:
        assert self._exchange is not None
        attempt = self._exchange.attempt
        return attempt.generation, attempt.step, attempt.attempt

    def _is_newer(self, part: Part) -> bool:
        return (part.generation, part.step, part.attempt) > self._key()

    def _exchange_part(self, source: str, part: Part) -> None:
        exchange = self._exchange
        assert exchange is not None
        try:
            if isinstance(exchange, PushExchange):
                if source != SERVER or part.lane != "publish":
                    raise ContractBroken(f"a part of lane {part.lane} from {source}")
                exchange.take(part)
                self._finished(exchange)
            else:
                due = exchange.source_of(part.lane)
                if due is None or source != worker_name(due):
                    raise ContractBroken(f"a part of lane {part.lane} from {source}")
                self._pass_on(exchange, exchange.take(part))
        except ContractBroken as broken:
            self._now_out.append(Note(f"refused a part from {source}: {broken}"))
            self._refuse(source, part, "contract")

    def _finished(self, exchange: RingExchange | PushExchange) -> None:
        finished = exchange.finished
        if not finished.complete or self._held is not None:
            return
        attempt, gradient = exchange.attempt, self._gradient
        assert gradient is not None
        self._held = Held(attempt.step, attempt.attempt, attempt.workers, finished)
        self._now_out.append(Phase("ready", attempt.step))
        self._answer(
            Ready(
                self.generation, attempt.step, attempt.attempt, gradient.sample_ids, gradient.digest, finished.digest,
                finished.finite,
            )
        )  # fmt: skip

    # ------------------------------------------------------------ commit, apply, applied

    def _committed(self, message: Commit) -> None:
        if message.step <= self.step:
            if message.step == self.step and self.state is not None:
                self._applied_answer()  # whatever was answered since: a coordinator that came back asks again
            return
        if message.step != self.step + 1 or self.state is None:
            self._refuse(COORDINATOR, message, "not at that step")
            return
        again = self._commit is not None
        self._commit = message
        if message.skip:
            if not again and (held := self._held_for(message)) is not None:
                self._show_own(message, held)  # nothing else shows that the sum really was not finite
            self._now_out.append(Phase("apply", message.step))
            self._apply(self.state)
        elif (held := self._held_for(message)) is not None:
            if again:
                return  # under way
            self._show_own(message, held)
            self._now_out.append(Phase("apply", message.step))
            self._compute("apply", ApplyJob(self.config.optimizer, self.state, held.finished.value))
        else:
            if not again:
                self._now_out.append(Phase("apply", message.step))
            self._fetch_value(message)

    def _held_for(self, message: Commit) -> Held | None:
        held = self._held
        if held is None or (held.step, held.attempt) != (message.step, message.attempt):
            return None
        return held if held.finished.digest == message.reduced_digest else None

    def _fetch_value(self, message: Commit) -> None:
        """Ask the source for the value; when asked again, for what is missing, and only if nothing comes in."""
        assembly, fetch = self._assembly, Fetch(self.generation, message.step, message.attempt, "value")
        key = ("value", message.step, message.attempt)
        if assembly is not None and assembly.key == key and assembly.source == message.source:
            if assembly.progressed():
                return
            fetch = replace(assembly.ask(), generation=self.generation)
        else:
            elements = parameter_count(self.config.model)
            self._assembly = Assembly(message.source, fetch, elements, self.config.chunk_elements)
        self._send(message.source, fetch)

    def _assemble(self, source: str, part: Part) -> None:
        """A chunk of a fetched value or state, from whoever was asked. Whole arrays are proved by their digest."""
        assembly = self._assembly
        if assembly is None or source != assembly.source or not assembly.fits(part):
            self._refuse(source, part, "not asked for")
        elif assembly.put(part):
            if not assembly.complete:
                self._send(assembly.source, assembly.ask())
                return
            self._assembly = None
            if part.lane == "state":
                self._compute("prove", ProveJob(assembly.array))
            else:
                self._fetched(assembly)

    def _fetched(self, assembly: Assembly) -> None:
        commit = self._commit
        if commit is None or assembly.key != ("value", commit.step, commit.attempt) or self.state is None:
            return
        finished = Finished(assembly.array.size, ((0, assembly.array.size),))
        finished.put(0, assembly.array)
        if finished.digest != commit.reduced_digest:
            self._now_out.append(Note(f"the fetched value of step {commit.step} has another digest; asking again"))
            self._commit = None
            return
        self._held = Held(commit.step, commit.attempt, (), finished)
        self._compute("apply", ApplyJob(self.config.optimizer, self.state, finished.value))

    def _apply(self, state: State) -> None:
        """The state after the committed step is computed: swap it in and say so."""
        commit = self._commit
        if commit is None or commit.step != self.step + 1:
            return
        self.state, self.step, self._commit = state, commit.step, None
        self._gradient = self._computing = self._exchange = None
        digests = (state.parameters_digest, state.velocity_digest)
        applied = StateApplied(self.worker, self.incarnation, self.generation, self.step, *digests)
        self._now_out.append(Record(applied))
        self._now_out.append(Phase("applied", self.step))
        self._applied_answer()

    def _applied_answer(self) -> None:
        assert self.state is not None
        digests = (self.state.parameters_digest, self.state.velocity_digest)
        self._answer(Applied(self.generation, self.step, *digests))

    # ------------------------------------------------------------ computations

    def _computed(self, event: Computed) -> None:
        kind, incarnation, generation, step = event.token.split(" ")
        if int(incarnation) != self.incarnation:
            return  # of a life that is over
        if event.error:
            self._now_out.append(Stop("computation failed", f"{kind}: {event.error}"))
            return
        match kind, event.result:
            case "data", HeldData():
                self._data, self._blob = event.result, bytearray()
                self._data_held()
            case "prove", State():
                self._proved(event.result)
            case "gradient", Gradient():
                self._has_gradient(event.result)
            case "apply", State():
                self._apply(event.result)
            case "encode", _:
                self._encoded(event.result, int(generation), int(step) - 1)
            case _:
                raise AssertionError(f"unexpected result of {event.token}")
