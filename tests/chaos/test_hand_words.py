"""What a person says to `inject`: understood in every way of writing it, or refused with what would be."""

from __future__ import annotations

import pytest

from chaos.fault_kinds.links import Bandwidth, Jitter, Latency, Partition, Reset
from chaos.fault_kinds.roles import AddWorker, Kill, Pause
from chaos.hand_words import UNTIL_HEALED_MS, hand_fault
from training.errors import ConfigurationError

ROLES = ("coordinator", "worker-1", "worker-2", "worker-12", "verifier")


@pytest.mark.parametrize("link", ["worker-1→worker-2", "w1->w2", "w1>w2", "worker-1 -> worker-2"])
def test_one_direction(link: str) -> None:
    fault = hand_fault((link, "latency", "100ms"), ROLES)
    assert isinstance(fault, Latency)
    assert fault.links == (("worker-1", "worker-2"),)
    assert (fault.delay_ms, fault.for_ms) == (100.0, UNTIL_HEALED_MS)


@pytest.mark.parametrize("link", ["c↔w12", "coordinator<->worker-12", "c|w12"])
def test_both_directions(link: str) -> None:
    fault = hand_fault((link, "partition", "for", "5s"), ROLES)
    assert isinstance(fault, Partition)
    assert fault.links == (("coordinator", "worker-12"), ("worker-12", "coordinator"))
    assert fault.for_ms == 5000.0


def test_every_kind() -> None:
    jitter = hand_fault(("w1→w2", "jitter", "0.05s"), ROLES)
    bandwidth = hand_fault(("w1→w2", "bandwidth", "2MiB/s"), ROLES)
    assert isinstance(jitter, Jitter)
    assert jitter.jitter_ms == 50.0
    assert isinstance(bandwidth, Bandwidth)
    assert bandwidth.kib_per_s == 2048.0
    assert isinstance(hand_fault(("w1→w2", "reset"), ROLES), Reset)
    assert hand_fault(("w1→w2", "flap"), ROLES).kind == "flap"
    kill, pause = hand_fault(("c", "kill"), ROLES), hand_fault(("w2", "pause", "for", "2s"), ROLES)
    assert isinstance(kill, Kill)
    assert kill.target == "coordinator"
    assert isinstance(pause, Pause)
    assert (pause.target, pause.for_ms) == ("worker-2", 2000.0)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("w1→w2",), "say whom and what"),
        (("w1→w9", "latency", "1ms"), "no such role 'w9' in this testbed"),
        (("server", "kill"), "no role 'server' in this testbed"),
        (("w1→w2", "latecy", "1ms"), "did you mean 'latency'"),
        (("w1→w2", "latency"), "latency wants one amount, such as: latency 100ms"),
        (("w1→w2", "latency", "fast"), "'fast' is no amount"),
        (("w1→w2", "latency", "100kg"), "a number with one of: ms, s"),
        (("w1→w2", "latency", "0ms"), "greater than 0"),
        (("w1→w2", "bandwidth", "0KiB/s"), "greater than 0"),
        (("w1→w1", "partition"), "worker-1 is on both sides"),
        (("w1→v", "partition"), "the verifier are not disturbed"),
        (("w1", "latency", "100ms"), "latency is a fault of a link, such as w1→coordinator"),
        (("w1", "kil"), "did you mean 'kill'"),
        (("w1", "kill", "now"), "kill takes no 'now'"),
        (("c", "pause"), "'coordinator' is no worker"),
        (("w1→w2", "partition", "for", "ever"), "'ever' is no amount"),
    ],
)
def test_what_is_not_understood_is_said(words: tuple[str, ...], told: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        hand_fault(words, ROLES)
    assert told in str(refused.value)


@pytest.mark.parametrize("word", ["worker-13", "w13"])
def test_a_worker_may_be_added(word: str) -> None:
    fault = hand_fault((word, "add"), ROLES, ("worker-13", "worker-14"))
    assert isinstance(fault, AddWorker)
    assert fault.target == "worker-13"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("w2", "add"), "worker-2 is in this testbed already; `gradstorm heal`"),
        (("w99", "add"), "cannot add 'w99'; what can be added here: worker-13, worker-14"),
        (("server", "add"), "cannot add 'server'"),
        (("w13", "add", "now"), "add takes no 'now'"),
        (("w13", "kill"), "no such role 'w13' in this testbed"),
    ],
)
def test_who_cannot_be_added(words: tuple[str, ...], told: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        hand_fault(words, ROLES, ("worker-13", "worker-14"))
    assert told in str(refused.value)


def test_nobody_can_be_added_to_shards() -> None:
    with pytest.raises(ConfigurationError, match="what can be added here: nobody"):
        hand_fault(("shard-3", "add"), ("coordinator", "shard-1", "shard-2", "verifier"))
