"""The page of the experiments says what the committed results say, and so does the refusal of error feedback."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from testbed.experiments.baseline import experiments_folder, read_committed
from testbed.experiments.matrix import read_matrix, scenario_of
from testbed.experiments.one_process import train
from testbed.experiments.page import PAGE, index_format_bytes, page_of
from testbed.experiments.seeds import document_of, table_of
from testbed.experiments.summary import must_hold
from training.boundary_codec.feedback import WHY_UNSUPPORTED

FOLDER = experiments_folder()


def result(name: str) -> dict[str, Any]:
    return dict(json.loads((FOLDER / "results" / f"{name}.json").read_text(encoding="utf-8")))


def test_the_page_is_made_from_the_results() -> None:
    assert (FOLDER / PAGE).read_text(encoding="utf-8") == page_of(FOLDER), "python -m testbed.experiments.page"


@pytest.mark.parametrize("engine", ["sim", "local"])
def test_every_row_was_run_and_judged_and_every_claim_holds(engine: str) -> None:
    document = result(engine)
    assert [row["name"] for row in document["rows"]] == [row.name for row in read_matrix(FOLDER).rows]
    assert {row["verdict"] for row in document["rows"]} == {"pass"}
    assert all(row["steps_checked"] == row["steps_committed"] == 100 for row in document["rows"])
    assert must_hold(document)
    assert all(item["holds"] for item in document["findings"])
    assert document["baseline"]["committed_eval_loss"] == pytest.approx(read_committed(FOLDER).final_loss, abs=1e-9)


def test_the_prototypes_format_takes_what_it_took() -> None:
    assert index_format_bytes(50, 6) == 22_532
    assert index_format_bytes(50, 6) - index_format_bytes(50, 4) == 2048


def test_the_refusal_of_error_feedback_cites_what_was_measured() -> None:
    for row in result("diagnostic")["rows"]:
        without = row["delta_to_baseline"] - row["delta_to_no_feedback"]
        for delta in (row["delta_to_baseline"], without):
            assert f"+{delta:.3f}" in WHY_UNSUPPORTED


@pytest.mark.parametrize("name", ["control", "top50-6bit-decay-jitter-reorder"])
def test_one_process_gives_the_digits_of_a_run(name: str, tmp_path: Path) -> None:
    from dataclasses import replace

    import testbed

    committed, matrix = read_committed(FOLDER), read_matrix(FOLDER)
    (row,) = matrix.named([name])
    run = testbed.run(scenario_of(row, matrix, committed.baseline, 4), out=tmp_path / "run").document
    shorter = replace(committed.baseline, config=replace(committed.baseline.config, steps=4))
    alone = train(shorter, committed.corpus, matrix.shards, row.crossing)
    assert run["verdict"] == "pass"
    for key in ("final_eval_loss", "payload_bytes", "ages"):
        assert alone[key] == run[key]


def test_pairs_are_compared_seed_by_seed() -> None:
    def one(losses: dict[str, float]) -> dict[str, Any]:
        rows = [
            {"name": name, "delta_to_baseline": loss, "payload_bytes": size, "verdict": "pass"}
            for (name, loss), size in zip(losses.items(), (6, 8), strict=True)
        ]
        return {"engine": "sim", "rows": rows}

    together = document_of(
        {1: one({"top50-4bit": 0.3, "top50-6bit": 0.1}), 2: one({"top50-4bit": 0.2, "top50-6bit": 0.4})}
    )
    (gap, again) = together["findings"]
    assert gap["gaps"] == again["gaps"] == [pytest.approx(0.2), pytest.approx(-0.2)]
    assert (gap["mean"], gap["seeds_where"]) == (pytest.approx(0.0), 1)
    assert together["pareto"] == ["top50-4bit"]
    assert "| top50-4bit | 6 | +0.2500 |" in "\n".join(table_of(together))
