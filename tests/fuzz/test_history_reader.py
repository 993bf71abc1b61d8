"""Whatever stands in a saved history: a verdict that says why, by the line; no traceback, no wait, no memory.

By structure: a true history is edited (`tests.fuzz.histories`), judged again as `gradstorm verify` does, and told as
the report page does. Memory is what Python and numpy have allocated, at its highest within an example.
"""

from __future__ import annotations

import gc
import json
import time
import tracemalloc
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings

import testbed
from chaos.scenario import Scenario, parse_scenario
from services.records import FaultActed, Finished
from services.verify import verify
from testbed.history_facts import read_facts
from testbed.report_page.page import page
from testbed.report_page.story import read_story
from testbed.run_folder import RunFolder
from testbed.run_lines import report_lines
from tests.fuzz.histories import Edited, edited_histories, line_of
from tests.services.honest_run import HonestRun, Plan, encoded
from training.disk import LossyDisk, WriteFile

EXAMPLES = 150
EXAMPLES_OF_FOLDERS = 40
WARM_UP = 20
SECONDS_MAX = 10.0  # of one example; the usual one takes some hundredths
PEAK_MIB_MAX = 64.0
GROWTH_MIB_MAX = 3.0
FUZZ = settings(
    phases=(Phase.generate,),  # to make an example small takes longer than to find it
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
VERDICTS = ("pass", "violated", "unknown")

PLANS = {
    "a death, a joiner and a skip": Plan(steps=4, dies={2: 2}, joins={3: 4}, spoils={4: 1}),
    "a rollback": Plan(steps=4, rolls_back_after=3),
    "a coordinator that came back": Plan(steps=3, coordinator_returns_after=(2,)),
    "a large model": Plan(steps=2, whole=False),
}

SHARDS = """
name: few-shards
title: Layer-sharded, and small enough to be judged many times
training:
  {kind: shards, steps: 3, cuts: [1], batch: 3, micro_batches: 2, evaluation_contexts: 4,
   model: {block_count: 2, width: 8, head_count: 2, mlp_width: 12, context: 8}}
"""


class Watch:
    """Time and memory of each example."""

    def __init__(self) -> None:
        self.count = 0
        self.verdicts: set[str] = set()
        self._after_warm_up = 0

    def example(self, judge: Callable[[], str]) -> None:
        began_s = time.monotonic()
        tracemalloc.reset_peak()
        before = tracemalloc.get_traced_memory()[0]
        self.verdicts.add(judge())
        peak_mib = (tracemalloc.get_traced_memory()[1] - before) / 2**20
        assert peak_mib < PEAK_MIB_MAX, f"{peak_mib:.0f} MiB"
        assert time.monotonic() - began_s < SECONDS_MAX
        self.count += 1
        if self.count == WARM_UP:
            gc.collect()
            self._after_warm_up = tracemalloc.get_traced_memory()[0]

    def finish(self) -> None:
        gc.collect()
        grown_mib = (tracemalloc.get_traced_memory()[0] - self._after_warm_up) / 2**20
        assert self.count >= EXAMPLES_OF_FOLDERS
        assert grown_mib < GROWTH_MIB_MAX, f"{grown_mib:.1f} MiB in {self.count - WARM_UP} examples"


@pytest.fixture
def watch() -> Iterator[Watch]:
    tracemalloc.start()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            yield Watch()
    finally:
        tracemalloc.stop()


def told(document: object) -> str:
    """The document as it is printed and stored; nobody was in want of memory."""
    text = json.dumps(document, allow_nan=False)
    assert "MemoryError" not in text
    return text


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", PLANS)
def test_the_judge(name: str, watch: Watch) -> None:
    run = HonestRun(PLANS[name])
    lines, arrays = encoded(run.lines())

    @settings(FUZZ, max_examples=EXAMPLES)
    @given(history=edited_histories(lines, arrays))
    def read(history: tuple[bytes, bytes]) -> None:
        disk = LossyDisk()
        for path, content in zip(
            ("history.jsonl", "history.arrays", "dataset.safetensors"), (*history, run.dataset), strict=True
        ):
            disk.apply(WriteFile(path, content))

        def judge() -> str:
            document = verify(disk)
            told(document)
            return str(document["verdict"])

        watch.example(judge)

    read()
    watch.finish()
    assert watch.verdicts == set(VERDICTS)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("scenario", "strategy"), [("kill-worker", "ps"), (parse_scenario(SHARDS, "few-shards.yaml"), "shards")]
)
def test_a_run_folder(scenario: str | Scenario, strategy: str, tmp_path: Path, watch: Watch) -> None:
    result = testbed.run(scenario, strategy=strategy, out=tmp_path / "run")
    folder = RunFolder(result.folder)
    names = ("history.jsonl", "history.arrays")
    lines, arrays = ((result.folder / name).read_bytes() for name in names)
    sharded = strategy == "shards"

    @settings(FUZZ, max_examples=EXAMPLES_OF_FOLDERS)
    @given(history=edited_histories(lines, arrays))
    def read(history: tuple[bytes, bytes]) -> None:
        for name, content in zip(names, history, strict=True):
            (result.folder / name).write_bytes(content)

        def judge() -> str:
            again = testbed.verify(str(result.folder))
            told(again.document)
            "\n".join(report_lines(again)).encode()
            page(again, folder.manifest(), read_story(folder.history_path, sharded))
            return again.verdict

        watch.example(judge)

    read()
    watch.finish()
    assert watch.verdicts >= {"violated", "unknown"}


def test_what_is_edited_is_read_when_nothing_is() -> None:
    """The fuzz edits what a reader understands: unedited it comes out as it went in."""
    lines, arrays = encoded(HonestRun(Plan(steps=2)).lines())
    assert Edited.of(lines, arrays).bytes() == (lines, arrays)


def test_facts_that_a_run_shows_are_those_of_their_tellers(tmp_path: Path) -> None:
    """A member that tells a fault, or the end of the run, changes nothing that people are shown."""
    edited = Edited.of(*encoded(HonestRun(Plan(steps=2)).lines()))
    for record in edited.records:
        if record["kind"] == "Finished":
            record["source"] = "worker-1"
    path = tmp_path / "history.jsonl"
    path.write_bytes(b"".join(line_of(record) for record in edited.records))
    assert list(read_facts(path, (FaultActed, Finished))) == []
