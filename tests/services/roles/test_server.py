"""The parameter server, role alone: which close it follows."""

from __future__ import annotations

import numpy as np

from services.config import RunConfig
from services.events import COORDINATOR, Effect, Phase, Received, Send, Stop
from services.messages import Close, Part, Share, Turned, Welcome
from services.roles.server import Server
from training.config import BatchConfig, ModelConfig, OptimizerConfig

MODEL = ModelConfig("softmax", 1, 2)  # four parameters


def welcomed() -> Server:
    config = RunConfig(
        run_id="r", seed=1, strategy="ps", workers=1, steps=9, model=MODEL, optimizer=OptimizerConfig(0.1, 0.0),
        batch=BatchConfig("per_worker", 2), dataset_name="d", dataset_sha256="0" * 64, sample_count=8,
    )  # fmt: skip
    server = Server(1)
    server.handle(0.0, Received(COORDINATOR, 0, Welcome(1, 1, config.to_json(), 0)))
    return server


def close(server: Server, generation: int, step: int, attempt: int) -> list[Effect]:
    message = Close(generation, step, attempt, (Share(1, 1, 2),), 2, ())
    return server.handle(0.0, Received(COORDINATOR, 0, message))


def push(server: Server, generation: int, step: int, attempt: int) -> list[Part]:
    part = Part(generation, step, attempt, "push", 0, 1, 0, 4, (1,), np.ones(4))
    effects = server.handle(0.0, Received("worker-1", 1, part))
    return [effect.message for effect in effects if isinstance(effect, Send) and isinstance(effect.message, Part)]


def test_after_a_rollback_an_earlier_step_is_gathered_again_from_attempt_0() -> None:
    server = welcomed()
    assert Phase("gathering", 5) in close(server, 1, 5, 1)
    assert len(push(server, 1, 5, 1)) == 1
    assert Phase("gathering", 4) in close(server, 2, 4, 0)
    assert len(push(server, 2, 4, 0)) == 1
    assert Phase("gathering", 5) in close(server, 2, 5, 0)
    assert len(push(server, 2, 5, 0)) == 1


def test_an_attempt_that_is_over_is_not_gathered_again() -> None:
    server = welcomed()
    close(server, 1, 5, 1)
    assert close(server, 1, 5, 0) == []
    assert push(server, 1, 5, 0) == []
    assert len(push(server, 1, 5, 1)) == 1


def test_one_that_is_turned_away_says_why() -> None:
    effects = welcomed().handle(0.0, Received(COORDINATOR, 0, Turned(3, "another server serves", fenced=True)))
    assert effects == [Stop("refused", "another server serves")]
