"""A run that goes on from an earlier one ends as the uninterrupted one does, bit by bit, and stands on its own."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import testbed

ENGINES = ["sim", pytest.param("local", marks=pytest.mark.local)]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("strategy", ["ring", "ps"])
def test_resumed_is_uninterrupted(strategy: str, engine: str, tmp_path: Path) -> None:
    whole = testbed.run("clean", "sim", strategy=strategy, out=tmp_path / "whole")
    first = testbed.run("clean", "sim", strategy=strategy, steps=7, out=tmp_path / "first")
    second = testbed.run("clean", engine, strategy=strategy, resume=str(first.folder), out=tmp_path / "second")
    assert second.passed, second.document
    assert second.document["steps_committed"] == whole.document["steps_committed"] - 7
    assert second.document["params_sha256"] == whole.document["params_sha256"]
    assert second.document["params_sha256"] != first.document["params_sha256"]


def test_the_earlier_run_may_go(tmp_path: Path) -> None:
    first = testbed.run("clean", "sim", steps=7, out=tmp_path / "first")
    second = testbed.run("clean", "sim", resume=str(first.folder), out=tmp_path / "second")
    shutil.rmtree(first.folder)
    again = testbed.replay(str(second.folder), out=tmp_path / "again")
    assert again.passed, again.document
    assert (again.folder / "history.jsonl").read_bytes() == (second.folder / "history.jsonl").read_bytes()


def test_a_damaged_newest_checkpoint_is_passed_over(tmp_path: Path) -> None:
    first = testbed.run("clean", "sim", steps=7, out=tmp_path / "first")
    newest = sorted((first.folder / "checkpoints").glob("ckpt-00000007-*"))[-1]
    (newest / "state.safetensors").write_bytes(b"")
    second = testbed.run("clean", "sim", resume=str(first.folder), out=tmp_path / "second")
    assert second.passed, second.document
    assert second.document["steps_committed"] == 16 - 5
