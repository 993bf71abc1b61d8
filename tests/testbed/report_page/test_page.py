"""report.html: one file that tells the run as it was, for a pass, a violation and layer shards."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path

import pytest

import testbed
from chaos.library import scenario_text
from services.records import Committed
from testbed.cli import run_command
from testbed.history_facts import read_facts
from testbed.report_page.charts import MOST_POINTS, runs_of, thinned
from testbed.report_page.story import LEFT_OUT, TOOK_PART, Step, read_story
from testbed.results import RunResult


class _Reading(HTMLParser):
    """Tags that must close do, and what the page loads."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.texts: list[str] = []
        self.loads: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag != "meta":
            self.open.append(tag)
        self.loads += [str(value) for name, value in attrs if name in ("src", "href")]
        self.loads += ["script"] if tag == "script" else []

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def _read(result: RunResult) -> _Reading:
    reading = _Reading()
    reading.feed((result.folder / "report.html").read_text())
    assert not reading.open
    return reading


def test_a_pass_shows_its_numbers_and_loads_nothing(tmp_path: Path) -> None:
    result = testbed.run("kill-worker", out=tmp_path / "run")
    reading = _read(result)
    words = "\n".join(reading.texts)
    assert reading.loads == []
    assert result.document["params_sha256"] in words
    assert "1-kill-worker-2" in words
    assert all(name in words for name in result.document["invariants"])


def test_a_violation_is_on_the_page(tmp_path: Path) -> None:
    result = testbed.run("clean", plant=["mean-of-means"], out=tmp_path / "run")
    first = result.document["invariants"]["gradient exactness"]["first_violation"]
    assert first["what"] in "\n".join(_read(result).texts)


def test_the_lanes_say_who_took_part(tmp_path: Path) -> None:
    result = testbed.run("kill-worker", out=tmp_path / "run")
    story = read_story(result.folder / "history.jsonl", sharded=False)
    commits = [told.fact for told in read_facts(result.folder / "history.jsonl", (Committed,))]
    assert [row.step for row in story.rows()] == list(range(1, result.document["steps_committed"] + 1))
    for row, fact in zip(story.rows(), commits, strict=True):
        assert isinstance(fact, Committed)
        took_part = {name for name, state in row.members.items() if state == TOOK_PART}
        assert took_part == {f"worker-{worker}" for worker, *_ in fact.contributors}
    assert any(LEFT_OUT in row.members.values() for row in story.rows())
    assert any(event.faulty for event in story.events)


def test_shards_have_a_page(tmp_path: Path) -> None:
    result = testbed.run("shards-clean", out=tmp_path / "run")
    assert "shard-1" in _read(result).texts


def test_a_name_with_markup_stays_a_name(tmp_path: Path) -> None:
    scenario = tmp_path / "mine.yaml"
    text = scenario_text("clean")
    assert "The control:" in text
    scenario.write_text(text.replace("The control:", "The control: <script>alert(1)</script>"))
    result = testbed.run(str(scenario), out=tmp_path / "run")
    page = (result.folder / "report.html").read_text()
    assert "<script" not in page
    assert "&lt;script&gt;" in page


def test_report_writes_the_page_anew_and_keeps_the_exit_code(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result = testbed.run("clean", plant=["mean-of-means"], out=tmp_path / "run")
    (result.folder / "report.html").unlink()
    assert run_command(["report", str(result.folder)]) == 1
    assert "VIOLATED" in capsys.readouterr().out
    assert (result.folder / "report.html").exists()


def test_a_run_without_a_verdict_is_refused_by_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = testbed.run("clean", out=tmp_path / "run")
    (result.folder / "verdict.json").unlink()
    assert run_command(["report", str(result.folder)]) == 2
    assert "no verdict" in capsys.readouterr().err


def test_neighbouring_cells_become_one() -> None:
    assert runs_of([(1, "a"), (2, "a"), (3, ""), (4, "a")]) == [(1, 2, "a"), (3, 3, ""), (4, 4, "a")]


@pytest.mark.parametrize("count", [0, 1, MOST_POINTS, MOST_POINTS + 1, 3 * MOST_POINTS + 7])
def test_thinning_keeps_the_last_step(count: int) -> None:
    rows = [Step(number, 1, 1, 0.0, 1, False, {}) for number in range(1, count + 1)]
    kept = thinned(rows, MOST_POINTS)
    assert len(kept) <= MOST_POINTS + 1
    assert kept[-1:] == rows[-1:]
