"""Bad input of layer-sharded training: one clear line, exit code 2, nothing started and nothing left."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from testbed.cli import run_command

SCENARIO = """\
name: mine
title: A scenario of mine
training: {kind: shards, model: {block_count: 2, width: 8, head_count: 2, context: 8}, shards: 2, steps: 4}
faults:
  - {kind: kill, target: shard-1, trigger: {step: 1, phase: prepare}}
"""

CASES = {
    "cut outside": (
        "shards: 2",
        "cuts: [3]",
        "cuts [3] of 2 blocks: a cut lies outside of the blocks; each must be in 0 .. 2",
    ),
    "cuts twice": ("shards: 2", "shards: 2, cuts: [1]", "training: give either shards or cuts"),
    "cuts descending": ("shards: 2", "cuts: [1, 1]", "cuts must be strictly ascending"),
    "too many shards": ("shards: 2", "shards: 5", "cannot cut 2 blocks into 5 shards; choose 1 .. 4"),
    "micro-batches": ("steps: 4", "steps: 4, batch: 2, micro_batches: 3", "3 micro-batches"),
    "heads": ("head_count: 2", "head_count: 3", "transformer.width is 8, which 3 heads do not divide"),
    "k": (
        "steps: 4",
        "steps: 4, compression: {keep_percent: 0, bits: 6}",
        "keep_percent: 0 is out of range: at least 1",
    ),
    "k above": ("steps: 4", "steps: 4, compression: {keep_percent: 101, bits: 6}", "101 is out of range: at most 100"),
    "b": ("steps: 4", "steps: 4, compression: {keep_percent: 50, bits: 5}", "5 bits; choose 4, 6, 8 or 12"),
    "error feedback": (
        "steps: 4",
        "steps: 4, compression: {keep_percent: 50, bits: 6, error_feedback: true}",
        "error feedback on boundary activations is not supported",
    ),
    "misspelt": (
        "steps: 4",
        "steps: 4, micro_batch: 2",
        "training.micro_batch: unknown key; did you mean 'micro_batches'?",
    ),
    "delay beyond an attempt": (
        "steps: 4",
        "steps: 4, staleness: {delay: {base_ticks: 5000}, max_staleness: 5000}",
        "boundaries may wait 10000 ms on their way there and back, an attempt at a step has 10000 ms; choose a smaller",
    ),
    "evaluation for ever": ("steps: 4", "steps: 4, evaluation_contexts: 1000000000000", "at most 100000"),
    "tick": ("steps: 4", "steps: 4, staleness: {tick_ms: 0.0}", "tick_ms: 0.0 is out of range: above 0"),
    "measured and drawn": (
        "steps: 4",
        "steps: 4, staleness: {age: measured, delay: {base_ticks: 1}}",
        "staleness.age is measured, so no delay is drawn: leave staleness.delay out",
    ),
    "measured and fixed": (
        "steps: 4",
        "steps: 4, staleness: {age: measured}",
        "ages are measured, so two runs may differ; set fixed: false",
    ),
    "some age": ("steps: 4", "steps: 4, staleness: {age: guessed}", "known: injected, measured"),
    "momentum of adamw": ("steps: 4", "steps: 4, optimizer: {momentum: 0.9}", "adamw has no momentum"),
    "worker": ("target: shard-1", "target: worker-1", "worker-1: layer-sharded training has shards, no workers"),
    "stranger": ("target: shard-1", "target: shard-3", "shard-3 does not exist; the run has 2 shards"),
    "phase": ("phase: prepare}", "phase: offer}", "unknown phase 'offer' for shard-1"),
    "last forward": (
        "target: shard-1, trigger: {step: 1, phase: prepare}",
        "target: shard-2, trigger: {step: 1, phase: forward}",
        "shard-2 is the last one: it hands nothing forward",
    ),
    "first backward": ("phase: prepare}", "phase: backward}", "shard-1 is the first one: it hands nothing backward"),
    "micro-batch": ("phase: prepare}", "phase: forward, chunk: 1}", "micro-batch 1 does not exist; there are 1"),
    "not evaluated": ("phase: prepare}", "phase: evaluate}", "nothing is evaluated after step 1"),
    "strategies": ("title:", "strategies: [ring]\ntitle:", "training of kind shards has one strategy"),
    "pause": (
        "{kind: kill, target: shard-1, trigger: {step: 1, phase: prepare}}",
        "{kind: straggle, target: worker-1, step: 1}",
        "layer-sharded training cannot have straggle",
    ),
}


def complaint(folder: Path, capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """What the command says; it must refuse and leave nothing."""
    before = sorted(path.name for path in folder.iterdir())
    assert run_command(["run", *arguments, "--out", str(folder / "run")]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert sorted(path.name for path in folder.iterdir()) == before
    return said.err


@pytest.mark.parametrize("case", CASES)
def test_a_scenario_that_cannot_be_is_refused(case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old, new, told = CASES[case]
    assert old in SCENARIO
    path = tmp_path / "mine.yaml"
    path.write_text(SCENARIO.replace(old, new, 1))
    assert told in complaint(tmp_path, capsys, str(path))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "text mine.txt is empty"),
        ("a b c", "corpus mine.txt has 5 tokens for train; a context of 32 needs at least 33"),
        ("aaaa" * 20, "has 1 different characters"),
    ],
)
def test_a_text_that_is_too_short_is_refused(
    text: str, told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "mine.txt"
    path.write_text(text)
    assert told in complaint(tmp_path, capsys, "shards-clean", "--text", str(path))


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("shards-clean", "--text", "nowhere.txt"), "cannot read the text nowhere.txt"),
        (("clean", "--text", "nowhere.txt"), "--text is for layer-sharded scenarios; clean is data-parallel"),
        (("shards-clean", "--text", "/dev/zero"), "/dev/zero is a pipe or a device; give a file"),
        (
            ("shards-clean", "--text", "mine.txt", "--data", "synthetic"),
            "--text and --data both say what is trained on",
        ),
        (("shards-clean", "--data", "digits"), "--data 'digits' is neither sample nor synthetic"),
        (("shards-clean", "--model", "mlp"), "layer-sharded training has no model of that form"),
        (("shards-clean", "--strategy", "ring"), "scenario shards-clean is for strategy shards, not ring"),
        (("clean", "--strategy", "shards"), "scenario clean is for strategy ring or ps, not shards"),
        (("shards-clean", "--workers", "9"), "9 is out of range: at most 8"),
        (("shards-kill-backward", "--workers", "2"), "shard-3 does not exist; the run has 2 shards"),
    ],
)
def test_options_that_do_not_fit_are_refused(
    arguments: tuple[str, ...], told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert told in complaint(tmp_path, capsys, *arguments)


def test_a_pipe_for_a_text_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    os.mkfifo(tmp_path / "pipe")
    told = complaint(tmp_path, capsys, "shards-clean", "--text", str(tmp_path / "pipe"))
    assert "is a pipe or a device; give a file" in told


def test_a_batch_beyond_the_memory_is_no_violation(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    batch = str(10**13)  # more than a process can address
    assert run_command(["run", "shards-clean", "--batch", batch, "--out", str(tmp_path / "run")]) == 3
    assert "gradstorm: not enough memory: " in capsys.readouterr().err


def test_a_users_text_and_a_synthetic_language_are_trained_on(tmp_path: Path) -> None:
    path = tmp_path / "mine.txt"
    path.write_text("über den wolken, " * 20)
    for number, option in enumerate((["--text", str(path)], ["--data", "synthetic"])):
        out = str(tmp_path / f"run-{number}")
        assert run_command(["run", "shards-clean", "--steps", "3", *option, "--out", out, "--json"]) == 0
