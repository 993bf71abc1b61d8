"""While a scenario runs in containers, testbeds that stand on this machine open no step: they want its cores too."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from testbed.engines.base import EngineError
from testbed.hand.control import all_standing, ask

_BOUND_S = 10.0


@contextlib.contextmanager
def at_rest() -> Iterator[list[str]]:
    """Their names, resting; they go on afterwards, whatever happened. One that does not answer is left as it is."""
    resting = []
    try:
        for standing in all_standing():
            with contextlib.suppress(EngineError):
                ask(standing, {"do": "rest"}, _BOUND_S)
                resting.append(standing)
        yield [standing.run_id for standing in resting]
    finally:
        for standing in resting:
            with contextlib.suppress(EngineError):
                ask(standing, {"do": "go on"}, _BOUND_S)
