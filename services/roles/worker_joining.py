"""How a worker gets in: admitted, dataset held, state adopted and proved by its digests.

joining -> loading (data) -> idle -> syncing (adopt, prove) -> member
"""

from __future__ import annotations

from dataclasses import dataclass

from services.config import RunConfig
from services.events import (
    COORDINATOR,
    CancelTimer,
    Compute,
    Effect,
    Identify,
    Note,
    Phase,
    Record,
    Send,
    SetTimer,
    Stop,
    worker_name,
)
from services.exchange import Finished, PushExchange, RingExchange
from services.jobs import (
    Gradient,
    HeldData,
    OpenDataJob,
    State,
)
from services.messages import (
    Adopt,
    Commit,
    DataHeld,
    DataPart,
    Fetch,
    Join,
    Message,
    Proved,
    Standing,
    Turned,
    WantData,
    Welcome,
)
from services.parts import Assembly, Early
from services.records import Refused, StateApplied
from services.roles.evidence import EvidenceShelf
from training.models import parameter_count

JOIN_RETRY_MS = 500.0


@dataclass(slots=True, eq=False)
class Held:
    """A finished reduced value that waits for its commit, or serves those who fetch it."""

    step: int
    attempt: int
    contributors: tuple[int, ...]
    finished: Finished


class JoiningWorker:
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

    # ------------------------------------------------------------ small things

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
        if message == self._adopting:
            if isinstance(self._answered, Proved):
                self._send(COORDINATOR, self._answered)
                return
            if self._assembly is None or self._assembly.progressed():
                return  # being proved, or coming in
            self._send(self._assembly.source, self._assembly.ask())
            return
        self._adopting, self._answered = message, None
        self._exchange = self._held = self._commit = self._gradient = self._computing = None
        self._now_out.append(Phase("sync", message.step + 1))
        elements = 2 * parameter_count(self.config.model)
        fetch = Fetch(message.generation, message.step, 0, "state")
        self._assembly = Assembly(message.source, fetch, elements, self.config.chunk_elements)
        self._send(message.source, fetch)

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
