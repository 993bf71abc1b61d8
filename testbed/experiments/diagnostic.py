"""What error feedback on boundary activations does: measured in one process, and supported nowhere.

The same training as a sharded run's, cut and compressed alike; with feedback, each boundary carries what its codec
dropped over to the next batch's boundary, which belongs to other samples.
"""

from __future__ import annotations

from typing import Any

from testbed.experiments.one_process import Crossing, train
from training.baseline_files import CommittedBaseline
from training.boundary_codec.feedback import WHY_UNSUPPORTED
from training.tokens import Corpus


def measure(
    baseline: CommittedBaseline, corpus: Corpus, shards: int, keep_percent: int, bits: int, feedback: bool
) -> dict[str, Any]:
    """Train to the end; the final evaluation loss, dense and through the codec, and the bytes of a boundary."""
    return train(baseline, corpus, shards, Crossing(compression=(keep_percent, bits), feedback=feedback))


def row(name: str, with_feedback: dict[str, Any], without: dict[str, Any], baseline_loss: float) -> dict[str, Any]:
    """A row of the diagnostic."""
    return {
        "name": name,
        "supported": False,
        "why": WHY_UNSUPPORTED,
        "final_eval_loss": with_feedback["final_eval_loss"],
        "through_codec": with_feedback["through_codec"],
        "without_feedback": without["final_eval_loss"],
        "without_feedback_through_codec": without["through_codec"],
        "delta_to_baseline": with_feedback["final_eval_loss"] - baseline_loss,
        "delta_to_no_feedback": with_feedback["final_eval_loss"] - without["final_eval_loss"],
        "payload_bytes": with_feedback["payload_bytes"],
    }
