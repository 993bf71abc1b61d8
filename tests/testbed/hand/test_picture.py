"""What a standing testbed knows of a fault that is not seen to act."""

from __future__ import annotations

import pytest

from chaos.hand_words import hand_fault
from testbed.hand.picture import Picture

ROLES = {"coordinator": "held at pace.3", "worker-1": "up", "worker-2": "exited 137", "worker-3": "up"}
HEARD = {("worker-3", "worker-1"), ("worker-1", "coordinator")}


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("w1→w2", "latency", "100ms"), "nothing travels there while worker-2 exited 137; gradstorm heal starts again"),
        (("w2↔c", "partition"), "nothing travels there while worker-2 exited 137"),
        (("w1→w3", "reset"), "nothing has come over worker-1→worker-3 so far"),
        (("w1↔w3", "partition"), "nothing has come over worker-1→worker-3 so far"),
        (("w1→c", "latency", "1ms"), ""),
        (("w2", "kill"), ""),
    ],
)
def test_why_a_fault_is_not_seen(words: tuple[str, ...], why: str) -> None:
    picture = Picture(10, lambda _: None)
    for role, state in ROLES.items():
        picture.role(role, 1, state)
    found = picture.why_unseen(hand_fault(words, ROLES), HEARD)
    assert found.startswith(why)
    assert bool(found) is bool(why)
