"""What a testbed that stands trains: a clean run of as many steps as there can be, at a steady pace."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from chaos.scenario import Scenario, checked
from chaos.training_setup import TrainingSetup
from testbed.engines.standing import StandingEngine
from testbed.hand.control import Standing
from testbed.hand.picture import Picture, Tell
from testbed.planning import Prepared, RunRequest, prepare
from training.errors import ConfigurationError

STEPS = 1_000_000
_CHECKPOINT_EVERY = 100


def standing_scenario(workers: int, strategy: Literal["ring", "ps"]) -> Scenario:
    """No faults: those come by hand."""
    scenario = Scenario(
        name="testbed",
        title="A testbed that stands until it is taken down; faults by hand",
        engines=["containers"],
        strategies=[strategy],
        training=TrainingSetup(workers=workers, steps=STEPS, checkpoint_every=_CHECKPOINT_EVERY),
    )
    return checked(scenario, "the testbed")


def prepare_standing(
    request: dict[str, Any], tell: Tell, told_up: Callable[[Standing], None]
) -> tuple[Prepared, Picture]:
    """From what `gradstorm up` hands over. Raises GradstormError; starts nothing."""
    strategy = request["strategy"]
    if strategy not in ("ring", "ps"):
        raise ConfigurationError(f"--strategy {strategy!r} is neither ring nor ps")
    scenario = standing_scenario(int(request["workers"]), strategy)
    out = Path(request["out"]) if request.get("out") else None
    prepared = prepare(RunRequest(scenario, "containers", strategy=strategy, out=out))
    picture = Picture(STEPS, tell)
    engine = StandingEngine(picture, float(request["pace_ms"]), told_up)
    return replace(prepared, engine=engine), picture
