"""The judge of a layer-sharded run: the same interface as `services.judge.Judge`, and the same document."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from services.evidence import Evidence
from services.fact_reading import UnreadableFact, read_fact
from services.fact_tellers import may_tell
from services.history import Damage, HistoryLine
from services.invariants.base import UNKNOWN, VIOLATED, worst_of
from services.lineage import COORDINATOR, Entry, shard_role
from services.observations import SKIPPED
from services.records import RunStarted, ShardsEvaluated
from services.shards.bookkeeping import Batches, Tokens, UnreadableTokens, read_tokens
from services.shards.checks import Figures, StepChecks
from services.shards.evaluations import Evaluations
from services.shards.ledger import ShardLedger, ShardStep
from services.shards.model import TOLERANCE_FLOORS
from services.shards.rules import HOLDS_WHEN, Rules, Tally


class ShardJudge:
    """See the module's docstring. `tokens_blob` is the run's tokens (safetensors)."""

    def __init__(self, tokens_blob: bytes) -> None:
        self.ledger = ShardLedger(self._complete)
        self.tallies = {name: Tally(name) for name in HOLDS_WHEN}
        self.rules = Rules(self.ledger, self.tallies)
        self.evidence = Evidence(self.ledger, shard_role)  # type: ignore[arg-type]
        self.figures = Figures()
        self.evaluations: dict[int, float | None] = {}
        self._evaluated = Evaluations(self.ledger)
        self._tokens: Tokens | None = None
        self._batches: Batches | None = None
        self._told: dict[int, int] = {}
        self._recovered: set[int] = set()
        self._damage: list[Damage] = []
        self._finished: dict[str, Any] | None = None
        try:
            self._tokens = read_tokens(tokens_blob)
        except UnreadableTokens as error:
            self.evidence.unknown(str(error))

    # ------------------------------------------------------------ feeding

    def feed(self, line: HistoryLine) -> None:
        """Take the next line. Never raises."""
        if not self.evidence.on_line(line.seq, line.source, line.launch, line.number, line.kind):
            self._blind(line.seq)
        repeated = self._is_repeated(line)
        try:
            fact = read_fact(line.kind, line.body_json, line.arrays)
        except UnreadableFact as error:
            self.evidence.unknown(f"line {line.seq}: {error}")
            return
        if not may_tell(line.source, fact):
            self.evidence.unknown(f"line {line.seq}: {line.source} told {line.kind}, which is not its to tell")
            return
        entry = Entry(line.seq, line.at_ms, line.source, line.launch, line.number, fact)
        if repeated:
            return
        self._guarded(self.evidence.on_fact, entry)
        if isinstance(fact, RunStarted):
            self._started(fact)
        if isinstance(fact, ShardsEvaluated):
            self.evaluations[fact.step] = fact.loss if math.isfinite(fact.loss) else None  # JSON has no word for it
            self._evaluated.told(fact, line.seq)
        self._guarded(self.rules.on_fact, entry)
        self._guarded(self.ledger.take, entry)
        if self._evaluated.open_steps:
            self._guarded(self._check_evaluations)

    def damaged(self, damage: Damage) -> None:
        """The history that is fed is not whole."""
        self._damage.append(damage)
        if damage.line:  # 0: of the file as a whole, as when its end is missing
            self._blind(damage.line)
        self.evidence.unknown(f"the history is damaged: {damage}")

    def progress(self) -> dict[str, Any]:
        """Where the judge stands: cheap, for people who watch."""
        verdicts = {name: tally.verdict for name, tally in self.tallies.items()}
        violated = [name for name, verdict in verdicts.items() if verdict == VIOLATED]
        head = max(self.ledger.commits, default=0)
        return {"lines": self.evidence.lines, "head": head, "violated": violated, "verdicts": verdicts}

    def finish(self) -> dict[str, Any]:
        """The verdict document. Feeding more afterwards changes nothing."""
        if self._finished is None:
            self._guarded(self.ledger.finish)
            self._guarded(self._check_evaluations)
            self._guarded(self.rules.finish)
            self._guarded(self.evidence.finish)
            self._finished = self._document()
        return self._finished

    # ------------------------------------------------------------ inside

    def _blind(self, seq: int) -> None:
        """From this line on something is missing: what follows may only seem to be wrong."""
        for tally in self.tallies.values():
            tally.blind_from = min(tally.blind_from or seq, seq)

    def _is_repeated(self, line: HistoryLine) -> bool:
        """A relaunched coordinator reads its log out; once `Recovered` is told nothing more is read out."""
        if line.source != COORDINATOR or line.kind == "Durable":
            return False
        if line.kind == "Recovered":
            self._recovered.add(line.launch)
        first = self._told.setdefault(hash((line.kind, line.body_json)), line.launch)
        return first < line.launch and line.launch not in self._recovered

    def _started(self, fact: RunStarted) -> None:
        if self._tokens is None:
            return
        if self._tokens.sha256 != fact.dataset_sha256:
            self.evidence.unknown(f"the tokens at hand are {self._tokens.sha256}, the run's are {fact.dataset_sha256}")
        self._guarded(self._make_batches, fact)

    def _make_batches(self, fact: RunStarted) -> None:
        assert self._tokens is not None
        self.ledger.take(Entry(0, 0.0, COORDINATOR, 1, 0, fact))
        config = self.ledger.config
        self._batches = Batches(config["seed"], config["batch"], config["model"]["context"], self._tokens.train)

    def _complete(self, step: ShardStep) -> None:
        if self._batches is None:
            self.evidence.unknown(f"step {step.number} cannot be checked without the run's tokens")
            return
        checks = StepChecks(self.ledger, self._batches, step, self.figures)
        checks.run()
        for name, count in checks.counts.items():
            self.tallies[name].checks += count
        for finding in checks.findings:
            self.tallies[finding.invariant].violated(step.number, finding.role, finding.what, finding.seq)
        for name, why in checks.unknown:
            self.tallies[name].cannot_say(why)
        if not checks.unknown:
            self.ledger.checked.add(step.number)

    def _check_evaluations(self) -> None:
        if self._tokens is None:
            return
        tally = self.tallies["gradient exactness"]
        for step, wrong, seq in self._evaluated.check(self._tokens):
            tally.checks += 1
            if wrong:
                tally.violated(step, COORDINATOR, wrong, seq)

    def _guarded(self, call: Callable[..., object], *arguments: object) -> None:
        try:
            call(*arguments)
        except Exception as error:  # noqa: BLE001 - whatever it is, the answer is "unknown", with the reason
            self.evidence.unknown(f"the checker broke: {error!r}")

    def _document(self) -> dict[str, Any]:
        ledger, reasons = self.ledger, list(self.evidence.reasons)
        committed, checked = len(ledger.commits), len(ledger.checked & set(ledger.commits))
        if checked != committed:
            reasons.append(f"{checked} of {committed} committed steps were checked")
        verdicts = [tally.verdict for tally in self.tallies.values()]
        return {
            "format": "gradstorm.verdict",
            "version": 1,
            "verdict": worst_of([*verdicts, *([UNKNOWN] if reasons else [])]),
            "reasons": reasons,
            "run": self._run(),
            "condition": self.rules.condition,
            "steps_committed": committed,
            "steps_checked": checked,
            "steps_void": ledger.void,
            "final": self._final(),
            "invariants": [tally.document() for tally in self.tallies.values()],
            "gradient": {
                "noise_floor": self.figures.noise_floor,
                "tolerance": TOLERANCE_FLOORS * self.figures.noise_floor,
                "tolerance_floors": TOLERANCE_FLOORS,
                "smallest_detectable_bug": (TOLERANCE_FLOORS + 1) * self.figures.noise_floor,
                "worst_error": self.figures.worst_error,
                "worst_error_floors": self.figures.worst_floors,
            },
            "boundaries": {
                "used": self.figures.boundaries,
                "payload_bytes": self.figures.payload_bytes,
                "dense_bytes": self.figures.dense_bytes,
                "max_age_ticks": self.figures.max_age,
                "ages_are": ledger.config.get("staleness", {}).get("age", ""),
            },
            "evaluations": {str(step): loss for step, loss in sorted(self.evaluations.items())},
            "samples": {},
            "observations": self._observations(),
            "history": {
                "lines": self.evidence.lines,
                "reporters": {
                    f"{source}/{launch}": last for (source, launch), last in sorted(self.evidence.last.items())
                },
                "damage": [{"line": item.line, "kind": item.kind, "what": item.what} for item in self._damage],
            },
        }

    def _observations(self) -> list[dict[str, Any]]:
        skips = self.ledger.skips
        keys = [key for c in self.ledger.commits.values() if (key := (c.generation, c.step, c.attempt)) in skips]
        if not keys:
            return []
        first = min(keys, key=lambda key: key[1])
        role, _, what = skips[first].partition(": ")
        return [{"kind": SKIPPED, "count": len(keys), "first_step": first[1], "role": role, "what": what}]

    def _run(self) -> dict[str, Any]:
        config, expectation = self.ledger.config, self.evidence.expectation
        names = ("run_id", "seed", "strategy", "steps", "model", "cuts", "optimizer", "batch", "dataset_name")
        return {
            "scenario": expectation.scenario if expectation is not None else "",
            **{name: config[name] for name in names if name in config},
        }

    def _final(self) -> dict[str, Any]:
        last = max(self.ledger.commits, default=0)
        held = self.ledger.held.get(last, {})
        digests = [held[shard].digests[0] for shard in sorted(held)]
        loss = self.evaluations.get(last)
        return {"step": last, "shard_digests": digests, "eval_loss": loss}
