"""How a coordinator decides: durably, one operation at a time.

One operation is outstanding at most (a persist, a load, a computation that decides how to go on). From its emission
only its answer moves the coordinator; all other events wait in order. So nothing is ever told before it is durable,
and no event meets a half-made decision.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from services import decision_log
from services.config import RunConfig
from services.events import (
    SERVER,
    Computed,
    Effect,
    Event,
    Heard,
    Linked,
    Loaded,
    Persist,
    Persisted,
    PersistFailed,
    Received,
    Record,
    Send,
    Started,
    Stop,
    TimerFired,
    Unlinked,
)
from services.jobs import State
from services.messages import (
    Finish,
    Message,
)
from services.records import Fact, Finished, Refused
from services.roles.peers import Peer, PeerTable
from training.disk import DiskOp

DATA_PART_BYTES = 1 << 20

Then = Callable[[object], None]


class Deciding:
    """Membership and durable decisions; see the module's docstring."""

    member_kind = "worker"  # what the names of members begin with

    def __init__(self, config: RunConfig, launch: int, dataset_blob: bytes) -> None:
        self.config = config
        self.launch = launch
        self.generation = 0
        self.step = 0  # committed, and applied by every member, except while a step is under way
        self.high_step = 0  # highest step ever opened in this run, voided ones included
        self.peers = PeerTable(self.member_kind)
        self.state: State | None = None  # the state after `step`, when the coordinator itself can serve it
        self.digests = ("", "")  # of the state after `step`: parameters, velocity
        self.server_address = ""
        self.stage = "starting"
        self._blob = dataset_blob
        self.incarnations = 0
        self.been_members: set[int] = set()
        self.joined_as_expected: set[tuple[int, int]] = set()
        self._given_up: set[int] = set()  # expected joiners that died on their way in, until the next step is open
        self._wait_over = False
        self._out: list[Effect] = []
        self._now = 0.0
        self._operations = 0
        self._waiting = ""
        self._then: Then | None = None
        self._deferred: deque[Event] = deque()
        self._leases_checked_ms = 0.0
        self._stopped = False

    # ------------------------------------------------------------ the loop

    def handle(self, now_ms: float, event: Event) -> list[Effect]:
        self._now, self._out = now_ms, []
        if isinstance(event, Heard):
            self._heard(event.peer, event.incarnation)
        elif isinstance(event, Persisted | PersistFailed | Loaded | Computed):
            self._answered(event)
        else:
            self._deferred.append(event)
        while self._deferred and self._then is None and not self._stopped:
            self._dispatch(self._deferred.popleft())
        return self._out

    def _answered(self, event: Persisted | PersistFailed | Loaded | Computed) -> None:
        if event.token != self._waiting or self._then is None:
            return
        then, self._then = self._then, None
        if isinstance(event, PersistFailed):
            self._stop(f"disk {event.error_name}", f"{event.path}: {event.error_name}; nothing was told; see doctor")
        elif isinstance(event, Persisted):
            then(None)
        elif event.error:
            self._stop("no checkpoint", event.error)
        else:
            then(event.result)

    def _dispatch(self, event: Event) -> None:
        match event:
            case Started():
                self._start(event)
            case Received():
                self._heard(event.source, event.incarnation)
                self._received(event.source, event.incarnation, event.message)
            case Linked(peer, incarnation):
                self._linked(peer, incarnation)
            case Unlinked(peer, incarnation):
                self._unlinked(peer, incarnation)
            case TimerFired(name):
                self._timer(name)
            case _:
                raise AssertionError(f"unexpected {event}")

    # ------------------------------------------------------------ one operation at a time

    def _await(self, effect: Callable[[str], Effect], then: Then) -> None:
        assert self._then is None, self._waiting
        self._operations += 1
        self._waiting = f"{self.launch}.{self._operations}"
        self._then = then
        self._out.append(effect(self._waiting))

    def _persist(self, what: str, operations: Sequence[DiskOp], then: Callable[[], None]) -> None:
        self._await(lambda token: Persist(token, tuple(operations), what), lambda _: then())

    def _decide(self, what: str, fact: Fact, then: Callable[[], None]) -> None:
        """Make `fact` durable in the log, then record it, then go on."""

        def durable() -> None:
            self._out.append(Record(fact))
            then()

        self._persist(what, decision_log.append_plan(fact), durable)

    def _stop(self, condition: str, reason: str) -> None:
        self._stopped = True
        self._out.append(Record(Finished(self.step, condition, reason)))
        for name in [peer.name for peer in self.peers.all()] + [SERVER] * bool(self.server_address):
            self._send(name, Finish(self.generation, condition))
        self._out.append(Stop(condition, reason))

    # ------------------------------------------------------------ to be added by the subclasses

    def _with_state(self, then: Callable[[], None]) -> None:
        """Go on once the state after `step` can be given to joiners."""
        raise NotImplementedError

    def _can_serve(self) -> bool:
        """Whether the state after `step` can still be given to joiners."""
        raise NotImplementedError

    def _adopt(self, peer: Peer) -> None:
        """Tell a joiner which state to adopt and prove."""
        raise NotImplementedError

    def _joiner_message(self, peer: Peer, message: Message) -> bool:
        """Handle what a joiner says of its state. False when the message is of another kind."""
        raise NotImplementedError

    def _received(self, source: str, incarnation: int, message: Message) -> None:
        raise NotImplementedError

    def _heard(self, name: str, incarnation: int) -> None:
        raise NotImplementedError

    def _linked(self, name: str, incarnation: int) -> None:
        raise NotImplementedError

    def _unlinked(self, name: str, incarnation: int) -> None:
        raise NotImplementedError

    def _timer(self, name: str) -> None:
        raise NotImplementedError

    def _start(self, event: Started) -> None:
        raise NotImplementedError

    def _open_next(self) -> None:
        """At the boundary, everybody who was awaited is in: open the next step or finish."""
        raise NotImplementedError

    def _resume_step(self) -> None:
        """The membership changed while a step was under way; the new generation is durable and told."""
        raise NotImplementedError

    def _ask(self, peer: Peer) -> None:
        """Ask one member again for what it has not answered."""
        raise NotImplementedError

    def _step_message(self, peer: Peer, message: Message) -> None:
        raise NotImplementedError

    def _member_lost(self, worker: int) -> None:
        """Forget what only this member could have answered."""
        raise NotImplementedError

    def _server_up(self) -> None:
        """The server (again) serves."""

    # ------------------------------------------------------------ messages out

    def _send(self, to: str, message: Message) -> None:
        self._out.append(Send(to, message))

    def _refuse(self, source: str, incarnation: int, message: Message, reason: str) -> None:
        generation, step = getattr(message, "generation", 0), getattr(message, "step", 0)
        what = type(message).__name__
        self._out.append(Record(Refused(what, source, incarnation, generation, step, reason, self.generation)))
