"""The run's dataset for the judge, read with the safetensors library alone: nothing of production's reader."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError
from safetensors import numpy as safetensors_numpy

from services.messages import Array
from services.reference import Ids

DATASET_PATH = "dataset.safetensors"
_PARTS = ("train_features", "train_labels", "test_features", "test_labels")


class UnreadableDataset(Exception):
    """The bytes are no dataset; the message says why."""


@dataclass(frozen=True, slots=True, eq=False)
class JudgeData:
    """features float64 (n, d), labels int64 (n,) below `class_count`; `sha256` as the run's configuration names it."""

    train_features: Array
    train_labels: Ids
    test_features: Array
    test_labels: Ids
    class_count: int
    sha256: str


def read_dataset(content: bytes) -> JudgeData:
    """Raises UnreadableDataset."""
    try:
        tensors = safetensors_numpy.load(content)
        features, labels, test_features, test_labels = (tensors[name] for name in _PARTS)
        class_count = int(json.loads(tensors["header"].tobytes())["class_count"])
    except (SafetensorError, KeyError, ValueError, TypeError, RecursionError) as error:
        raise UnreadableDataset(f"{DATASET_PATH} cannot be read: {error!r}") from None
    if features.dtype != np.float64 or test_features.dtype != np.float64 or features.ndim != 2:
        raise UnreadableDataset(f"{DATASET_PATH}: features must be float64 (n, d)")
    if labels.dtype != np.int64 or test_labels.dtype != np.int64 or labels.shape != features.shape[:1]:
        raise UnreadableDataset(f"{DATASET_PATH}: labels must be int64, one for each row of features")
    digest = _digest(class_count, (features, labels, test_features, test_labels))
    return JudgeData(features, labels, test_features, test_labels, class_count, digest)


def _digest(class_count: int, parts: tuple[npt.NDArray[Any], ...]) -> str:
    """SHA-256 over the class count and, for each array, a line `name dtype shape` and its little-endian bytes."""
    digest = hashlib.sha256(f"gradstorm dataset 1\nclass_count {class_count}\n".encode())
    for name, part in zip(_PARTS, parts, strict=True):
        canonical = np.ascontiguousarray(part, dtype=part.dtype.newbyteorder("<"))
        digest.update(f"{name} {canonical.dtype.str} {'x'.join(map(str, canonical.shape))}\n".encode())
        digest.update(canonical.reshape(-1).data)
    return digest.hexdigest()
