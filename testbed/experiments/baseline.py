"""The centralized baseline against what is committed under `experiments/`.

The evaluation artifact must be the frozen one (SHA-256), the corpus the one that it was measured on, and a fresh
computation must give the committed curve within 1e-9: bits depend on the machine's kernels. Two fresh computations on
one machine are equal digit for digit, and that is what sharded runs are compared with.
"""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from testbed.places import read_file
from testbed.run_folder import write_whole
from training.baseline import BaselineResult, run_baseline
from training.baseline_files import (
    CONFIG_FILE,
    CURVE_FILE,
    EVALUATION_FILE,
    CommittedBaseline,
    baseline_files,
    evaluation_digest,
    read_config,
    read_curve,
    read_evaluation,
)
from training.corpora import load_corpus
from training.digest import array_digest
from training.errors import ConfigurationError, DataError
from training.tokens import Corpus, evaluation_batch

TOLERANCE = 1e-9
SCHEMA = "gradstorm.baseline/1"
_FOLDER = "experiments"


@dataclass(frozen=True, slots=True, eq=False)
class Committed:
    """The committed files, read and checked."""

    folder: Path
    baseline: CommittedBaseline
    corpus: Corpus
    evaluation_curve: dict[int, float]

    @property
    def final_loss(self) -> float:
        return self.evaluation_curve[max(self.evaluation_curve)]


def experiments_folder(given: Path | None = None) -> Path:
    """The folder asked for, ./experiments, that of the checkout, or what was installed. Raises ConfigurationError."""
    here = Path(__file__).resolve()
    places = [Path(_FOLDER), here.parents[2] / _FOLDER, here.parent / "committed"] if given is None else [given]
    for place in places:
        if os.path.isfile(place / CONFIG_FILE):
            return place
    raise ConfigurationError(f"no {CONFIG_FILE} in {' or '.join(map(str, places))}; say where it is with --dir")


def read_committed(folder: Path) -> Committed:
    """Raises DataError for an artifact that was changed or a corpus that is another one."""
    baseline = read_config(_content(folder, CONFIG_FILE))
    corpus = load_corpus(baseline.corpus)
    if corpus.sha256 != baseline.corpus_sha256:
        raise DataError(f"{CONFIG_FILE}: the corpus has SHA-256 {corpus.sha256}, not {baseline.corpus_sha256}")
    frozen = read_evaluation(_content(folder, EVALUATION_FILE), baseline.evaluation_sha256)
    config = baseline.config
    fresh = evaluation_batch(corpus.evaluation, config.evaluation_contexts, config.model.context)
    if evaluation_digest(fresh) != evaluation_digest(frozen):
        raise DataError(f"{EVALUATION_FILE} is not what this corpus is evaluated on; restore it")
    _, evaluations = read_curve(_content(folder, CURVE_FILE))
    if not evaluations:
        raise DataError(f"{CURVE_FILE} has no evaluation; restore it")
    return Committed(folder, baseline, corpus, evaluations)


def _content(folder: Path, name: str) -> bytes:
    return read_file(folder / name, "the committed file")


def measure(committed: Committed) -> BaselineResult:
    """The same run, computed here and now."""
    return run_baseline(committed.baseline.config, committed.corpus)


def document_of(committed: Committed, result: BaselineResult, again: BaselineResult | None = None) -> dict[str, Any]:
    """What `gradstorm baseline --json` prints."""
    fresh = dict(result.evaluation_curve)
    differences = [abs(fresh[step] - loss) for step, loss in committed.evaluation_curve.items() if step in fresh]
    same_steps = fresh.keys() == committed.evaluation_curve.keys()
    worst = max(differences, default=float("inf")) if same_steps else float("inf")
    return {
        "schema": SCHEMA,
        "folder": str(committed.folder),
        "steps": committed.baseline.config.steps,
        "final_eval_loss": result.final_evaluation_loss,
        "committed_eval_loss": committed.final_loss,
        "worst_difference": worst if same_steps else None,
        "tolerance": TOLERANCE,
        "within_tolerance": worst <= TOLERANCE,
        "digit_for_digit": fresh == committed.evaluation_curve,
        "repeatable": None if again is None else again.evaluation_curve == result.evaluation_curve,
        "params_sha256": array_digest(result.parameters),
        "evaluation_sha256": committed.baseline.evaluation_sha256,
        "corpus_sha256": committed.baseline.corpus_sha256,
        "evaluation_curve": [list(point) for point in result.evaluation_curve],
    }


def write(committed: Committed, result: BaselineResult) -> list[Path]:
    """Replace the committed files by what was measured now, all of them: whoever interrupts waits for the last one."""
    baseline = committed.baseline
    written = []
    held_back = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM, signal.SIGHUP})
    try:
        for name, content in baseline_files(baseline.config, baseline.corpus, committed.corpus, result).items():
            write_whole(committed.folder / name, content)
            written.append(committed.folder / name)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, held_back)
    return written
