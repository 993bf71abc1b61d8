"""Every cut, and a death at every phase of every shard, on the engines: the bits of the central model."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
import yaml

import testbed
from chaos.scenario import Scenario, parse_scenario
from tests.conformance.test_shards import require_central

CUTS = [cuts for count in range(6) for cuts in itertools.combinations(range(5), count)]
PHASES = ("open", "forward", "backward", "prepare", "prepared", "commit", "committed")
IMPOSSIBLE = ((1, "backward"), (3, "forward"))  # the first shard hands nothing backward, the last one nothing forward
ENGINES = ["sim", pytest.param("local", marks=pytest.mark.local)]
FEW = [(), (2,), (0, 3), (1, 2, 4), (0, 1, 2, 3), (0, 1, 2, 3, 4)]  # one of each number of shards
_MARKS = {"sim": [], "local": [pytest.mark.local]}
EVERYWHERE = [
    pytest.param(cuts, engine, id=f"{cuts}-{engine}", marks=marks if cuts in FEW else [*marks, pytest.mark.matrix])
    for engine, marks in _MARKS.items()
    for cuts in CUTS
]
pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def scenario(steps: int, cuts: tuple[int, ...], blocks: int, faults: list[dict[str, Any]]) -> Scenario:
    model = {"block_count": blocks, "width": 8, "head_count": 2, "mlp_width": 12, "context": 8}
    training = {"kind": "shards", "steps": steps, "cuts": list(cuts), "batch": 3, "micro_batches": 2, "model": model}
    training |= {"evaluation_contexts": 4, "evaluate_every": 10}
    document = {"name": "everywhere", "title": "Every cut and phase", "training": training, "faults": faults}
    return parse_scenario(yaml.safe_dump(document), "everywhere.yaml")


@pytest.mark.parametrize(("cuts", "engine"), EVERYWHERE)
def test_fifty_steps_of_every_cut_of_four_blocks(cuts: tuple[int, ...], engine: str, tmp_path: Path) -> None:
    wanted = scenario(50, cuts, 4, [])
    require_central(testbed.run(wanted, engine, out=tmp_path / "run").document, wanted)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("shard", [1, 2, 3])
def test_one_shard_dies_at_every_phase_in_turn(shard: int, engine: str, tmp_path: Path) -> None:
    phases = [phase for phase in PHASES if (shard, phase) not in IMPOSSIBLE]
    faults = [
        {"kind": "kill", "target": f"shard-{shard}", "trigger": {"step": 2 * number, "phase": phase}}
        for number, phase in enumerate(phases, start=1)
    ]
    wanted = scenario(2 * len(phases) + 4, (1, 2), 3, faults)
    require_central(testbed.run(wanted, engine, out=tmp_path / "run").document, wanted)
