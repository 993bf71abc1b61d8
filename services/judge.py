"""The judge: a history, line by line, to a verdict document.

    judge = Judge(dataset)                # bytes of the run's dataset.safetensors
    for line in lines: judge.feed(line)   # `services.history.HistoryLine`, in the order of the history
    document = judge.finish()

It judges while it is fed, the same lines give the same document whenever they come, and it never raises: a line that it
cannot read, or a checker that breaks, makes the verdict "unknown" and says why.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from services.dataset_reading import JudgeData, UnreadableDataset, read_dataset
from services.evidence import Evidence
from services.fact_reading import UnreadableFact, read_fact
from services.fact_tellers import may_tell
from services.history import Damage, HistoryLine
from services.invariants.base import UNKNOWN, VIOLATED, Invariant, worst_of
from services.invariants.checkpoint_fidelity import CheckpointFidelity
from services.invariants.contribution_accounting import ContributionAccounting
from services.invariants.durability import Durability
from services.invariants.fencing import Fencing
from services.invariants.gradient_exactness import GradientExactness
from services.invariants.liveness import Liveness
from services.invariants.replica_agreement import ReplicaAgreement
from services.invariants.sample_accounting import SampleAccounting
from services.invariants.step_monotonicity import StepMonotonicity
from services.ledger import Ledger
from services.lineage import Entry, Step
from services.observations import NOT_REACHED, Observations
from services.records import RunStarted
from services.reference import Reference
from services.state_reports import WATCHES, StateReport, StateReports

FORMAT = "gradstorm.verdict"
VERSION = 1

DATA_PARALLEL: tuple[type[Invariant], ...] = (
    GradientExactness,
    ReplicaAgreement,
    ContributionAccounting,
    SampleAccounting,
    CheckpointFidelity,
    StepMonotonicity,
    Fencing,
    Durability,
    Liveness,
)


class Judge:
    """See the module's docstring. `kinds` is the registry of invariants."""

    def __init__(self, dataset: bytes, kinds: Sequence[type[Invariant]] = DATA_PARALLEL) -> None:
        self.ledger = Ledger(self._replayed, self._complete)
        self.invariants = [kind(self.ledger) for kind in kinds]
        self.evidence = Evidence(self.ledger)
        self.observations = Observations(self.ledger)
        self.reports = StateReports(self.ledger, self._deviation, self._unheld)
        self._data: JudgeData | None = None
        self._damage: list[Damage] = []
        self._finished: dict[str, Any] | None = None
        self._final: dict[str, Any] = {}
        self._watchers: dict[type, list[tuple[object, Callable[[Entry], None]]]] = {}
        self._watch_all()
        # Most invariants wait for one hook only; the others' are not called.
        self._at_replay = [item for item in self.invariants if type(item).on_replayed is not Invariant.on_replayed]
        self._at_complete = [item for item in self.invariants if type(item).on_complete is not Invariant.on_complete]
        try:
            self._data = read_dataset(dataset)
            self.ledger.samples_max = len(self._data.train_labels)
        except UnreadableDataset as error:
            self.evidence.unknown(str(error))

    # ------------------------------------------------------------ feeding

    def feed(self, line: HistoryLine) -> None:
        """Take the next line. Never raises."""
        if not self.evidence.on_line(line.seq, line.source, line.launch, line.number, line.kind):
            self._blind(line.seq)
        if self.ledger.is_repeated(line.source, line.launch, line.kind, line.body_json):
            return
        try:
            fact = read_fact(line.kind, line.body_json, line.arrays)
        except UnreadableFact as error:
            self.evidence.unknown(f"line {line.seq}: {error}")
            return
        if not may_tell(line.source, fact):
            self.evidence.unknown(f"line {line.seq}: {line.source} told {line.kind}, which is not its to tell")
            return
        entry = Entry(line.seq, line.at_ms, line.source, line.launch, line.number, fact)
        try:
            self.ledger.take(entry)
            if isinstance(fact, RunStarted):
                self._run_started(fact)
        except Exception as error:  # noqa: BLE001 - see `_broke`
            self._broke(None, error)
        for owner, watcher in self._watchers.get(type(fact), ()):
            try:
                watcher(entry)
            except Exception as error:  # noqa: BLE001 - see `_broke`
                self._broke(owner, error)

    def damaged(self, damage: Damage) -> None:
        """The history that is fed is not whole."""
        self._damage.append(damage)
        if damage.line:  # 0: of the file as a whole, as when its end is missing
            self._blind(damage.line)
        self.evidence.unknown(f"the history is damaged: {damage}")

    def progress(self) -> dict[str, Any]:
        """Where the judge stands: cheap, for people who watch."""
        heads = [lineage.head for lineage in self.ledger.lineages[-1:]]
        verdicts = {item.name: item.verdict for item in self.invariants}
        violated = [name for name, verdict in verdicts.items() if verdict == VIOLATED]
        head = heads[0] if heads else 0
        return {"lines": self.evidence.lines, "head": head, "violated": violated, "verdicts": verdicts}

    def finish(self) -> dict[str, Any]:
        """The verdict document. Feeding more afterwards changes nothing."""
        if self._finished is None:
            self._guarded(None, self.ledger.finish)
            self._guarded(None, self.reports.finish)
            for invariant in self.invariants:
                self._guarded(invariant, invariant.finish)
            self._guarded(None, self._evaluate)
            self._guarded(None, self.evidence.finish)
            for fault, reason in self.evidence.missed:
                self.observations.add(NOT_REACHED, 0, "driver", f"{fault}: {reason}")
            self._finished = self._document()
        return self._finished

    # ------------------------------------------------------------ inside

    def _blind(self, seq: int) -> None:
        """From this line on something is missing: what follows may only seem to be wrong."""
        for invariant in self.invariants:
            invariant.blind_from = min(invariant.blind_from or seq, seq)

    def _watch_all(self) -> None:
        watchers: list[tuple[object, tuple[type, ...], Callable[[Entry], None]]] = [
            (None, WATCHES, self.reports.take),
            (None, Evidence.watches, self.evidence.on_fact),
            (None, Observations.watches, self.observations.on_fact),
            *((invariant, invariant.watches, invariant.on_fact) for invariant in self.invariants),
        ]
        for owner, kinds, call in watchers:
            own = owner.handlers if isinstance(owner, Invariant) else {}
            for kind in kinds:
                self._watchers.setdefault(kind, []).append((owner, own.get(kind, call)))

    def _guarded(self, owner: object, call: Callable[..., object], *arguments: object) -> None:
        """A checker that breaks cannot say; what breaks outside of one leaves the whole verdict unknown."""
        try:
            call(*arguments)
        except Exception as error:  # noqa: BLE001 - see `_broke`
            self._broke(owner, error)

    def _broke(self, owner: object, error: Exception) -> None:
        """Whatever it is, the answer is "unknown", with the reason."""
        why = f"the checker broke: {error!r}"
        if isinstance(owner, Invariant):
            owner.cannot_say(why)
        else:
            self.evidence.unknown(why)

    def _run_started(self, fact: RunStarted) -> None:
        if self._data is None or self.ledger.started is not fact:
            return
        if self._data.sha256 != fact.dataset_sha256:
            self.evidence.unknown(f"the dataset at hand is {self._data.sha256}, the run's is {fact.dataset_sha256}")
            return
        model = self.ledger.config["model"]
        if model["class_count"] != self._data.class_count:
            raise ValueError(f"a model of {model['class_count']} classes; the data has {self._data.class_count}")
        self.ledger.reference = Reference(model, self._data.train_features, self._data.train_labels)

    def _replayed(self, step: Step) -> None:
        self._guarded(None, self.reports.on_replayed, step)
        for invariant in self._at_replay:
            self._guarded(invariant, invariant.on_replayed, step)

    def _complete(self, step: Step) -> None:
        for invariant in self._at_complete:
            self._guarded(invariant, invariant.on_complete, step)

    def _deviation(self, report: StateReport, what: str) -> None:
        for invariant in self.invariants:
            self._guarded(invariant, invariant.on_deviation, report, what)

    def _unheld(self, report: StateReport, what: str) -> None:
        for invariant in self.invariants:
            self._guarded(invariant, invariant.on_unheld, report, what)

    # ------------------------------------------------------------ the document

    def _find(self, kind: type[Invariant]) -> Any:
        return next((item for item in self.invariants if isinstance(item, kind)), None)

    def _document(self) -> dict[str, Any]:
        ledger, evidence = self.ledger, self.evidence
        valid = ledger.valid_steps()
        committed = len(valid)
        checked = sum(number in lineage.checked for lineage, number in valid)
        void = sum(len(lineage.ids) for lineage in ledger.lineages) - committed
        reasons = list(evidence.reasons)
        if checked != committed:
            unseen = [number for lineage, number in valid if number not in lineage.checked]
            reasons.append(
                f"{checked} of {committed} committed steps were checked; the first that was not: {unseen[0]}"
            )
        verdicts = [invariant.verdict for invariant in self.invariants]
        gradients, samples = self._find(GradientExactness), self._find(SampleAccounting)
        liveness = self._find(Liveness)
        finished = liveness.finished if liveness is not None else None
        return {
            "format": FORMAT,
            "version": VERSION,
            "verdict": worst_of([*verdicts, *([UNKNOWN] if reasons else [])]),
            "reasons": reasons,
            "run": self._run(),
            "condition": finished.condition if finished is not None else "",
            "steps_committed": committed,
            "steps_checked": checked,
            "steps_void": void,
            "final": self._final,
            "invariants": [invariant.document() for invariant in self.invariants],
            "gradient": gradients.figures.document() if gradients is not None else {},
            "samples": samples.samples() if samples is not None else {},
            "observations": self.observations.document(),
            "history": {
                "lines": evidence.lines,
                "reporters": {f"{source}/{launch}": last for (source, launch), last in sorted(evidence.last.items())},
                "damage": [{"line": item.line, "kind": item.kind, "what": item.what} for item in self._damage],
            },
        }

    def _run(self) -> dict[str, Any]:
        config, expectation = self.ledger.config, self.evidence.expectation
        names = ("run_id", "seed", "strategy", "workers", "steps", "model", "optimizer", "batch", "dataset_name")
        return {
            "scenario": expectation.scenario if expectation is not None else "",
            **{name: config[name] for name in names if name in config},
        }

    def _evaluate(self) -> None:
        """The replayed state at the end: its step, digests, and what the model is worth on the held-out samples."""
        ledger, final = self.ledger, self._final
        lineage = ledger.lineages[-1] if ledger.lineages else None
        if lineage is None or lineage.state is None:
            return
        final["step"] = lineage.replayed
        final["parameters_digest"], final["velocity_digest"] = lineage.state.digests
        if ledger.reference is not None and self._data is not None and len(self._data.test_labels):
            features, labels = self._data.test_features, self._data.test_labels
            loss, accuracy = ledger.reference.evaluate(lineage.state.parameters, features, labels)
            final["test_loss"] = loss if loss == loss else None  # noqa: PLR0124 - NaN has no place in JSON
            final["test_accuracy"] = self.evidence.accuracy = accuracy


def broken_document(reason: str) -> dict[str, Any]:
    """The verdict when there is no judge left to ask."""
    judge = Judge(b"")
    judge.evidence.reasons = [f"the judge broke: {reason}"]
    return judge.finish()
