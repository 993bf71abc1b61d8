"""The figures of layer shards: what is compared trains the same model, and bytes are those of the payload."""

from __future__ import annotations

from pathlib import Path

from testbed.bench import shards
from testbed.bench.family import Bench
from training.boundary_codec.payload import payload_bytes

_TINY = """
name: tiny
title: A small model
training: {kind: shards, model: {block_count: 2, width: 8, mlp_width: 8, context: 8}, cuts: [1], evaluation_contexts: 1}
"""


def _bench(folder: Path) -> Bench:
    return Bench(True, None, folder, lambda text: None)


def test_central_training_gives_the_time_of_each_step_but_the_first_and_the_last(tmp_path: Path) -> None:
    scenario = shards._scenario(_TINY, 5)
    took_us, elements = shards._central(_bench(tmp_path), scenario, 5, 1)
    assert len(took_us) == 5 - 2
    assert min(took_us) > 0.0
    assert elements > 0


def test_a_run_in_the_simulator_is_measured_from_commit_to_commit(tmp_path: Path) -> None:
    took_us = shards._intervals_us(_bench(tmp_path), shards._scenario(_TINY, 6), "sim")
    assert len(took_us) == 6 - 3
    assert min(took_us) > 0.0


def test_bytes_per_step_are_those_of_the_payloads(tmp_path: Path) -> None:
    found = {figure.name: figure.value for figure in shards._bytes(_bench(tmp_path))}
    elements, cuts = 8 * 64 * 32, 2
    assert found["shards.bytes_per_step.top50_6bit"] == cuts * payload_bytes(elements, 50, 6)
    assert found["shards.bytes_per_step.dense"] == cuts * (8 + 8 * elements)
