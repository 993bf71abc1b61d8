"""The roles of the benchmark in one process: messages go from hand to hand, the clock counts events."""

from __future__ import annotations

import json
from collections import deque
from typing import Any

from services.events import Effect, Event, Persist, Persisted, Received, Send, SetTimer, Started, Stop, TimerFired
from services.host import Role
from training.disk import WriteFile


def carry_all(roles: dict[str, Role]) -> dict[str, Any]:
    """Run until every role has stopped; role -> the document that it wrote."""
    results: dict[str, Any] = {}
    stopped: set[str] = set()
    events: deque[tuple[str, Event]] = deque((name, Started("")) for name in roles)
    now_ms = 0.0
    while events:
        name, event = events.popleft()
        now_ms += 1.0
        for effect in roles[name].handle(now_ms, event):
            if isinstance(effect, Stop):
                stopped.add(name)
            else:
                events.append(_caused(name, effect, results))
    assert stopped == set(roles)
    return results


def _caused(name: str, effect: Effect, results: dict[str, Any]) -> tuple[str, Event]:
    match effect:
        case Send(to, message):
            return to, Received(name, 0, message)
        case Persist(token, (WriteFile(path, content),), _):
            results[path.removesuffix(".json")] = json.loads(content)
            return name, Persisted(token)
        case SetTimer(timer, _):
            return name, TimerFired(timer)
    raise AssertionError(f"unexpected {effect}")
