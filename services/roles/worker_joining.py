"""How a worker gets in: admitted, dataset held, state adopted and proved by its digests.

joining -> loading (data) -> idle -> syncing (adopt, prove) -> member
"""

from __future__ import annotations

from dataclasses import dataclass

from services.config import RunConfig
from services.events import (
    COORDINATOR,
    Note,
    Phase,
    Record,
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
    Fetch,
    Proved,
)
from services.parts import Assembly, Early
from services.records import StateApplied
from services.roles.evidence import EvidenceShelf
from services.roles.joining import Joining
from training.models import parameter_count

JOIN_RETRY_MS = 500.0


@dataclass(slots=True, eq=False)
class Held:
    """A finished reduced value that waits for its commit, or serves those who fetch it."""

    step: int
    attempt: int
    contributors: tuple[int, ...]
    finished: Finished


class JoiningWorker(Joining[RunConfig, HeldData]):
    """See the module's docstring. `launch` counts the starts of this worker's process."""

    def __init__(self, worker: int, launch: int) -> None:
        self.worker = worker
        super().__init__(worker, launch)

    @property
    def name(self) -> str:
        return worker_name(self.worker)

    def _read_config(self, text: str) -> RunConfig:
        return RunConfig.from_json(text)

    def _open_job(self, blob: bytes) -> OpenDataJob:
        return OpenDataJob(blob, self.config)

    def _reset(self) -> None:
        super()._reset()
        self.state: State | None = None
        self._gradient: Gradient | None = None  # for step + 1
        self._computing: tuple[int, tuple[int, ...]] | None = None  # step and samples of the gradient under way
        self._exchange: RingExchange | PushExchange | None = None
        self._held: Held | None = None
        self._early = Early()
        self._commit: Commit | None = None  # being fetched or applied
        self._assembly: Assembly | None = None
        self._adopting: Adopt | None = None
        self._saving: tuple[int, int] | None = None
        self._evidence = EvidenceShelf()
        self._sampler_json = ""

    # ------------------------------------------------------------ adopting a state

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
