"""Bytes that are reported are bytes that arrived: for every k and b, on the wire and in a run.

The expected length is written down here a second time: header, positions as a bitmap or as indices, bits packed.
"""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest

import testbed
from chaos.scenario import parse_scenario
from services.codec import decode, encode
from services.messages import Boundary
from services.records import BoundaryUsed
from services.wire import messages_pb2 as pb
from testbed.history_facts import read_facts
from training.boundary_codec.codec import encode as encode_payload

GRID = list(itertools.product((10, 25, 50, 100), (4, 6, 8, 12)))
TINY = """\
name: bytes
title: Bytes of a boundary
training:
  kind: shards
  shards: 2
  steps: 2
  batch: 2
  model: {{block_count: 2, width: 8, head_count: 2, mlp_width: 8, context: 16}}
  evaluation_contexts: 2
  compression: {{keep_percent: {keep}, bits: {bits}}}
clean_steps: 1
"""
VALUES = 2 * 16 * 8
HEADER_BYTES = 16


def expected_bytes(count: int, keep_percent: int, bits: int) -> int:
    """Header, positions (none when all are kept), and the bits, rounded up to whole bytes."""
    kept = -(-count * keep_percent // 100)
    index_width = 1 if count <= 2**8 else 2 if count <= 2**16 else 4
    positions = 0 if kept == count else min(-(-count // 8), kept * index_width)
    return HEADER_BYTES + positions + -(-kept * bits // 8)


@pytest.mark.parametrize(("keep", "bits"), GRID)
def test_the_payload_field_that_arrives_has_the_reported_length(keep: int, bits: int) -> None:
    values = np.random.default_rng(7).standard_normal(VALUES)
    sent = Boundary(3, 2, 1, 0, 1, "forward", 0, encode_payload(values, keep, bits))
    on_the_wire = encode(sent)
    field = pb.Frame.FromString(on_the_wire).boundary.payload
    arrived = decode(on_the_wire, "shard-1")
    assert isinstance(arrived, Boundary)
    assert len(field) == len(arrived.payload) == len(sent.payload) == expected_bytes(VALUES, keep, bits)


@pytest.mark.parametrize(("keep", "bits"), GRID)
def test_a_run_reports_what_arrived(keep: int, bits: int, tmp_path: Path) -> None:
    result = testbed.run(parse_scenario(TINY.format(keep=keep, bits=bits), "bytes.yaml"), out=tmp_path / "run")
    assert result.verdict == "pass", result.document["reasons"]
    used = [told.fact for told in read_facts(result.folder / "history.jsonl", (BoundaryUsed,))]
    forward = [fact.payload_bytes for fact in used if isinstance(fact, BoundaryUsed) and fact.direction == "forward"]
    assert forward == [expected_bytes(VALUES, keep, bits)] * 2
    assert result.document["payload_bytes"] == forward[0]
    assert result.document["payload_bytes_total"] == sum(forward)
