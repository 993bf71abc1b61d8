"""A data-parallel worker: joins, proves its state, and takes part in one step after the other.

    joining -> loading (data) -> idle -> syncing (adopt, prove) -> idle/member, and per step:
    open -> compute -> offer -> close -> reduce -> ready -> commit -> apply -> applied

Everything is asked by the coordinator and may be asked again: a question that was answered is answered again from
what is held. A gradient stays valid through a regroup; only the stamp of the messages changes. What another
generation, step or attempt sent is refused, except parts of a newer attempt than this worker knows, which are kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from services.config import RunConfig
from services.events import (
    COORDINATOR,
    SERVER,
    CancelTimer,
    Compute,
    Computed,
    Effect,
    Event,
    Identify,
    Linked,
    Note,
    Persist,
    Persisted,
    PersistFailed,
    Phase,
    Received,
    Record,
    Send,
    SetTimer,
    Started,
    Stop,
    TimerFired,
    worker_name,
)
from services.exchange import Attempt, ContractBroken, Finished, PushExchange, RingExchange
from services.jobs import (
    ApplyJob,
    EncodeCheckpointJob,
    Gradient,
    GradientJob,
    HeldData,
    OpenDataJob,
    ProveJob,
    State,
    checkpoint_state,
)
from services.messages import (
    Adopt,
    Applied,
    CheckpointSaved,
    Close,
    Commit,
    DataHeld,
    DataPart,
    EvidenceStored,
    Fetch,
    Finish,
    Join,
    Message,
    Offer,
    Open,
    Part,
    Proved,
    Ready,
    Regroup,
    SaveCheckpoint,
    Standing,
    Turned,
    WantData,
    WantEvidence,
    Welcome,
)
from services.parts import Assembly, Early, array_parts, state_parts
from services.records import CheckpointWritten, Contributed, Reduced, Refused, StateApplied
from services.roles.evidence import EvidenceShelf
from services.sampling import sampler_from_json
from training.checkpoint import checkpoint_name
from training.models import parameter_count

JOIN_RETRY_MS = 500.0


@dataclass(slots=True, eq=False)
class Held:
    """A finished reduced value that waits for its commit, or serves those who fetch it."""

    step: int
    attempt: int
    contributors: tuple[int, ...]
    finished: Finished


class Worker:
    """See the module's docstring. `launch` counts the starts of this worker's process."""

    def __init__(self, worker: int, launch: int) -> None:
        self.worker = worker
        self.launch = launch
        self.incarnation = 0
        self._address = ""
        self._numerics = ""
        self._data: HeldData | None = None
        self._now_out: list[Effect] = []
        self._linked = False
        self._config: RunConfig | None = None
        self._reset()

    def _reset(self) -> None:
        """Forget everything but the dataset: as if the process had just started."""
        self.generation = 0
        self.state: State | None = None
        self.step = 0
        self._blob = bytearray()
        self._gradient: Gradient | None = None  # for step + 1
        self._computing: tuple[int, tuple[int, ...]] | None = None  # step and samples of the gradient under way
        self._exchange: RingExchange | PushExchange | None = None
        self._held: Held | None = None
        self._early = Early()
        self._answered: Message | None = None  # the last answer to the coordinator, to be given again
        self._commit: Commit | None = None  # being fetched or applied
        self._assembly: Assembly | None = None
        self._adopting: Adopt | None = None
        self._saving: tuple[int, int] | None = None
        self._evidence = EvidenceShelf()
        self._sampler_json = ""

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

    @property
    def name(self) -> str:
        return worker_name(self.worker)

    def _send(self, to: str, message: Message) -> None:
        self._now_out.append(Send(to, message))

    def _answer(self, message: Message) -> None:
        """Answer the coordinator, and remember the answer."""
        self._answered = message
        self._send(COORDINATOR, message)

    def _compute(self, kind: str, job: object) -> None:
        self._now_out.append(Compute(f"{kind} {self.incarnation} {self.generation} {self.step + 1}", job))

    def _refuse(self, source: str, message: Message, reason: str) -> None:
        generation, step = getattr(message, "generation", 0), getattr(message, "step", 0)
        what = type(message).__name__
        self._now_out.append(Record(Refused(what, source, 0, generation, step, reason, self.generation)))

    # ------------------------------------------------------------ joining

    def _present(self) -> None:
        """The link is up, or nobody answered: say who this is, and say again what may have been lost."""
        if self.incarnation == 0:
            self._send(COORDINATOR, Join(self.worker, self.launch, self._address, self._numerics))
            self._now_out.append(SetTimer("join", JOIN_RETRY_MS))
            return
        self._send(
            COORDINATOR, Standing(self.incarnation, self.launch, self._address, self.generation, self.step)
        )  # fmt: skip
        if self._data is None:
            self._send(COORDINATOR, WantData(self.incarnation, len(self._blob)))
            self._now_out.append(SetTimer("join", JOIN_RETRY_MS))
        elif self._answered is not None:
            self._send(COORDINATOR, self._answered)

    def _welcome(self, message: Welcome) -> None:
        if self.incarnation != 0:
            return
        self.incarnation, self.generation = message.incarnation, message.generation
        self._now_out.append(Identify(message.incarnation))
        config = RunConfig.from_json(message.config_json)
        if self._data is not None and self._config == config:
            self._data_held()
        else:
            self._config, self._data = config, None
            self._send(COORDINATOR, WantData(self.incarnation, 0))

    def _data_part(self, part: DataPart) -> None:
        if self._data is not None or part.offset != len(self._blob):
            return
        self._blob += part.data
        if len(self._blob) < part.total:
            self._send(COORDINATOR, WantData(self.incarnation, len(self._blob)))
        else:
            self._compute("data", OpenDataJob(bytes(self._blob), self.config))

    def _data_held(self) -> None:
        assert self._data is not None
        self._now_out.append(CancelTimer("join"))
        self._answer(DataHeld(self.incarnation, self.config.dataset_sha256, self._data.numerics))

    def _turned(self, message: Turned) -> None:
        if not message.fenced:
            self._now_out.append(Stop("refused", message.reason))
        elif self.incarnation == message.incarnation != 0:
            self._now_out.append(Note(f"fenced: {message.reason}; joining again with fresh state"))
            self.incarnation = 0
            self._reset()
            self._now_out.append(Identify(0))
            self._present()

    @property
    def config(self) -> RunConfig:
        assert self._config is not None
        return self._config

    def _adopt(self, message: Adopt) -> None:
        """Fetch the state that the coordinator names, unless it is held already or coming in."""
        if message == self._adopting and self._assembly is not None and self._assembly.progressed():
            return
        self._adopting, self._answered = message, None
        self._exchange = self._held = self._commit = self._gradient = self._computing = None
        self._now_out.append(Phase("sync", message.step + 1))
        elements = 2 * parameter_count(self.config.model)
        self._assembly = Assembly("state", message.step, 0, elements, self.config.chunk_elements)
        self._send(message.source, Fetch(message.generation, message.step, 0, "state"))

    def _proved(self, state: State) -> None:
        adopt = self._adopting
        if adopt is None:
            return
        if (state.parameters_digest, state.velocity_digest) != (adopt.parameters_digest, adopt.velocity_digest):
            self._now_out.append(Note("the fetched state does not have the digests that were told; asking again"))
            self._adopting = None
            return
        self.state, self.step = state, adopt.step
        digests = (state.parameters_digest, state.velocity_digest)
        applied = StateApplied(self.worker, self.incarnation, self.generation, self.step, *digests, adopted=True)
        self._now_out.append(Record(applied))
        self._now_out.append(Phase("proved", adopt.step + 1))
        self._answer(Proved(self.generation, adopt.step, *digests))

    # ------------------------------------------------------------ messages

    def _received(self, source: str, message: Message) -> None:
        match message:
            case Part():
                self._part(source, message)
            case Fetch():
                self._serve(source, message)
            case EvidenceStored(step):
                self._evidence.drop(step)
            case WantEvidence(step, attempt):
                self._show(step, attempt)
            case Turned():
                self._turned(message)
            case Welcome():
                self._welcome(message)
            case DataPart():
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
            case Regroup():
                pass  # the new generation is noted; what is unanswered is asked again
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
        small = gradient.value.size <= self.config.evidence_gradient_elements
        self._now_out.append(
            Record(
                Contributed(
                    self.worker, self.incarnation, self.generation, step, gradient.sample_ids, gradient.digest,
                    gradient.loss, gradient.value if small else None,
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
                self._early.keep(source, part)
        elif self._key() == (part.generation, part.step, part.attempt):
            self._exchange_part(source, part)
        else:
            self._refuse(source, part, "late")

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
            if message.step == self.step and isinstance(self._answered, Applied):
                self._applied_answer()
            return
        if message.step != self.step + 1 or self.state is None:
            self._refuse(COORDINATOR, message, "not at that step")
            return
        again = self._commit is not None
        self._commit = message
        if message.skip:
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
            if not (again and self._assembly is not None and self._assembly.progressed()):
                self._fetch_value(message)

    def _held_for(self, message: Commit) -> Held | None:
        held = self._held
        if held is None or (held.step, held.attempt) != (message.step, message.attempt):
            return None
        return held if held.finished.digest == message.reduced_digest else None

    def _fetch_value(self, message: Commit) -> None:
        elements = parameter_count(self.config.model)
        self._assembly = Assembly("value", message.step, message.attempt, elements, self.config.chunk_elements)
        self._send(message.source, Fetch(self.generation, message.step, message.attempt, "value"))

    def _assemble(self, source: str, part: Part) -> None:
        """A chunk of a fetched value or state. Whole arrays are proved by their digest, whoever sent them."""
        assembly = self._assembly
        if assembly is None or not assembly.fits(part):
            self._refuse(source, part, "not asked for")
        elif assembly.put(part):
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

    # ------------------------------------------------------------ serving others, evidence

    def _serve(self, source: str, message: Fetch) -> None:
        """Give a value or state that is held; who asks for anything else is asked by the coordinator to ask again."""
        held, chunk = self._held, self.config.chunk_elements if self._config is not None else 0
        if message.generation < self.generation:
            self._refuse(source, message, "old generation")
        elif message.what == "state" and self.state is not None and message.step == self.step:
            for part in state_parts(self.state, message.generation, self.step, chunk):
                self._send(source, part)
        elif message.what == "value" and held is not None and (held.step, held.attempt) == (
            message.step, message.attempt,
        ):  # fmt: skip
            value, order = held.finished.value, held.contributors
            for part in array_parts(value, "value", message.generation, held.step, held.attempt, order, chunk):
                self._send(source, part)
        else:
            self._refuse(source, message, "not held")

    def _show_own(self, commit: Commit, held: Held) -> None:
        """The lowest contributor records the reduced value; the others keep theirs until it is stored."""
        fact = Reduced(
            self.worker, self.incarnation, commit.step, commit.attempt, self.generation, held.finished.digest,
            held.contributors, held.finished.value,
        )  # fmt: skip
        if held.contributors and held.contributors[0] == self.worker:
            self._now_out.append(Record(fact))
        elif held.contributors:
            self._evidence.keep(fact)

    def _show(self, step: int, attempt: int) -> None:
        fact = self._evidence.find(step, attempt)
        if fact is not None:
            self._now_out.append(Record(fact))

    # ------------------------------------------------------------ checkpoints

    def _save(self, message: SaveCheckpoint) -> None:
        if self.state is None or message.step != self.step:
            self._refuse(COORDINATOR, message, "not at that step")
            return
        if self._saving == (message.generation, message.step):
            if isinstance(self._answered, CheckpointSaved):
                self._send(COORDINATOR, self._answered)
            return
        self._saving = (message.generation, message.step)
        self._sampler_json = message.sampler_json
        sampler = sampler_from_json(message.sampler_json).state()
        held = checkpoint_state(self.config, self.step, message.generation, self.state, sampler)
        self._compute("encode", EncodeCheckpointJob(held, self.incarnation))

    def _encoded(self, operations: object) -> None:
        if self._saving is None:
            return
        assert isinstance(operations, tuple)
        name = checkpoint_name(self._saving[1], self._saving[0], self.incarnation)
        self._now_out.append(Persist(f"saved {name}", operations, f"checkpoint {self._saving[1]} {name}"))

    def _persisted(self, token: str, error_name: str) -> None:
        if self._saving is None or self.state is None or not token.startswith("saved "):
            return
        generation, step = self._saving
        name = token.removeprefix("saved ")
        if name != checkpoint_name(step, generation, self.incarnation) or step != self.step:
            return
        digests = (self.state.parameters_digest, self.state.velocity_digest)
        if not error_name:
            written = CheckpointWritten(self.worker, self.incarnation, step, name, *digests, self._sampler_json)
            self._now_out.append(Record(written))
        self._answer(CheckpointSaved(generation, step, name, *digests, error_name))

    # ------------------------------------------------------------ computations

    def _computed(self, event: Computed) -> None:
        kind, incarnation = event.token.split(" ")[:2]
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
                self._encoded(event.result)
            case _:
                raise AssertionError(f"unexpected result of {event.token}")
