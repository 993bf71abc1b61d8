"""Any two roles killed at any two phases of one step, exhaustively for three workers, in the simulator.

Each pair has one outcome: both kills act, the verdict is pass with every step checked, and the parameters are the same
in ring and server. A server's or the verifier's death changes nothing that is computed, so there the parameters are
those of the other kill alone.
"""

from __future__ import annotations

import itertools
from functools import cache
from typing import get_args

import pytest

from chaos.phases import JOINER, phases_of
from chaos.scenario import Scenario
from services.config import Strategy
from services.events import COORDINATOR, SERVER, VERIFIER
from testbed.engines.base import Silent
from testbed.engines.sim import SimEngine
from testbed.planning import RunRequest, prepare
from tests.counted import COUNTED, RecordProperty

STEP = 3
WORKERS = ("worker-1", "worker-2", "worker-3")
ROLES = (*WORKERS, COORDINATOR, SERVER, VERIFIER)
STRATEGIES: tuple[Strategy, ...] = get_args(Strategy)
Point = tuple[str, str]  # role, phase

POINTS = [(role, info.name) for role in ROLES for info in phases_of(role) if info.kind != JOINER]
PAIRS = [(one, other) for one, other in itertools.combinations(POINTS, 2) if one[0] != other[0]]


def kinds_of(pair: tuple[Point, Point]) -> str:
    return " and ".join(sorted("worker" if role in WORKERS else role for role, _ in pair))


@cache
def killed(points: tuple[Point, ...], strategy: Strategy) -> tuple[str, str]:
    """Verdict and why it is none (with what is to be the same in every strategy), digest of the last parameters."""
    scenario = Scenario.model_validate(
        {
            "name": "paired-kills",
            "title": "Two roles are killed in one step",
            "training": {"workers": 3, "steps": 5, "batch": {"size": 3}, "dataset": {"sample_count": 31}},
            "faults": [
                {"kind": "kill", "target": role, "trigger": {"step": STEP, "phase": phase}} for role, phase in points
            ],
            "clean_steps": 1,
        }
    )
    plan = prepare(RunRequest(scenario, strategy=strategy)).plan
    outcome = SimEngine().run_in_memory(plan, Silent())
    verdict = outcome.verdict
    said = [verdict["verdict"], f"{verdict['steps_checked']} of {verdict['steps_committed']}", *verdict["reasons"]]
    said += [outcome.aborted, outcome.stop_condition]
    said += [f"{part['name']}: {part['first_violation']} {part['reasons']}" for part in not_passed(verdict)]
    return "; ".join(filter(None, said)), verdict["final"].get("parameters_digest", "")


def not_passed(verdict: dict[str, list[dict[str, str]]]) -> list[dict[str, str]]:
    return [part for part in verdict["invariants"] if part["verdict"] != "pass"]


@pytest.mark.timeout(900)
@pytest.mark.parametrize("kinds", sorted({kinds_of(pair) for pair in PAIRS}))
def test_every_pair_has_one_outcome(kinds: str, record_property: RecordProperty) -> None:
    wrong, runs = [], 0
    for pair in [pair for pair in PAIRS if kinds_of(pair) == kinds]:
        decisive = tuple(point for point in pair if point[0] not in (SERVER, VERIFIER))
        digests = {killed(decisive, "ring")[1]}
        for strategy in STRATEGIES if SERVER not in kinds else ("ps",):
            said, digest = killed(pair, strategy)
            runs += 1
            digests.add(digest)
            if said != "pass; 5 of 5; finished":
                wrong.append(f"{pair}, {strategy}: {said}")
        if len(digests) > 1:
            wrong.append(f"{pair}: parameters differ between the strategies, or from those of {decisive} alone")
    record_property(COUNTED, f"{kinds}: {runs} paired kills, {len(wrong)} wrong")
    assert not wrong, "\n".join(wrong[:20])


def test_the_pairs_are_all_of_them() -> None:
    assert len(POINTS) == 3 * 6 + 4 + 2 + 2
    assert len(PAIRS) == 272  # 224 of them without a server, in both strategies: 496 runs
