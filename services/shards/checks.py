"""What is checked of one committed step of a layer-sharded run.

Each shard is judged on the boundaries that it used, as they were recorded: its output and its gradients against the
verifier's own within a tolerance, its update bitwise. A forward pass that differed in the last digit would otherwise
flip a top-k and everything behind it.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np

from services.messages import Array
from services.records import BoundarySent, BoundaryUsed, ShardPrepared
from services.shard_records import has_parts
from services.shards.bookkeeping import Batches, advance, bounds, delay, weight
from services.shards.codec import decode, encode
from services.shards.ledger import ShardLedger, ShardStep, Version
from services.shards.model import TOLERANCE_FLOORS, ShardModel, Sizes


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that does not hold."""

    invariant: str
    role: str
    what: str
    seq: int


@dataclass(slots=True)
class Figures:
    """The worst error so far, in floors and as a difference, and what the run moved."""

    worst_error: float = 0.0
    worst_floors: float = 0.0
    noise_floor: float = 0.0
    payload_bytes: int = 0
    dense_bytes: int = 0
    boundaries: int = 0
    max_age: int = 0


class StepChecks:
    """All checks of one step. `counts` says how much of each invariant was compared, `unknown` what could not be."""

    def __init__(self, ledger: ShardLedger, batches: Batches, step: ShardStep, figures: Figures) -> None:
        self.ledger, self.step, self.figures = ledger, step, figures
        self.config: dict[str, Any] = ledger.config
        self.measured = self.config["staleness"]["age"] == "measured"  # by who used it: nobody else can know the age
        self.inputs, self.targets = batches.at(step.number)
        self.bounds = bounds(self.config["batch"], self.config["micro_batches"])
        edges = [0, *self.config["cuts"], self.config["model"]["block_count"]]
        sizes = Sizes.of(self.config["model"])
        count = ledger.shards
        self.models = [ShardModel(sizes, edges[i], edges[i + 1], i, count) for i in range(count)]
        self.findings: list[Finding] = []
        self.unknown: list[tuple[str, str]] = []
        self.counts: dict[str, int] = {}
        decided = step.committed
        self.skipped = (decided.generation, decided.step, decided.attempt) in ledger.skips

    def run(self) -> None:
        if self.skipped:
            self._skip()
            return
        for shard in range(1, self.ledger.shards + 1):
            self._versions(shard)
            self._fidelity(shard)
            self._gradient(shard)
            self._update(shard)

    # ------------------------------------------------------------ small things

    def _count(self, invariant: str) -> None:
        self.counts[invariant] = self.counts.get(invariant, 0) + 1

    def _find(self, invariant: str, shard: int, what: str, seq: int = 0) -> None:
        self.findings.append(Finding(invariant, f"shard-{shard}", f"step {self.step.number}: {what}", seq))

    def _expected(self, shard: int) -> list[Version]:
        """Versions that a shard uses in a step."""
        micro = range(0 if self.skipped else len(self.bounds))
        forward = [(m, shard - 1, "forward") for m in micro] if shard > 1 else []
        backward = [(m, shard, "backward") for m in micro] if shard < self.ledger.shards else []
        return forward + backward

    def _sender(self, shard: int, version: Version) -> int:
        return shard - 1 if version[2] == "forward" else shard + 1

    def _sent(self, shard: int, version: Version) -> BoundarySent | None:
        entry = self.step.evidence.sent.get((shard, version))
        return entry.fact if entry is not None and isinstance(entry.fact, BoundarySent) else None

    def _used(self, shard: int, version: Version) -> BoundaryUsed | None:
        entries = self.step.evidence.used.get((shard, version), [])
        return entries[0].fact if entries and isinstance(entries[0].fact, BoundaryUsed) else None

    # ------------------------------------------------------------ boundary versions

    def _versions(self, shard: int) -> None:
        name, expected = "boundary versions", self._expected(shard)
        bound = self.config["staleness"]["max_staleness"]
        for version in expected:
            self._count(name)
            used = self.step.evidence.used.get((shard, version), [])
            if len(used) != 1:
                self._find(name, shard, f"{_text(version)} was used {len(used)} times", used[-1].seq if used else 0)
                continue
            fact, seq = used[0].fact, used[0].seq
            assert isinstance(fact, BoundaryUsed)
            if not 0 <= fact.age <= bound:
                self._find(name, shard, f"{_text(version)} was used at age {fact.age}, the bound is {bound}", seq)
            if self.measured:
                wrong = self._unlike_transit(fact)
            else:
                drawn = delay(self.config["staleness"]["delay"], self.config["seed"], self.step.number, *version)
                wrong = f"the seed says {drawn}" if fact.age != drawn else ""
            if wrong:
                self._find(name, shard, f"{_text(version)} has age {fact.age}, {wrong}", seq)
        self._order(shard, expected)

    def _unlike_transit(self, fact: BoundaryUsed) -> str:
        """How a measured age differs from the whole ticks of the time on the way; "" when it does not."""
        tick_ms = self.config["staleness"]["tick_ms"]
        if fact.age <= fact.transit_ms / tick_ms < fact.age + 1:
            return ""
        return f"and was {fact.transit_ms!r} ms on its way, in ticks of {tick_ms:g} ms"

    def _order(self, shard: int, expected: list[Version]) -> None:
        """Ascending micro-batch within each direction; nothing that belongs to no place."""
        for place, entries in self.step.evidence.used.items():
            if place[0] == shard and place[1] not in expected:
                self._find("boundary versions", shard, f"{_text(place[1])} was used and is not its own", entries[0].seq)
        for direction in ("forward", "backward"):
            lines = [
                (entries[0].seq, version[0])
                for (who, version), entries in self.step.evidence.used.items()
                if who == shard and version[2] == direction
            ]
            if [micro for _, micro in sorted(lines)] != sorted(micro for _, micro in lines):
                self._find("boundary versions", shard, f"{direction} boundaries were used out of order", lines[0][0])

    # ------------------------------------------------------------ boundary fidelity

    def _fidelity(self, shard: int) -> None:
        name = "boundary fidelity"
        for version in self._expected(shard):
            sent, used = self._sent(self._sender(shard, version), version), self._used(shard, version)
            if sent is None or used is None:
                if sent is None:
                    self.unknown.append((name, f"step {self.step.number}: {_text(version)} was never recorded as sent"))
                continue
            self._count(name)
            self.figures.boundaries += 1
            self.figures.payload_bytes += used.payload_bytes
            self.figures.dense_bytes += 8 * self._elements(version[0])
            self.figures.max_age = max(self.figures.max_age, used.age)
            if (sent.payload_sha256, sent.payload_bytes, sent.age) != (
                used.payload_sha256, used.payload_bytes, 0 if self.measured else used.age,
            ):  # fmt: skip
                self._find(name, shard, f"{_text(version)} was not used as it was sent")
            due = weight(self.config["staleness"]["decay"], used.age)
            if used.weight != due:
                self._find(name, shard, f"{_text(version)} was scaled by {used.weight!r} where {due!r} was due")
            self._payload(shard, version, sent)

    def _payload(self, shard: int, version: Version, sent: BoundarySent) -> None:
        if sent.dense is None:
            return
        payload = self._encoded(sent)
        if len(payload) != sent.payload_bytes:
            what = f"{_text(version)} reports {sent.payload_bytes} bytes, its payload has {len(payload)}"
            self._find("boundary fidelity", self._sender(shard, version), what)
        elif hashlib.sha256(payload).hexdigest() != sent.payload_sha256:
            what = f"the payload of {_text(version)} is not the encoding of what was computed"
            self._find("boundary fidelity", self._sender(shard, version), what)

    def _encoded(self, sent: BoundarySent) -> bytes:
        """Activations are compressed as the run is configured, their gradients never."""
        assert sent.dense is not None
        compression = self.config["compression"] if sent.direction == "forward" else None
        if compression is None:
            return encode(sent.dense, 0, 0)
        return encode(sent.dense, compression["keep_percent"], compression["bits"])

    def _elements(self, micro_batch: int) -> int:
        start, stop = self.bounds[micro_batch]
        return int((stop - start) * self.inputs.shape[1] * self.config["model"]["width"])

    # ------------------------------------------------------------ gradient exactness

    def _gradient(self, shard: int) -> None:
        name = "gradient exactness"
        prepared = self._prepared(shard)
        held = self.ledger.held.get(self.step.number - 1, {}).get(shard)
        if prepared is None or prepared.gradient is None or held is None:
            why = "no gradient was recorded" if held is not None else "the state before it is not known"
            self.unknown.append((name, f"step {self.step.number}: {why} of shard {shard}"))
            return
        total, losses, batch = np.zeros_like(held.parameters), 0.0, len(self.inputs)
        parts = self._parts(shard, prepared)
        for micro, (start, stop) in enumerate(self.bounds):
            found = self._micro_batch(shard, micro, held.parameters)
            if found is None:
                self.unknown.append((name, f"step {self.step.number}: a boundary of micro-batch {micro} is missing"))
                return
            loss, gradient = found
            if parts is not None:
                self._compare(shard, f"the gradient of micro-batch {micro}", parts[micro], gradient)
            total = total + ((stop - start) / batch) * gradient
            losses += ((stop - start) / batch) * loss
        self._compare(shard, "the gradient", prepared.gradient, total)
        if shard == self.ledger.shards:
            self._compare(shard, "the loss", np.array([prepared.loss]), np.array([losses]))

    def _parts(self, shard: int, prepared: ShardPrepared) -> Array | None:
        """The micro-batches' own gradients (micro-batch, P), where they are recorded; their sum is replayed bitwise."""
        assert prepared.gradient is not None
        name, count, size = "gradient exactness", len(self.bounds), prepared.gradient.size
        if not has_parts(size, count):
            return None
        if prepared.parts is None or prepared.parts.size != count * size:
            why = f"step {self.step.number}: shard {shard} recorded no gradients of its micro-batches"
            self.unknown.append((name, why))
            return None
        parts: Array = prepared.parts.reshape(count, size)
        shares = [(stop - start) / len(self.inputs) for start, stop in self.bounds]
        total = shares[0] * parts[0]
        for share, part in zip(shares[1:], parts[1:], strict=True):
            total = total + share * part
        self._count(name)
        if total.tobytes() != prepared.gradient.tobytes():
            what = "its gradient is not the sum of those of its micro-batches in ascending index, bit by bit"
            self._find(name, shard, what)
        return parts

    def _micro_batch(self, shard: int, micro: int, parameters: Array) -> tuple[float, Array] | None:
        """Loss and parameter gradient of one micro-batch; what the shard handed on is compared on the way."""
        model, (start, stop) = self.models[shard - 1], self.bounds[micro]
        given = self.inputs[start:stop] if shard == 1 else self._arrived(shard, (micro, shard - 1, "forward"))
        if given is None:
            return None
        if model.is_last:
            loss, gradient, back = model.loss_back(parameters, given, self.targets[start:stop])
        else:
            arrived = self._arrived(shard, (micro, shard, "backward"))
            if arrived is None:
                return None
            output, gradient, back = model.back(parameters, given, arrived)
            loss = 0.0
            self._compare_sent(shard, (micro, shard, "forward"), output)
        if back is not None:
            self._compare_sent(shard, (micro, shard - 1, "backward"), back)
        return loss, gradient

    def _arrived(self, shard: int, version: Version) -> Array | None:
        """A boundary as the shard used it: the sender's dense value, coded, decoded and scaled."""
        sent, used = self._sent(self._sender(shard, version), version), self._used(shard, version)
        if sent is None or used is None or sent.dense is None:
            return None
        values = decode(self._encoded(sent), sent.dense.size)
        start, stop = self.bounds[version[0]]
        shaped = values.reshape(stop - start, self.inputs.shape[1], self.config["model"]["width"])
        return weight(self.config["staleness"]["decay"], used.age) * shaped

    def _compare_sent(self, shard: int, version: Version, reference: Array) -> None:
        sent = self._sent(shard, version)
        if sent is not None and sent.dense is not None:
            self._compare(shard, f"what it handed on as {_text(version)}", sent.dense, reference.reshape(-1))

    def _compare(self, shard: int, what: str, got: Array, reference: Array) -> None:
        self._count("gradient exactness")
        floor = self.models[shard - 1].floor_factor * max(float(np.max(np.abs(reference), initial=0.0)), 1e-300)
        error = float(np.max(np.abs(got - reference))) if got.shape == reference.shape else float("inf")
        if not error <= TOLERANCE_FLOORS * floor:
            told = f"{what} differs from the reference by {error:.3g}, tolerance {TOLERANCE_FLOORS * floor:.3g}"
            self._find("gradient exactness", shard, told)
            return
        self.figures.worst_error = max(self.figures.worst_error, error)
        self.figures.worst_floors = max(self.figures.worst_floors, error / floor)
        self.figures.noise_floor = max(self.figures.noise_floor, floor)

    # ------------------------------------------------------------ the update, bitwise

    def _prepared(self, shard: int) -> ShardPrepared | None:
        entry = self.step.evidence.prepared.get(shard)
        return entry.fact if entry is not None and isinstance(entry.fact, ShardPrepared) else None

    def _update(self, shard: int) -> None:
        """Replay the optimizer from the recorded gradient; the decision must name that state."""
        name, prepared = "gradient exactness", self._prepared(shard)
        held = self.ledger.held.get(self.step.number - 1, {}).get(shard)
        if prepared is None or prepared.gradient is None or held is None:
            return
        state = advance(self.config["optimizer"], held, prepared.gradient)
        self.ledger.held.setdefault(self.step.number, {})[shard] = state
        self._count(name)
        if (prepared.parameters_digest, prepared.moments_digest) != state.digests:
            self._find(name, shard, "the state that it prepared is not that of the optimizer's step from its gradient")
        self._decided(shard, prepared)

    def _decided(self, shard: int, prepared: ShardPrepared) -> None:
        decided = {row[0]: row[2:] for row in self.step.committed.prepared}
        self._count("consistent cut")
        if decided.get(shard) != (prepared.file, prepared.parameters_digest, prepared.moments_digest):
            self._find("consistent cut", shard, "the decision names another state than the one that it prepared")

    # ------------------------------------------------------------ a step that changes nothing

    def _skip(self) -> None:
        """No boundary is used, every state stays, and the verifier's own gradient is not finite either."""
        name, before = "gradient exactness", self.ledger.held.get(self.step.number - 1, {})
        for shard in range(1, self.ledger.shards + 1):
            self._versions(shard)
            prepared, held = self._prepared(shard), before.get(shard)
            if prepared is None or held is None:
                self.unknown.append((name, f"step {self.step.number}: shard {shard} told nothing of its skip"))
                continue
            self.ledger.held.setdefault(self.step.number, {})[shard] = held
            self._count(name)
            if (prepared.parameters_digest, prepared.moments_digest) != held.digests:
                self._find(name, shard, "a skipped step changed its state")
            self._decided(shard, prepared)
        if len(before) == self.ledger.shards and self._finite([before[shard].parameters for shard in sorted(before)]):
            why = f"step {self.step.number} was skipped, and the verifier's own gradient of its batch is finite"
            if self.config["compression"] is None and self.config["staleness"]["decay"] is None:
                self._find(name, self.ledger.shards, why)
            else:
                self.unknown.append((name, f"{why}; what compression and decay made of it is not known"))

    def _finite(self, parts: list[Array]) -> bool:
        """Whether the gradient of the whole batch is, in the uncut model."""
        with np.errstate(all="ignore"):
            given: list[Any] = [self.inputs]
            for model, part in zip(self.models[:-1], parts[:-1], strict=True):
                given.append(model.forward(part, given[-1]))
            _, gradient, back = self.models[-1].loss_back(parts[-1], given[-1], self.targets)
            gradients = [gradient]
            for model, part, values in reversed(list(zip(self.models[:-1], parts[:-1], given[:-1], strict=True))):
                assert back is not None
                _, gradient, back = model.back(part, values, back)
                gradients.append(gradient)
        return all(bool(np.isfinite(one).all()) for one in gradients)


def _text(version: Version) -> str:
    micro_batch, cut, direction = version
    return f"the {direction} boundary of micro-batch {micro_batch} at cut {cut}"
