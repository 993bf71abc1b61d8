"""What a checkpoint is, byte by byte: one safetensors file and a manifest that covers every bit of both.

    ckpt-00000012-g3-i1/            step 12, generation 3, incarnation 1
        state.safetensors           parameters (P,) and velocity (P,), float64
        manifest.json               canonical JSON: format, step, generation, incarnation, model, dataset_sha256,
                                    sampler, files {name: {sha256, size}}, and sha256 of all that

The manifest must equal, byte by byte, the canonical form of what it says, so no flipped bit goes unnoticed, be it in
a blank. safetensors alone loads a flipped bit silently; the manifest's SHA-256 is what finds it. No pickle.

Pure: bytes in, bytes out.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError
from safetensors import numpy as safetensors_numpy

from training.arrays import FLOAT64, FloatArray
from training.config import ModelConfig
from training.errors import CheckpointError, GradstormError
from training.models import parameter_count
from training.sampler import SamplerState

FORMAT = 1
TENSORS = "state.safetensors"
MANIFEST = "manifest.json"

_NAME = re.compile(r"ckpt-(\d{8,})-g(\d+)-i(\d+)")


@dataclass(frozen=True, slots=True, eq=False)
class CheckpointState:
    """All that a run resumes from: after `step`, committed in `generation`.

    parameters and velocity float64 (P,). Raises CheckpointError when they do not fit the model.
    """

    step: int
    generation: int
    parameters: FloatArray
    velocity: FloatArray
    sampler: SamplerState
    model: ModelConfig
    dataset_sha256: str

    def __post_init__(self) -> None:
        if self.step < 0 or self.generation < 0:
            raise CheckpointError(f"a checkpoint of step {self.step}, generation {self.generation}: both start at 0")
        expected = (parameter_count(self.model),)
        for name, array in (("parameters", self.parameters), ("velocity", self.velocity)):
            if array.shape != expected or array.dtype != FLOAT64:
                raise CheckpointError(
                    f"a checkpoint's {name} are {array.dtype} {array.shape}, its model needs float64 {expected}"
                )


@dataclass(frozen=True, slots=True, order=True)
class CheckpointKey:
    """Where a checkpoint stands in the lineage; a higher key is newer.

    The generation leads: it rises for good at every membership change and rollback, so after a rollback a lower step
    of a higher generation is the newer one, and what a fenced role left behind is older whatever its step.
    """

    generation: int
    step: int
    incarnation: int


def checkpoint_name(step: int, generation: int, incarnation: int) -> str:
    """Folder name of a checkpoint."""
    return f"ckpt-{step:08d}-g{generation}-i{incarnation}"


def parse_name(name: str) -> CheckpointKey | None:
    """Inverse of `checkpoint_name`; None for any other name (temporary folders, the pointer, a user's file)."""
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    step, generation, incarnation = (int(group) for group in match.groups())
    key = CheckpointKey(generation, step, incarnation)
    return key if checkpoint_name(step, generation, incarnation) == name else None


def encode(state: CheckpointState, incarnation: int) -> dict[str, bytes]:
    """File name -> content, the manifest last. The same state gives the same bytes."""
    tensors = {"parameters": _contiguous(state.parameters), "velocity": _contiguous(state.velocity)}
    content = safetensors_numpy.save(tensors)
    body = {
        "format": FORMAT,
        "step": state.step,
        "generation": state.generation,
        "incarnation": incarnation,
        "model": asdict(state.model),
        "dataset_sha256": state.dataset_sha256,
        "sampler": state.sampler.to_json(),
        "files": {TENSORS: {"sha256": hashlib.sha256(content).hexdigest(), "size": len(content)}},
    }
    return {TENSORS: content, MANIFEST: sealed_json(body)}


def decode(files: Mapping[str, bytes]) -> CheckpointState:
    """Inverse of `encode`. Raises CheckpointError naming the damaged file and how it is damaged."""
    return decode_with_key(files)[1]


def decode_with_key(files: Mapping[str, bytes]) -> tuple[CheckpointKey, CheckpointState]:
    """As `decode`, with the key that the manifest claims."""
    if MANIFEST not in files:
        raise CheckpointError(f"{MANIFEST} is missing; use another checkpoint")
    body = unsealed_json(MANIFEST, files[MANIFEST])
    if body.get("format") != FORMAT:
        raise CheckpointError(
            f"{MANIFEST} has format {body.get('format')!r}, this version reads format {FORMAT};"
            " read it with the version that wrote it"
        )
    try:
        for name in sorted({TENSORS, *body["files"]}):
            _require_intact(name, files.get(name), body["files"][name])
        return _from_parts(body, safetensors_numpy.load(files[TENSORS]))
    except (KeyError, TypeError, ValueError, AttributeError, SafetensorError) as error:
        raise CheckpointError(
            f"{MANIFEST} or {TENSORS} does not hold what format {FORMAT} demands ({error!r})"
        ) from error


def sealed_json(body: Mapping[str, Any]) -> bytes:
    """Canonical JSON of `body` with its own digest added under `sha256`."""
    digest = hashlib.sha256(_canonical(body)).hexdigest()
    return _canonical({**body, "sha256": digest})


def unsealed_json(name: str, content: bytes) -> dict[str, Any]:
    """Inverse of `sealed_json`. Raises CheckpointError naming the file `name` if a single bit of it is wrong."""
    if not content:
        raise CheckpointError(f"{name} is empty; use another checkpoint")
    if not content.strip(b"\0"):
        raise CheckpointError(f"{name} holds only zero bytes; use another checkpoint")
    try:
        body = json.loads(content)
        digest = body.pop("sha256")
        intact = sealed_json(body) == content and digest is not None
    except (ValueError, AttributeError, KeyError, TypeError, RecursionError) as error:
        raise CheckpointError(
            f"{name} ({len(content)} bytes) is no readable manifest, cut short or overwritten; use another checkpoint"
        ) from error
    if not intact:
        raise CheckpointError(f"{name} does not match its own SHA-256; use another checkpoint")
    return dict(body)


def _canonical(body: Mapping[str, Any]) -> bytes:
    return json.dumps(body, sort_keys=True, ensure_ascii=True, allow_nan=False, separators=(",", ":")).encode() + b"\n"


def _contiguous(array: FloatArray) -> FloatArray:
    return np.ascontiguousarray(array, dtype=np.float64)


def _require_intact(name: str, content: bytes | None, promised: Mapping[str, Any]) -> None:
    if content is None:
        raise CheckpointError(f"{name} is missing; use another checkpoint")
    if len(content) != promised["size"]:
        raise CheckpointError(f"{name} has {len(content)} bytes instead of {promised['size']}; use another checkpoint")
    if hashlib.sha256(content).hexdigest() != promised["sha256"]:
        raise CheckpointError(f"{name} does not match the SHA-256 in {MANIFEST}; use another checkpoint")


def _from_parts(
    body: Mapping[str, Any], tensors: Mapping[str, npt.NDArray[Any]]
) -> tuple[CheckpointKey, CheckpointState]:
    try:
        state = CheckpointState(
            step=int(body["step"]),
            generation=int(body["generation"]),
            parameters=tensors["parameters"],
            velocity=tensors["velocity"],
            sampler=SamplerState.from_json(body["sampler"]),
            model=ModelConfig(**body["model"]),
            dataset_sha256=str(body["dataset_sha256"]),
        )
    except CheckpointError:
        raise
    except GradstormError as error:
        raise CheckpointError(f"{MANIFEST} cannot be used: {error}") from error
    return CheckpointKey(state.generation, state.step, int(body["incarnation"])), state
