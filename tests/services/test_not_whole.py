"""A history that is not whole accuses nobody: what only seems to be wrong behind a missing line is unknown."""

from __future__ import annotations

import pytest

from services.history import Damage
from services.judge import Judge
from services.records import Committed, Durable, Opened
from tests.services.honest_run import HonestRun, verdicts


def judged(run: HonestRun, dropped: int | None = None, damage: Damage | None = None) -> dict[str, str]:
    judge = Judge(run.dataset)
    if damage is not None:
        judge.damaged(damage)
    for place, line in enumerate(run.lines()):
        if place != dropped:
            judge.feed(line)
    return verdicts(judge.finish())


@pytest.mark.parametrize(("kind", "where"), [(Committed, {"step": 3}), (Durable, {"what": "commit 3.0"})])
def test_a_line_is_missing(kind: type, where: dict[str, object]) -> None:
    run = HonestRun()
    place = run.places(kind, **where)[0]
    assert "violated" not in judged(run, dropped=place).values()
    assert "violated" in judged(run.drop(kind, **where)).values()  # never told, and so nothing is missing


def test_what_was_wrong_before_stays_wrong() -> None:
    run = HonestRun().replace(Opened, {"step": 2}, remaining=1)
    place = run.places(Committed, step=4)[0]
    found = judged(run, dropped=place)
    assert [name for name, verdict in found.items() if verdict == "violated"] == ["sample accounting"]


@pytest.mark.parametrize(("line", "verdict"), [(1, "unknown"), (10_000, "violated"), (0, "violated")])
def test_damage_that_was_found_on_the_disk(line: int, verdict: str) -> None:
    run = HonestRun().replace(Opened, {"step": 2}, remaining=1)
    found = judged(run, damage=Damage(line, "crc" if line else "end", "told by the reader"))
    assert found["sample accounting"] == verdict
