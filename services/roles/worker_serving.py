"""What a worker does for others: serve its state and values, show evidence, write checkpoints."""

from __future__ import annotations

from services.any_config import UNREADABLE
from services.events import (
    COORDINATOR,
    Persist,
    Record,
    SendStored,
)
from services.jobs import (
    EncodeCheckpointJob,
    checkpoint_state,
)
from services.messages import (
    CheckpointSaved,
    Commit,
    Fetch,
    Member,
    SaveCheckpoint,
)
from services.parts import array_parts, state_parts
from services.records import CheckpointWritten, Reduced
from services.roles.worker_joining import Held, JoiningWorker
from services.sampling import sampler_from_json
from training.checkpoint import checkpoint_name


class ServingWorker(JoiningWorker):
    """See the module's docstring."""

    # ------------------------------------------------------------ serving others, evidence

    def _serve(self, source: str, message: Fetch) -> None:
        """Give a value or state that is held; who asks for anything else is asked by the coordinator to ask again."""
        held, chunk = self._held, self.config.chunk_elements if self._config is not None else 0
        if message.generation < self.generation:
            self._refuse(source, message, "old generation")
        elif message.what == "state" and self.state is not None and message.step == self.step:
            for part in state_parts(self.state, message, chunk):
                self._send(source, part)
        elif message.what == "value" and held is not None and (held.step, held.attempt) == (
            message.step, message.attempt,
        ):  # fmt: skip
            for part in array_parts(held.finished.value, message, held.contributors, chunk):
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

    def _show_for_the_dead(self, members: tuple[Member, ...]) -> None:
        """What a contributor showed that is gone may be lost with it; the run may end before anybody can ask."""
        alive = {member.worker for member in members}
        if self.worker in alive:
            self._now_out.extend(Record(fact) for fact in self._evidence.take_orphans(alive, self.worker))

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
                self._say_saved(self._answered)
            return
        try:
            sampler = sampler_from_json(message.sampler_json).state()
        except UNREADABLE:
            self._refuse(COORDINATOR, message, "contract")
            return
        self._saving = (message.generation, message.step)
        self._sampler_json = message.sampler_json
        held = checkpoint_state(self.config, self.step, message.generation, self.state, sampler)
        self._compute("encode", EncodeCheckpointJob(held, self.incarnation))

    def _encoded(self, operations: object, generation: int, step: int) -> None:
        """Operations for the checkpoint of (generation, step); of no use when another was asked for meanwhile."""
        if self._saving != (generation, step):
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
        self._say_saved(CheckpointSaved(generation, step, name, *digests, error_name))

    def _say_saved(self, message: CheckpointSaved) -> None:
        """Once the evidence is stored: whoever comes back from this checkpoint finds the steps before it judgeable."""
        self._answered = message
        self._now_out.append(SendStored(COORDINATOR, message))
