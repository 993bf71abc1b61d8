"""A coordinator whose members all hold the same state: a joiner gets it from any of them, or from a checkpoint."""

from __future__ import annotations

from collections.abc import Callable

from services.events import Load, Record
from services.jobs import FindCheckpointJob, FoundCheckpoint
from services.messages import Adopt, Fetch, Message, Proved
from services.parts import state_parts
from services.records import Proven
from services.roles.coordinator_core import CoordinatorCore
from services.roles.peers import PROVED, SYNCING, Peer


class Replicas(CoordinatorCore):
    """See the module's docstring. A subclass adds `_roll_back`."""

    def _can_serve(self) -> bool:
        return bool(self.peers.members()) or self.state is not None

    def _with_state(self, then: Callable[[], None]) -> None:
        """Go on once somebody can serve the state after `step`: a member, or the coordinator from a checkpoint."""
        if self._can_serve():
            then()
            return
        job = FindCheckpointJob(self.config.model, self.config.dataset_sha256)
        self._await(lambda token: Load(token, job), lambda found: self._found(found, then))

    def _found(self, found: object, then: Callable[[], None]) -> None:
        assert isinstance(found, FoundCheckpoint)
        self._roll_back(found, then)

    def _roll_back(self, found: FoundCheckpoint, then: Callable[[], None]) -> None:
        raise NotImplementedError

    def _joiner_message(self, peer: Peer, message: Message) -> bool:
        if isinstance(message, Proved):
            self._proved(peer, message)
        elif isinstance(message, Fetch):
            self._send_state(peer, message)
        else:
            return False
        return True

    def _adopt(self, peer: Peer) -> None:
        members = self.peers.members()
        source, address = (members[0].name, members[0].address) if members else ("coordinator", "")
        parameters_digest, velocity_digest = self.digests
        self._send(
            peer.name, Adopt(self.generation, self.step, parameters_digest, velocity_digest, source, address)
        )  # fmt: skip

    def _send_state(self, peer: Peer, message: Fetch) -> None:
        """Serve the state after `step` from the coordinator's own memory (a checkpoint, or the start)."""
        if message.what != "state" or self.state is None or message.step != self.step:
            self._refuse(peer.name, peer.incarnation, message, "not held")
            return
        for part in state_parts(self.state, message, self.config.chunk_elements):
            self._send(peer.name, part)

    def _proved(self, peer: Peer, message: Proved) -> None:
        if peer.state != SYNCING or message.step != self.step:
            self._refuse(peer.name, peer.incarnation, message, "late")
            return
        if (message.parameters_digest, message.velocity_digest) != self.digests:
            self._refuse(peer.name, peer.incarnation, message, "digest")
            self._adopt(peer)
            return
        peer.state = PROVED
        fact = Proven(peer.worker, peer.incarnation, self.step, message.generation, *self.digests)
        self._out.append(Record(fact))
        self._synced()
