"""The committed matrix: rows as data, and the scenario that each of them is.

A row differs from the baseline in how boundaries travel, and in nothing else: model, tokens, batches, optimizer, seed
and evaluation are those of `baseline_config.json`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import yaml
from pydantic import Field, ValidationError

from chaos.fault_kinds.base import Milliseconds, PhaseTrigger, Strict, nearest
from chaos.fault_kinds.links import Latency
from chaos.faults import AnyFault
from chaos.scenario import Scenario, ScenarioError, checked
from chaos.shard_setup import (
    CompressionSetup,
    ShardOptimizerSetup,
    ShardTrainingSetup,
    StalenessSetup,
    TokensSetup,
    TransformerSetup,
)
from services.events import COORDINATOR, shard_name
from testbed.experiments.one_process import Crossing
from training.adamw import AdamWConfig
from training.baseline_files import CommittedBaseline
from training.errors import ConfigurationError
from training.optimizers import OptimizerSettings

MATRIX_FILE = "matrix.yaml"


class Row(Strict):
    """One experiment."""

    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]*$")]
    staleness: StalenessSetup = StalenessSetup()
    compression: CompressionSetup | None = None
    link_latency_ms: Milliseconds | None = None
    """Between neighbours everything takes so much longer, by a fault of links, from step 2 to the clean ones."""

    @property
    def measured(self) -> bool:
        """Whether ages are what boundaries took: then a row has other digits each time, and only a run has any."""
        return self.staleness.age == "measured"

    @property
    def crossing(self) -> Crossing:
        """The same, for a computation in one process."""
        aged, told = self.staleness.config(), self.compression
        return Crossing(aged.delay, aged.decay, None if told is None else (told.keep_percent, told.bits))


class DiagnosticRow(Strict):
    """One measurement of what is not supported."""

    name: str
    keep_percent: int
    bits: int


class Matrix(Strict):
    """The file."""

    shards: Annotated[int, Field(ge=1, le=8)]
    rows: list[Row]
    diagnostic: list[DiagnosticRow]

    def named(self, names: list[str]) -> list[Row]:
        """These rows, or all. Raises ConfigurationError with the nearest name."""
        known = {row.name: row for row in self.rows}
        for name in names:
            if name not in known:
                raise ConfigurationError(f"no experiment is called {name!r}{nearest(name, list(known))}")
        return [row for row in self.rows if not names or row.name in names]


def read_matrix(folder: Path) -> Matrix:
    """Raises ConfigurationError for a file that is no matrix."""
    path = folder / MATRIX_FILE
    try:
        matrix = Matrix.model_validate(yaml.safe_load(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise ConfigurationError(f"cannot read {path}: {error.strerror or error}") from error
    except (yaml.YAMLError, ValidationError) as error:
        raise ConfigurationError(f"{path}: {error}") from error
    names = [row.name for row in matrix.rows]
    if len(set(names)) != len(names):
        raise ConfigurationError(f"{path}: two rows have one name")
    return matrix


def scenario_of(row: Row, matrix: Matrix, baseline: CommittedBaseline, steps: int | None = None) -> Scenario:
    """The row as a scenario, to be run like any other. Raises ScenarioError."""
    config, tokens = baseline.config, baseline.corpus
    assert tokens.kind != "text", "a committed baseline has a corpus that everybody can make"
    model, optimizer = config.model, config.optimizer
    setup = ShardTrainingSetup(
        kind="shards",
        tokens=TokensSetup(
            kind=tokens.kind, level=tokens.level, held_out=tokens.held_out, seed=tokens.seed,
            vocabulary_size=tokens.vocabulary_size,
        ),
        model=TransformerSetup(
            block_count=model.block_count, width=model.width, head_count=model.head_count, mlp_width=model.mlp_width,
            context=model.context,
        ),
        shards=matrix.shards, batch=config.batch, micro_batches=config.micro_batches,
        optimizer=_optimizer(optimizer),
        steps=config.steps if steps is None else steps, seed=config.seed, staleness=row.staleness,
        compression=row.compression, evaluate_every=config.evaluate_every,
        evaluation_contexts=config.evaluation_contexts,
    )  # fmt: skip
    if setup.optimizer.config() != optimizer:
        raise ScenarioError([f"row {row.name}: the baseline's optimizer has settings that a scenario cannot say"])
    clean_steps = min(3, setup.steps)
    faults = _late_links(row, matrix.shards, setup.steps - clean_steps)
    made = Scenario(
        name=f"experiment-{row.name}", title=f"Experiment {row.name}", strategies=["shards"], training=setup,
        clean_steps=clean_steps, fixed=not row.measured, faults=faults,
    )  # fmt: skip
    return checked(made, row.name)


def _late_links(row: Row, shards: int, last_step: int) -> list[AnyFault]:
    if row.link_latency_ms is None:
        return []
    if last_step < 2:
        raise ScenarioError([f"row {row.name} needs 5 steps: its links are late from step 2 to the clean ones"])
    pairs = [[shard_name(shard), shard_name(shard + 1)] for shard in range(1, shards)]
    begins, ends = (PhaseTrigger(role=COORDINATOR, step=step, phase="opened") for step in (2, last_step))
    return [Latency(kind="latency", pairs=pairs, delay_ms=row.link_latency_ms, trigger=begins, until=ends)]


def _optimizer(settings: OptimizerSettings) -> ShardOptimizerSetup:
    rate = settings.learning_rate
    if isinstance(settings, AdamWConfig):
        return ShardOptimizerSetup(kind="adamw", learning_rate=rate, weight_decay=settings.weight_decay)
    return ShardOptimizerSetup(kind="sgd", learning_rate=rate, momentum=settings.momentum)
