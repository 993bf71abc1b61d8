"""What a host refuses to be attached for."""

from __future__ import annotations

from dataclasses import replace

import pytest

from services.identity import Claim, Offer, cut_of, model_sha256, why_not_attached
from testbed.planning import RunRequest, prepare

OFFER = Offer("shard-2", "2:4/6", "ab" * 32, "run-1", "1.0", generation=3)
CLAIM = Claim("shard-2", "2:4/6", "ab" * 32, "run-1", "1.0")


def test_a_host_is_attached_for_what_it_was_started_for() -> None:
    assert why_not_attached(CLAIM, OFFER, generation=3) == ""


def test_what_a_host_was_not_told_is_not_compared() -> None:
    assert why_not_attached(Claim("shard", version="1.0"), OFFER) == ""


@pytest.mark.parametrize(
    ("claim", "generation", "why"),
    [
        (replace(CLAIM, run_id="run-2"), 0, "another run"),
        (replace(CLAIM, version="0.9"), 0, "another version"),
        (replace(CLAIM, role="shard-1"), 0, "another role"),
        (replace(CLAIM, role="worker"), 0, "another role"),
        (replace(CLAIM, model_sha256="cd" * 32), 0, "another model"),
        (replace(CLAIM, cut="3:4/6"), 0, "another cut"),
        (CLAIM, 4, "an old driver"),
    ],
)
def test_everything_else_is_refused_with_its_reason(claim: Claim, generation: int, why: str) -> None:
    assert why_not_attached(claim, OFFER, generation).startswith(why)


def test_the_model_is_known_by_what_is_trained_and_not_by_the_run() -> None:
    config = prepare(RunRequest("shards-clean")).plan.config
    assert model_sha256(config) == model_sha256(replace(config, run_id="other", steps=99))
    other = prepare(RunRequest("shards-clean", seed=2)).plan.config
    assert model_sha256(config) != model_sha256(other)


def test_the_cut_names_the_blocks_of_a_shard_and_nothing_of_others() -> None:
    config = prepare(RunRequest("shards-clean")).plan.config
    assert [cut_of(config, f"shard-{number}") for number in (1, 2, 3)] == ["0:2/6", "2:4/6", "4:6/6"]
    assert cut_of(config, "coordinator") == ""
    assert cut_of(prepare(RunRequest("clean")).plan.config, "worker-1") == ""
