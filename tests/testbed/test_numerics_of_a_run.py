"""The members' fingerprints in the run document are those of the run's own model, and comparable with the driver's."""

from __future__ import annotations

from pathlib import Path

import pytest

import testbed


@pytest.mark.parametrize("scenario", ["clean", "shards-clean"])
def test_one_machine_has_one_fingerprint(scenario: str, tmp_path: Path) -> None:
    result = testbed.run(scenario, steps=4, out=tmp_path / "run")
    numerics = result.document["numerics"]
    assert result.passed
    assert numerics["members"] == [numerics["driver"]]
    assert numerics["equality"] == "bitwise"


def test_another_model_has_another_one(tmp_path: Path) -> None:
    members = [
        testbed.run("clean", steps=4, model=model, out=tmp_path / model).document["numerics"]["members"]
        for model in ("softmax", "mlp")
    ]
    assert members[0] != members[1]
