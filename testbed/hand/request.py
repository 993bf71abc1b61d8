"""What a testbed that stands trains: a clean run of as many steps as there can be, at a steady pace."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

from chaos.scenario import Scenario, checked
from chaos.shard_setup import ShardTrainingSetup
from chaos.training_setup import STEPS_MAX, TrainingSetup
from services.any_config import SHARDS, AnyStrategy
from testbed.engines.standing import StandingEngine
from testbed.hand.control import Standing
from testbed.hand.picture import Picture, Tell
from testbed.planning import Prepared, RunRequest, prepare
from training.errors import ConfigurationError
from training.transformer.sharding import MAX_SHARDS

STEPS = STEPS_MAX
_CHECKPOINT_EVERY = 100


def standing_scenario(members: int, strategy: AnyStrategy) -> Scenario:
    """No faults: those come by hand."""
    training: TrainingSetup | ShardTrainingSetup = TrainingSetup(
        workers=members, steps=STEPS, checkpoint_every=_CHECKPOINT_EVERY
    )
    if strategy == SHARDS:
        if members > MAX_SHARDS:
            raise ConfigurationError(f"{members} shards; at most {MAX_SHARDS} are possible")
        training = ShardTrainingSetup(
            kind="shards", shards=members, steps=STEPS, evaluate_every=_CHECKPOINT_EVERY, evaluation_contexts=8
        )
    scenario = Scenario(
        name="testbed",
        title="A testbed that stands until it is taken down; faults by hand",
        engines=["containers"],
        strategies=[strategy],
        training=training,
    )
    return checked(scenario, "the testbed")


def prepare_standing(
    request: dict[str, Any], tell: Tell, told_up: Callable[[Standing], None]
) -> tuple[Prepared, Picture]:
    """From what `gradstorm up` hands over. Raises GradstormError; starts nothing."""
    strategy = request["strategy"]
    if strategy not in get_args(AnyStrategy):
        raise ConfigurationError(f"--strategy {strategy!r} is none of {', '.join(get_args(AnyStrategy))}")
    scenario = standing_scenario(int(request["workers"]), strategy)
    out = Path(request["out"]) if request.get("out") else None
    prepared = prepare(RunRequest(scenario, "containers", strategy=strategy, out=out))
    picture = Picture(STEPS, tell)
    engine = StandingEngine(picture, float(request["pace_ms"]), told_up)
    return replace(prepared, engine=engine), picture
