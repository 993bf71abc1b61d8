"""The state that a run ended with, computed anew from its files, and this process's own fingerprint of the model.

Data-parallel: the newest good checkpoint, on the held-out data. Layer-sharded: the files that the last decision names,
merged into the central model, on the evaluation tokens; `params_sha256` is over the merged parameters, so that a run
and the centralized model can be compared whatever the cut.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from services.any_config import AnyRunConfig
from services.config import RunConfig
from services.records import ShardsCommitted, ShardsEvaluated
from services.shard_config import ShardRunConfig
from testbed.boundary_figures import boundary_part, decisions
from testbed.engines.base import RunPlan
from testbed.history_facts import read_facts
from testbed.run_folder import RunFolder
from training.checkpoint import newest_good
from training.corpus_bytes import corpus_from_bytes
from training.datasets import dataset_from_bytes
from training.digest import array_digest
from training.errors import CheckpointError
from training.models import evaluate
from training.numerics import model_fingerprint
from training.real_disk import RealDisk
from training.shard_snapshot import decode
from training.tokens import evaluation_batch
from training.transformer.fingerprint import transformer_fingerprint
from training.transformer.sharding import cut, merge_parameters
from training.transformer.step import central_loss, micro_batches

FINAL = ("final_step", "params_sha256", "velocity_sha256", "final_loss", "final_accuracy")


def own_fingerprint(config: AnyRunConfig) -> str:
    """Of this process, as the members of the run make theirs."""
    if isinstance(config, ShardRunConfig):
        return shard_fingerprint(config)
    return model_fingerprint(config.model, max(1, min(config.batch.size, config.sample_count)))


def shard_fingerprint(config: ShardRunConfig) -> str:
    """Of a transformer, on the contexts of the largest micro-batch."""
    start, stop = micro_batches(config.batch, config.micro_batches)[0]
    return transformer_fingerprint(config.model, stop - start)


def unlike_proved(final: Mapping[str, Any], proved: Mapping[str, Any], condition: str) -> str:
    """Why the state on the disk is not the one that the verifier proved; empty when it is, or nothing was proved.

    What a role tells of a checkpoint is the digest of what it holds; only the file shows what was written. A run that
    finished has written its last step, perhaps on another machine. Shards' files are compared when they are merged.
    """
    if condition != "finished" or "step" not in proved or final["final_step"] is None:
        return ""
    if final["final_step"] != proved["step"]:
        return f"the newest state on the disk is of step {final['final_step']}, the run ended at step {proved['step']}"
    for name, field in (("parameters", "params_sha256"), ("velocity", "velocity_sha256")):
        told = proved.get(f"{name}_digest")
        if told is not None and final[field] is not None and told != final[field]:
            return f"the {name} on the disk are not those of step {proved['step']} that were proved"
    return ""


def final_part(plan: RunPlan, folder: RunFolder) -> dict[str, Any]:
    """Nulls when there is no state that can be read."""
    if isinstance(plan.config, ShardRunConfig):
        return _shards(plan.config, plan.data, folder)
    return _workers(plan.config, plan.data, folder)


def _workers(config: RunConfig, data: bytes, folder: RunFolder) -> dict[str, Any]:
    """From the newest good checkpoint."""
    try:
        _, found, _ = newest_good(RealDisk(), str(folder.checkpoints), config.model, config.dataset_sha256)
    except (CheckpointError, OSError):
        return dict.fromkeys(FINAL)
    dataset = dataset_from_bytes(data, config.dataset_sha256)
    loss, accuracy = evaluate(config.model, found.parameters, dataset.test_features, dataset.test_labels)
    told = loss if math.isfinite(loss) else None  # parameters that are not finite: JSON has no word for it
    digests = array_digest(found.parameters), array_digest(found.velocity)
    return dict(zip(FINAL, (found.step, *digests, told, accuracy), strict=True))


# ---------------------------------------------------------------- layer-sharded


def _shards(config: ShardRunConfig, data: bytes, folder: RunFolder) -> dict[str, Any]:
    """From the files of the newest committed step that has some."""
    decided = decisions(folder)
    found: dict[str, Any] = dict.fromkeys(FINAL)
    for step in sorted(decided, reverse=True):
        parameters = _merged(config, decided[step], folder)
        if parameters is not None:
            corpus = corpus_from_bytes(data, config.dataset_sha256)
            fixed = evaluation_batch(corpus.evaluation, config.evaluation_contexts, config.model.context)
            (spec,) = cut(config.model)
            loss = central_loss(spec, parameters, fixed.inputs, fixed.targets)
            told = loss if math.isfinite(loss) else None
            found = dict(zip(FINAL, (step, array_digest(parameters), None, told, None), strict=True))
            break
    curve = _curve(folder)
    return {
        **found,
        "final_eval_loss": found["final_loss"],
        "told_eval_loss": curve.get(found["final_step"] or 0),
        "evaluation_curve": sorted(curve.items()),
        **boundary_part(config, folder),
    }


def _merged(config: ShardRunConfig, decided: ShardsCommitted, folder: RunFolder) -> Any:
    """The central parameters, or None when a file is missing, damaged or holds another state than was decided."""
    parts = []
    for spec, (_, _, file, digest, _) in zip(config.specs, decided.prepared, strict=False):
        try:
            parameters = decode(file, (folder.path / file).read_bytes(), spec).parameters if file else None
        except (CheckpointError, OSError):
            return None
        if parameters is None or array_digest(parameters) != digest:
            return None
        parts.append(parameters)
    return merge_parameters(config.specs, parts) if len(parts) == len(config.specs) else None


def _curve(folder: RunFolder) -> dict[int, float | None]:
    """Losses that are not finite are None."""
    told = read_facts(folder.history_path, (ShardsEvaluated,))
    facts = [one.fact for one in told if isinstance(one.fact, ShardsEvaluated)]
    return {fact.step: fact.loss if math.isfinite(fact.loss) else None for fact in facts}
