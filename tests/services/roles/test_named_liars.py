"""Lies that only whole runs show, where less is recorded or more is hidden; and what was said comes again.

Of a large model's contributions only digests are recorded: the verifier still names who lied where that can be told,
and never says "pass" where it cannot.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import testbed
from services.codec import decode, encode
from services.messages import Offer
from services.records import Committed, Regrouped
from testbed.run_folder import RunFolder
from tests.services.roles.coordinator_bench import Bench
from tests.services.roles.test_lying_members import LIES

LARGE = "mlp:1500"  # more parameters than gradients are recorded whole for
NAMED = {
    "lies-about-its-gradient": "counts what worker 3 has to contribute -1 times",
    "lies-about-its-samples": "was told for its samples",  # by its loss
    "lies-about-its-number": "counts what worker 3 has to contribute",
    "shows-another-gradient": "counts what worker 3 has to contribute -1 times",
    "lies-about-its-loss": "was told for its samples",
    "lies-about-the-sum": "skipped although the reduced value is finite",
}


@pytest.mark.parametrize("strategy", ["ring", "ps"])
@pytest.mark.parametrize("name", NAMED)
def test_the_liar_is_named_although_its_gradient_is_not_recorded(name: str, strategy: str, tmp_path: Path) -> None:
    result = testbed.run("clean", strategy=strategy, model=LARGE, steps=8, plant=(name,), out=tmp_path / "run")
    first = result.document["invariants"]["gradient exactness"]["first_violation"]
    assert result.verdict == "violated"
    assert (first["step"], first["role"]) == (4, "worker-3")
    assert NAMED[name] in first["what"]


def test_a_digest_that_is_not_the_one_recorded_is_named_too(tmp_path: Path) -> None:
    plant = ("offers-another-digest",)
    result = testbed.run("clean", strategy="ring", model=LARGE, steps=8, plant=plant, out=tmp_path / "run")
    first = result.document["invariants"]["contribution accounting"]["first_violation"]
    assert (first["step"], first["role"]) == (4, "worker-3")


def test_a_nan_that_nobody_can_be_shown_to_have_contributed_is_no_pass(tmp_path: Path) -> None:
    plant = ("hides-a-nan",)
    result = testbed.run("clean", strategy="ring", model=LARGE, steps=8, plant=plant, out=tmp_path / "run")
    assert result.verdict == "unknown"
    (reason, *_) = result.document["invariants"]["gradient exactness"]["reasons"]
    assert "step 4 was skipped: the gradient of its samples is finite, so a contribution was not" in reason


def test_every_lie_on_a_large_model_is_looked_at_here() -> None:
    """A digest that is one step old is told to all alike; where no gradient is recorded nothing contradicts it, and
    nothing follows from it."""
    assert {*NAMED, "offers-another-digest", "hides-a-nan", "stale-digest"} == set(LIES)


def test_a_nan_that_is_told_is_a_skip_that_names_its_worker_alone(tmp_path: Path) -> None:
    """Beside `hides-a-nan`: the skip itself names everybody, since all hold a sum that is not finite."""
    result = testbed.run("clean", strategy="ring", plant=("hides-a-nan",), out=tmp_path / "run")
    first = result.document["invariants"]["gradient exactness"]["first_violation"]
    assert "offered it as finite" in first["what"]
    assert result.document["params_sha256"] != ""
    assert RunFolder(result.folder).verdict()["verdict"] == "violated"


# ---------------------------------------------------------------- what was said comes again


def test_whole_frames_of_an_old_generation_are_refused_by_name_and_counted_nowhere() -> None:
    bench = Bench()
    recorded = [encode(bench.offer(worker)) for worker in (1, 2, 3)]  # as they went over the wire
    bench.relaunched()  # raises the generation over the members of old
    assert bench.told(Regrouped)[-1].generation > 1
    written = list(bench.persists)
    for worker, frame in enumerate(recorded, start=1):
        message = decode(frame, f"worker-{worker}")
        assert isinstance(message, Offer)
        (refused,) = bench.hear(worker, message)
        assert (refused.reason, refused.source) == ("old generation", f"worker-{worker}")
        assert refused.generation < refused.current_generation
    assert bench.persists == written
    assert bench.told(Committed) == []
