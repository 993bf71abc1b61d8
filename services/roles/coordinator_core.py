"""What a coordinator does whatever it coordinates: admit, sync, fence, regroup, notice deaths.

A subclass adds how joiners get their state (`_with_state`, `_can_serve`, `_adopt`, `_joiner_message`) and the step
(`_start`, `_open_next`, `_resume_step`, `_ask`, `_step_message`, `_member_lost`, `_step_timer`).
"""

from __future__ import annotations

from collections.abc import Callable

from services.events import (
    SERVER,
    CancelTimer,
    Cut,
    Note,
    Received,
    Record,
    SetTimer,
)
from services.messages import (
    DataHeld,
    DataPart,
    Enlist,
    Join,
    Message,
    Regroup,
    Standing,
    Turned,
    WantData,
    Welcome,
)
from services.records import Admitted, DataChecked, Died, Regrouped
from services.roles.deciding import Deciding
from services.roles.peers import ADMITTED, LOADED, MEMBER, PROVED, SYNCING, Peer

DATA_PART_BYTES = 1 << 20

Then = Callable[[object], None]


class CoordinatorCore(Deciding):
    """See the module's docstring."""

    # ------------------------------------------------------------ messages

    def _received(self, source: str, incarnation: int, message: Message) -> None:
        if isinstance(message, Enlist):
            self._enlist(source, message)
        elif isinstance(message, Join):
            self._join(source, message)
        elif (peer := self.peers.find(source, incarnation)) is None:
            self._refuse_stranger(source, incarnation, message)
        elif isinstance(message, WantData):
            self._send_data(peer, message.offset)
        elif isinstance(message, DataHeld):
            self._data_held(peer, message)
        elif isinstance(message, Standing):
            peer.address, peer.launch = message.address, message.launch
        elif self._joiner_message(peer, message):
            pass
        elif peer.state != MEMBER:
            self._refuse(source, incarnation, message, "not a member")
        elif getattr(message, "generation", self.generation) != self.generation:
            self._refuse(source, incarnation, message, "old generation")
        else:
            self._step_message(peer, message)

    def _refuse_stranger(self, source: str, incarnation: int, message: Message) -> None:
        self._refuse(source, incarnation, message, "old incarnation")
        self._send(source, Turned(incarnation, f"incarnation {incarnation} of {source} is over", fenced=True))

    # ------------------------------------------------------------ joining

    def _enlist(self, source: str, message: Enlist) -> None:
        if source != SERVER:
            self._refuse(source, 0, message, "contract")
            return
        self.server_address = message.address
        self._send(SERVER, Welcome(self.launch, self.generation, self.config.to_json(), 0))
        self._server_up()
        if self.stage == "boundary":
            self._boundary()

    def _join(self, source: str, message: Join) -> None:
        if source != self.peers.name_of(message.worker) or message.worker < 1:
            self._refuse(source, 0, message, "contract")
            return
        if message.dataset_sha256 not in ("", self.config.dataset_sha256):
            self._refuse(source, 0, message, "dataset")
            reason = f"its dataset is {message.dataset_sha256}, the run's is {self.config.dataset_sha256}"
            self._send(source, Turned(0, reason, fenced=False))
            return
        known = self.peers.get(message.worker)
        if known is not None and message.launch < known.launch:
            self._refuse(source, 0, message, "old launch")  # said before it died; its successor would hear an answer
            return
        if known is not None and known.launch == message.launch and _elsewhere(known.address, message.address):
            self._refuse(source, 0, message, "claimed")
            self._send(source, Turned(0, f"{source} is at {known.address} already", fenced=False))
            return
        if known is not None and known.launch == message.launch and known.state != MEMBER:
            self._welcome(known)
        elif known is None:
            self._admit(message)
        else:
            self._deferred.appendleft(Received(source, 0, message))  # again, once the old incarnation is out
            self._lose(known, "replaced")

    def _admit(self, message: Join) -> None:
        self.incarnations += 1
        peer = Peer(
            message.worker, self.incarnations, message.launch, message.address, ADMITTED, self._now,
            kind=self.peers.kind,
        )  # fmt: skip
        fact = Admitted(peer.worker, peer.incarnation, message.numerics)

        def admitted() -> None:
            self.peers.put(peer)
            self._welcome(peer)

        self._decide(f"admission {peer.worker}.{peer.incarnation}", fact, admitted)

    def _welcome(self, peer: Peer) -> None:
        self._send(peer.name, Welcome(peer.incarnation, self.generation, self.config.to_json(), len(self._blob)))

    def _send_data(self, peer: Peer, offset: int) -> None:
        data = self._blob[max(0, offset) : max(0, offset) + DATA_PART_BYTES]
        self._send(peer.name, DataPart(offset, len(self._blob), data))

    def _data_held(self, peer: Peer, message: DataHeld) -> None:
        if message.dataset_sha256 != self.config.dataset_sha256:
            self._refuse(peer.name, peer.incarnation, message, "dataset")
            return
        if peer.state == ADMITTED:
            peer.state = LOADED
            self._out.append(Record(DataChecked(peer.worker, peer.incarnation, message.numerics)))
            if self.stage == "boundary":
                self._boundary()

    def _due(self) -> list[tuple[int, int]]:
        """Scheduled joins that the next open waits for: (step, worker). What an earlier open waited for is over."""
        entries = [(step, worker) for step, worker in self.config.expected_joins if step == self.high_step + 1]
        return [entry for entry in entries if entry not in self.joined_as_expected]

    def _may_join(self, peer: Peer) -> bool:
        """Not before its scheduled step: a worker that is expected later is held back until then."""
        if peer.demoted or (peer.worker not in self.been_members and peer.worker <= self.config.workers):
            return True
        expected = [
            entry for entry in self.config.expected_joins
            if entry[1] == peer.worker and entry[0] > self.high_step and entry not in self.joined_as_expected
        ]  # fmt: skip
        return not expected or any(step == self.high_step + 1 for step, _ in expected)

    def _awaited(self) -> list[int]:
        """Workers that the next open waits for and that are not loaded yet."""
        wanted = {worker for _, worker in self._due()}
        if not self.been_members:
            wanted |= set(range(1, self.config.workers + 1))
        here = {peer.worker for peer in self.peers.in_state(LOADED, SYNCING, PROVED, MEMBER)}
        return sorted(wanted - here - self._given_up)

    def _boundary(self) -> None:
        """Between two steps: wait for who is awaited, bring joiners in, then go on."""
        self.stage = "boundary"
        server_missing = self.config.strategy == "ps" and not self.server_address
        awaited = self._awaited()
        if (awaited or server_missing) and not self._wait_over:
            missing = [self.peers.name_of(worker) for worker in awaited] + [SERVER] * server_missing
            self._out.append(Note(f"step {self.step + 1} waits for {', '.join(missing)}"))
            self._out.append(SetTimer("join-wait", self.config.timing.join_wait_ms))
            return
        self._out.append(CancelTimer("join-wait"))
        if not self.been_members and (awaited or server_missing):
            self._stop("members missing", f"never joined: {awaited or SERVER}; see their logs")
            return
        joiners = [peer for peer in self.peers.in_state(LOADED) if self._may_join(peer)]
        if joiners:
            self._with_state(lambda: self._sync(joiners))
        elif not self.peers.members():
            self._out.append(Note("no member is left"))
            self._out.append(SetTimer("nobody", self.config.timing.nobody_ms))
        else:
            self._wait_over = False
            self._open_next()

    def _sync(self, joiners: list[Peer]) -> None:
        self.stage = "syncing"
        for peer in joiners:
            peer.state = SYNCING
            self._adopt(peer)
        self._out.append(SetTimer("resend", self.config.timing.resend_ms))

    def _synced(self) -> None:
        """When no joiner is under way any more, the proved ones become members of the next generation."""
        if self.stage != "syncing" or self.peers.in_state(SYNCING):
            return
        joiners = self.peers.in_state(PROVED)
        if not joiners:
            self._boundary()
            return
        self._regroup(f"joined: {', '.join(peer.name for peer in joiners)}", self._boundary)

    # ------------------------------------------------------------ membership

    def _regroup(self, reason: str, then: Callable[[], None]) -> None:
        """Raise the generation over the members and the proved joiners, durably, tell it, and go on."""
        joined = self.peers.in_state(PROVED)
        members = self.peers.in_state(MEMBER, PROVED)
        self.generation += 1
        fact = Regrouped(
            self.generation, tuple((peer.worker, peer.incarnation) for peer in members), self.step, reason
        )  # fmt: skip

        def durable() -> None:
            for peer in joined:
                peer.state, peer.demoted = MEMBER, False
            self.been_members.update(peer.worker for peer in members)
            newcomers = {peer.worker for peer in joined}
            self.joined_as_expected.update(entry for entry in self._due() if entry[1] in newcomers)
            message = Regroup(self.generation, self.peers.as_members(), self.server_address)
            for peer in self.peers.members():
                self._send(peer.name, message)
            then()

        self._decide(f"generation {self.generation}", fact, durable)

    def _lose(self, peer: Peer, reason: str) -> None:
        """`peer` is dead or replaced: fence it, and regroup if it was a member."""
        self.peers.drop(peer.worker)
        self._out.append(Cut(peer.name, peer.incarnation))
        self._out.append(Record(Died(peer.worker, peer.incarnation, reason, self.step)))
        if peer.state == MEMBER:
            self._member_lost(peer.worker)
            self._regroup(f"{peer.name} {reason}", self._resume)
            return
        if peer.state in (SYNCING, PROVED):
            self._given_up.add(peer.worker)
            self.joined_as_expected.update(entry for entry in self._due() if entry[1] == peer.worker)
        if self.stage == "syncing":
            self._synced()
        elif self.stage == "boundary":
            self._boundary()

    def _resume(self) -> None:
        if self.stage == "syncing":
            for peer in self.peers.in_state(SYNCING):
                self._adopt(peer)
            if not self._can_serve():
                self._restart_sync()
            else:
                self._synced()
        elif self.stage == "boundary":
            self._boundary()
        else:
            self._resume_step()

    def _restart_sync(self) -> None:
        """Nobody can serve the state any more: back to the boundary, which finds a checkpoint."""
        for peer in self.peers.in_state(SYNCING, PROVED):
            peer.state = LOADED
        self._boundary()

    # ------------------------------------------------------------ links, leases, timers

    def _heard(self, name: str, incarnation: int) -> None:
        peer = self.peers.find(name, incarnation)
        if peer is not None:
            peer.heard_ms = self._now

    def _linked(self, name: str, incarnation: int) -> None:
        peer = self.peers.find(name, incarnation)
        if peer is None:
            if incarnation > 0 and name.startswith(f"{self.peers.kind}-"):
                self._send(name, Turned(incarnation, f"incarnation {incarnation} of {name} is over", fenced=True))
            return
        peer.linked, peer.heard_ms = True, self._now
        self._out.append(CancelTimer(f"reconnect {peer.worker} {peer.incarnation}"))
        if peer.state == MEMBER:
            self._send(peer.name, Regroup(self.generation, self.peers.as_members(), self.server_address))
            self._ask(peer)
        elif peer.state == SYNCING:
            self._adopt(peer)

    def _unlinked(self, name: str, incarnation: int) -> None:
        peer = self.peers.find(name, incarnation)
        if peer is not None:
            peer.linked = False
            timer = f"reconnect {peer.worker} {peer.incarnation}"
            self._out.append(SetTimer(timer, self.config.timing.reconnect_ms))

    def _timer(self, name: str) -> None:
        if name.startswith("reconnect "):
            _, worker, incarnation = name.split(" ")
            peer = self.peers.find(self.peers.name_of(int(worker)), int(incarnation))
            if peer is not None and not peer.linked:
                self._lose(peer, "link broken")
        elif name == "lease":
            self._out.append(SetTimer("lease", self.config.timing.lease_ms / 4))
            self._check_leases()
        elif name == "join-wait":
            self._wait_over = True
            if self.stage == "boundary":
                self._boundary()
        elif name == "nobody":
            if self.stage == "boundary" and not self.peers.members():
                self._stop("nobody left", f"no member for {self.config.timing.nobody_ms:.0f} ms after step {self.step}")
        elif name == "resend" and self.stage == "syncing":
            self._out.append(SetTimer("resend", self.config.timing.resend_ms))
            for peer in self.peers.in_state(SYNCING):
                self._adopt(peer)
        else:
            self._step_timer(name)

    def _step_timer(self, name: str) -> None:
        raise NotImplementedError

    def _check_leases(self) -> None:
        """One death at a time: losing one persists, and the next check finds the next.

        When this very process did not run for a while, nobody's silence during that while counts.
        """
        late_ms = self._now - self._leases_checked_ms - self.config.timing.lease_ms / 4
        self._leases_checked_ms = self._now
        if late_ms > self.config.timing.lease_ms / 4:
            for peer in self.peers.all():
                peer.heard_ms += late_ms
        for peer in self.peers.all():
            if peer.linked and self._now - peer.heard_ms > self.config.timing.lease_ms:
                self._lose(peer, "lease ended")
                return


def _elsewhere(known: str, said: str) -> bool:
    """Whether these are two places. A coordinator that came back knows none before it is told."""
    return "" not in (known, said) and known != said
