"""The verifier: stores what everybody reports, and judges it while the run goes on.

A record's way: reported -> taken (once, in order) -> appended to the history and synced, many records at a time ->
`Stored` to its reporter -> fed to the judge. Nothing is acknowledged before it is durable, and only what is durable is
judged, so that the saved history leads to the same verdict. One job at a time touches the judge; what waits for it
is bounded in memory, and read back from the disk beyond that.

Its end: `Conclude` says how many records each reporter made. When they are all here (or a bounded wait is over) the end
record is written, then the verdict, then the driver is told. Started again it reads its history, cuts a torn tail off,
goes on numbering and judges anew from the first line.
"""

from __future__ import annotations

import json
from typing import Any

from services.events import (
    DRIVER,
    VERIFIER,
    Compute,
    Computed,
    Effect,
    Event,
    Load,
    Loaded,
    Note,
    Persist,
    Persisted,
    PersistFailed,
    Phase,
    Received,
    Send,
    SetTimer,
    Started,
    Stop,
    TimerFired,
    worker_name,
)
from services.fact_codec import fact_to_numbered
from services.history import ARRAYS_PATH, LINES_PATH, Damage, HistoryLine, read_history
from services.judge import broken_document
from services.judges import make_judge
from services.judging import FeedJob, FinishJob, ReadBackJob, verdict_json
from services.messages import Conclude, Concluded, Judged, Report, Stored
from services.records import Committed, Ended, Fact, ShardsCommitted
from services.roles.ending import Ending
from services.roles.evidence_watch import WATCHED, EvidenceWatch
from services.roles.judge_queue import JudgeQueue, VerifierOptions
from services.roles.record_intake import Place, RecordIntake
from services.roles.told import told_fact
from training.disk import AppendFile, DiskOp, Rename, SyncDir, SyncFile, WriteFile

VERDICT_PATH = "verdict.json"
_TEMPORARY = ".tmp"
_HEEDED = (*WATCHED, "ShardsCommitted")  # what the verifier's own course goes by


class Verifier:
    """See the module's docstring. `dataset_blob` is the run's dataset (safetensors), `config_json` its `RunConfig`."""

    def __init__(
        self, launch: int, dataset_blob: bytes, config_json: str = "", options: VerifierOptions | None = None
    ) -> None:
        self.launch = launch
        self.options = options or VerifierOptions()
        self._judge = make_judge(dataset_blob, config_json)
        self._config_json = config_json
        self._intake = RecordIntake()
        self._watch = EvidenceWatch(self.options.evidence_wait_ms)
        self._queue = JudgeQueue(self.options)
        self._batch: list[HistoryLine] = []  # taken, not yet handed to the disk
        self._writing: list[tuple[HistoryLine, Fact | None]] = []  # handed to the disk; see `told_fact`
        self._persisting = ""  # token of the persist in flight
        self._judging = ""  # token of the job in flight
        self._jobs = 0
        self._damage: tuple[Damage, ...] = ()
        self._new_files = True
        self._broken = ""
        self._lag_noted = 1024
        self._violated: list[str] = []
        self._told_ms = 0.0  # when those who watch were told
        self._end = Ending()
        self._stopped = False
        self._now = 0.0
        self._out: list[Effect] = []

    @property
    def lag_lines(self) -> int:
        """Durable lines that the judge has not been fed."""
        return self._queue.length

    def handle(self, now_ms: float, event: Event) -> list[Effect]:
        self._now, self._out = now_ms, []
        if self._stopped:
            return self._out
        match event:
            case Started(_, _, files):
                self._start(files.get(LINES_PATH, b""), files.get(ARRAYS_PATH, b""))
            case Received(source, _, Report() as report):
                self._report(source, report)
            case Received(source, _, Conclude() as conclude):
                if source == DRIVER:
                    self._conclude(conclude)
                else:
                    self._out.append(Note(f"{source} wants to end the history, which is not its to do: not taken"))
            case Persisted(token) if token == self._persisting:
                self._persisted()
            case PersistFailed(token, error_name, path) if token == self._persisting:
                self._stop(f"disk {error_name}", f"{path}: {error_name}; see doctor")
            case Computed(token, result, error) if token == self._judging:
                self._computed(result, error)
            case Loaded(token, result, error) if token == self._judging:
                self._read_back(result, error)
            case TimerFired(name):
                self._timer(name)
            case _:
                pass
        self._go_on()
        return self._out

    # ------------------------------------------------------------ start

    def _start(self, lines_content: bytes, arrays_content: bytes) -> None:
        history = read_history(lines_content, arrays_content)
        self._intake.resume(history.lines, len(arrays_content))
        self._new_files = not lines_content
        self._damage = tuple(item for item in history.damage if item.kind not in ("end", "empty", "torn"))
        self._end.ended = history.ended
        for line in history.lines:
            self._watch.take(self._now, line, told_fact(line, WATCHED))
            self._queue.add(line)
        torn = len(lines_content) - history.good_bytes
        if torn:
            self._out.append(
                Note(f"the history has a torn tail of {torn} bytes after line {self._intake.lines}: cut off")
            )
            temporary = LINES_PATH + _TEMPORARY
            operations = (
                WriteFile(temporary, lines_content[: history.good_bytes]), SyncFile(temporary),
                Rename(temporary, LINES_PATH), SyncDir("."),
            )  # fmt: skip
            self._persist(operations, "history repaired")
        self._set_evidence_timer()

    # ------------------------------------------------------------ records

    def _report(self, source: str, report: Report) -> None:
        if source != report.source:
            self._out.append(Note(f"{source} reported in the name of {report.source}: not taken"))
            return
        if self._end.ended:
            return
        lines, gap = self._intake.take(self._now, report)
        self._batch.extend(lines)
        if gap or not report.records:
            self._acknowledge((report.source, report.launch))

    def _acknowledge(self, place: Place) -> None:
        source, launch = place
        self._out.append(Send(source, Stored(source, launch, self._intake.stored.get(place, 0))))

    def _write(self) -> None:
        """Hand everything that was taken to the disk in one go: arrays before the lines that speak of them."""
        batch, self._batch = self._batch, []
        self._writing = [(line, told_fact(line, _HEEDED)) for line in batch]
        for _, fact in self._writing:
            self._pass("unstored", fact)
        lines, arrays = self._intake.encode(batch)
        operations: list[DiskOp] = []
        if arrays or self._new_files:
            operations += [AppendFile(ARRAYS_PATH, arrays), SyncFile(ARRAYS_PATH)]
        operations += [AppendFile(LINES_PATH, lines), SyncFile(LINES_PATH)]
        if self._new_files:
            operations.append(SyncDir("."))
            self._new_files = False
        self._persist(tuple(operations), f"history through {batch[-1].seq}")

    def _pass(self, phase: str, fact: Fact | None) -> None:
        """A commit is received, or stored: a point at which a death can be ordered."""
        if isinstance(fact, Committed | ShardsCommitted):
            self._out.append(Phase(phase, fact.step))

    def _persist(self, operations: tuple[DiskOp, ...], what: str) -> None:
        self._jobs += 1
        self._persisting = f"{self.launch}.{self._jobs}"
        self._out.append(Persist(self._persisting, operations, what))

    def _persisted(self) -> None:
        self._persisting = ""
        if self._end.verdict_json and self._end.writing:
            self._end.writing = False
            self._tell_verdict()
            return
        written, self._writing = self._writing, []
        places: dict[Place, int] = {}
        for line, fact in written:
            if line.source != VERIFIER:
                places[line.source, line.launch] = line.number
            self._watch.take(self._now, line, fact)
            self._queue.add(line)
        self._intake.stored.update(places)
        for _, fact in written:
            self._pass("stored", fact)
        for place in sorted(places):
            self._acknowledge(place)
        if not self._end.ended:
            self._out.extend(Send(worker_name(worker), message) for worker, message in self._watch.release())
            self._set_evidence_timer()

    # ------------------------------------------------------------ missing values

    def _set_evidence_timer(self) -> None:
        due_ms = self._watch.due_ms
        if due_ms is not None:
            self._out.append(SetTimer("evidence", max(1.0, due_ms - self._now)))

    def _timer(self, name: str) -> None:
        if name == "evidence" and not self._end.ended:
            for worker, message in self._watch.ask(self._now):
                self._out.append(Note(f"the value of step {message.step} is missing: asking worker {worker}"))
                self._out.append(Send(worker_name(worker), message))
            self._set_evidence_timer()
        elif name == "conclude":
            self._end.patience_over = True
        elif name == "linger":
            self._stop("finished", "")

    # ------------------------------------------------------------ the judge

    def _go_on(self) -> None:
        """Start what can be started: one persist, one job."""
        if self._stopped:
            return
        if not self._persisting and self._batch:
            self._write()
        if self._end.asked and not self._end.ended:
            self._end_history()
        if not self._judging:
            self._feed()

    def _feed(self) -> None:
        if self._broken or self._end.verdict_json:
            self._write_verdict()
        elif self._queue.ready or self._damage:
            damage, self._damage = self._damage, ()
            self._compute(FeedJob(self._judge, self._queue.take(), damage))
        elif self._queue.length:
            first, last = self._queue.spilled
            self._jobs += 1
            self._judging = f"{self.launch}.{self._jobs}"
            self._out.append(Load(self._judging, ReadBackJob(first, last)))
        elif self._end.asked and self._end.ended and not self._persisting:
            self._compute(FinishJob(self._judge))

    def _compute(self, job: FeedJob | FinishJob) -> None:
        self._jobs += 1
        self._judging = f"{self.launch}.{self._jobs}"
        self._out.append(Compute(self._judging, job))

    def _computed(self, result: Any, error: str) -> None:
        self._judging = ""
        if error:
            self._broken = error
            self._out.append(Note(f"the judge broke: {error}"))
        elif isinstance(result, str):
            self._end.verdict_json = result
        else:
            self._note_progress(result)

    def _read_back(self, result: Any, error: str) -> None:
        self._judging = ""
        if error:
            self._broken = f"the history cannot be read back: {error}"
        else:
            self._queue.refill(result)

    def _note_progress(self, progress: dict[str, Any]) -> None:
        fresh = [name for name in progress["violated"] if name not in self._violated]
        if fresh:
            self._violated += fresh
            self._out.append(Note(f"violated at or before step {progress['head']}: {', '.join(fresh)}"))
        if fresh or self._now >= self._told_ms + self.options.tell_every_ms:
            self._told_ms = self._now
            verdicts_json = json.dumps(progress["verdicts"], sort_keys=True)
            self._out.append(Send(DRIVER, Judged(progress["head"], self.lag_lines, verdicts_json)))
        if self.lag_lines > self._lag_noted:
            self._lag_noted = 2 * self.lag_lines
            self._out.append(Note(f"the judge is {self.lag_lines} lines behind"))

    # ------------------------------------------------------------ the end

    def _conclude(self, message: Conclude) -> None:
        if self._end.told:
            self._out.append(Send(DRIVER, Concluded(self._end.verdict_json)))
            return
        if self._end.asked:
            return
        self._end.asked = True
        self._end.expect(message.expected_json)
        self._out.append(SetTimer("conclude", self.options.conclude_wait_ms))

    def _end_history(self) -> None:
        """Append the end record once everything that was made is here and durable, or the wait is over."""
        missing = self._end.lacks(self._intake.taken) or bool(self._watch.missing)
        if self._persisting or self._batch or (missing and not self._end.patience_over):
            return
        reporters, excused = self._end.census(self._intake.taken)
        record = fact_to_numbered(Ended(self._intake.lines, reporters, excused), 1)
        self._batch.append(self._intake.own_line(self._now, VERIFIER, self.launch, record))
        self._end.ended = True
        self._write()

    def _write_verdict(self) -> None:
        if not (self._end.asked and self._end.ended) or self._persisting or self._end.told:
            return
        if not self._end.verdict_json:
            self._end.verdict_json = verdict_json(broken_document(self._broken))
        temporary = VERDICT_PATH + _TEMPORARY
        operations = (
            WriteFile(temporary, self._end.verdict_json.encode()), SyncFile(temporary),
            Rename(temporary, VERDICT_PATH), SyncDir("."),
        )  # fmt: skip
        self._end.writing = True
        self._out.append(Phase("verdict", 0))
        self._persist(operations, "verdict")

    def _tell_verdict(self) -> None:
        self._end.told = True
        self._out.append(Send(DRIVER, Concluded(self._end.verdict_json)))
        self._out.append(SetTimer("linger", self.options.linger_ms))

    def _stop(self, condition: str, reason: str) -> None:
        self._stopped = True
        self._out.append(Stop(condition, reason))
