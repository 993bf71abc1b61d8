"""A shard's state on disk: one file, its manifest sealed and its tensors proved by SHA-256.

    line 1   sealed JSON: format, shard, step, generation, attempt, generator state, step count, model, digest
    rest     safetensors: parameters and the optimizer's moments, float64 (P,) each

Written tmp -> fsync -> rename -> fsync of the folder, so that a reader meets the whole file or none. A file is named
after (step, generation, attempt); which of them counts is the coordinator's decision, never the file's own.
"""

from __future__ import annotations

import hashlib
import json
import posixpath
import re
from dataclasses import asdict, dataclass

import safetensors.numpy as safetensors_numpy
from safetensors import SafetensorError

from training.arrays import FLOAT64, FloatArray
from training.checkpoint_format import sealed_json, unsealed_json
from training.disk import Disk, DiskOp, MakeDir, Remove, Rename, SyncDir, SyncFile, WriteFile
from training.errors import CheckpointError
from training.generator import GeneratorState
from training.optimizers import OptimizerState
from training.transformer.sharding import ShardSpec

FOLDER = "shards"
_FORMAT = 1
_NAME = re.compile(r"step-(\d{8,})-g(\d+)-a(\d+)\.shard")


@dataclass(frozen=True, slots=True, eq=False)
class ShardSnapshot:
    """A shard's whole state after `step`: parameters (P,), optimizer state, generator of the batches."""

    step: int
    parameters: FloatArray
    moments: OptimizerState
    generator: GeneratorState


def folder_of(shard: int) -> str:
    return posixpath.join(FOLDER, f"shard-{shard}")


def file_name(shard: int, step: int, generation: int, attempt: int) -> str:
    """Path of a prepared file, relative to the run folder."""
    return posixpath.join(folder_of(shard), f"step-{step:08d}-g{generation}-a{attempt}.shard")


def write_plan(path: str, spec: ShardSpec, snapshot: ShardSnapshot) -> tuple[DiskOp, ...]:
    """Make the file durable under `path`."""
    folder, temporary = posixpath.dirname(path), path + ".tmp"
    return (
        MakeDir(FOLDER), SyncDir(posixpath.dirname(FOLDER)), MakeDir(folder), SyncDir(FOLDER),
        WriteFile(temporary, encode(spec, snapshot)), SyncFile(temporary), Rename(temporary, path), SyncDir(folder),
    )  # fmt: skip


def retention_plan(disk: Disk, shard: int, oldest_step: int) -> tuple[DiskOp, ...]:
    """Remove this shard's files of steps before `oldest_step`, temporary and stray ones included."""
    folder = folder_of(shard)
    if not disk.exists(folder):
        return ()
    steps = {name: step_of(name.removesuffix(".tmp")) for name in disk.list(folder)}
    doomed = sorted(name for name, step in steps.items() if step is not None and step < oldest_step)
    return (*(Remove(posixpath.join(folder, name)) for name in doomed), SyncDir(folder)) if doomed else ()


def step_of(name: str) -> int | None:
    """The step in a file's name, or None for another name."""
    match = _NAME.fullmatch(posixpath.basename(name))
    return int(match.group(1)) if match else None


def encode(spec: ShardSpec, snapshot: ShardSnapshot) -> bytes:
    """The same snapshot gives the same bytes."""
    tensors = {"parameters": snapshot.parameters}
    tensors.update({f"moment_{index}": moment for index, moment in enumerate(snapshot.moments.moments)})
    payload = safetensors_numpy.save(tensors)
    manifest = {
        "format": _FORMAT,
        "shard": spec.index + 1,
        "spec": _described(spec),
        "step": snapshot.step,
        "step_count": snapshot.moments.step_count,
        "moments": len(snapshot.moments.moments),
        "generator": snapshot.generator.to_json(),
        "bytes": len(payload),
        "tensors_sha256": hashlib.sha256(payload).hexdigest(),
    }
    return sealed_json(manifest) + payload


def decode(name: str, content: bytes, spec: ShardSpec) -> ShardSnapshot:
    """Raises CheckpointError that names the file and what is wrong with it."""
    line, separator, payload = content.partition(b"\n")
    manifest = unsealed_json(name, line + separator)
    if manifest.get("spec") != _described(spec) or manifest.get("shard") != spec.index + 1:
        raise CheckpointError(f"{name} is of another shard or model; expected shard {spec.index + 1} of {spec}")
    if len(payload) != manifest["bytes"] or hashlib.sha256(payload).hexdigest() != manifest["tensors_sha256"]:
        raise CheckpointError(f"{name} is damaged: its tensors do not have the SHA-256 that its manifest names")
    try:
        tensors = safetensors_numpy.load(payload)
        arrays = [tensors["parameters"], *(tensors[f"moment_{index}"] for index in range(int(manifest["moments"])))]
        generator = GeneratorState.from_json(manifest["generator"])
        step, step_count = int(manifest["step"]), int(manifest["step_count"])
    except (SafetensorError, KeyError, ValueError, TypeError) as error:
        raise CheckpointError(f"{name} is damaged: {error}") from error
    if any(array.dtype != FLOAT64 or array.shape != (spec.parameter_count,) for array in arrays):
        raise CheckpointError(f"{name} holds arrays that do not fit shard {spec.index + 1}")
    return ShardSnapshot(step, arrays[0], OptimizerState(tuple(arrays[1:]), step_count), generator)


def _described(spec: ShardSpec) -> str:
    return json.dumps(asdict(spec), sort_keys=True)
