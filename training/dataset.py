"""A dataset in memory, its SHA-256, and the bytes that ship it to a member. Pure: no file is touched here.

Duties of the caller: ship `dataset_to_bytes` together with `Dataset.sha256`, and refuse a member that holds another
digest. Nothing here unpickles anything.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError
from safetensors import numpy as safetensors_numpy

from training.arrays import FloatArray, IntArray
from training.errors import ConfigurationError, DataError

_PARTS = ("train_features", "train_labels", "test_features", "test_labels")


@dataclass(frozen=True, eq=False)
class Dataset:
    """Features float64 (n, d), labels int64 (n,) in 0 .. class_count-1; read-only and C-contiguous.

    Raises DataError when the arrays do not fit together or a feature is not finite, ConfigurationError when there
    is nothing to train on.
    """

    name: str
    train_features: FloatArray
    train_labels: IntArray
    test_features: FloatArray
    test_labels: IntArray
    feature_count: int
    class_count: int

    def __post_init__(self) -> None:
        for part in _PARTS:
            dtype = np.float64 if part.endswith("features") else np.int64
            array: npt.NDArray[Any] = np.ascontiguousarray(getattr(self, part), dtype=dtype).view()
            array.setflags(write=False)
            object.__setattr__(self, part, array)
        if len(self.train_labels) == 0:
            raise ConfigurationError(f"dataset {self.name} has no samples to train on; choose another data set")
        for kind in ("train", "test"):
            self._check(kind, getattr(self, f"{kind}_features"), getattr(self, f"{kind}_labels"))

    def _check(self, kind: str, features: FloatArray, labels: IntArray) -> None:
        if features.shape != (len(labels), self.feature_count) or labels.ndim != 1 or len(labels) == 0:
            raise DataError(
                f"dataset {self.name}: {kind} features {features.shape} and labels {labels.shape} do not fit;"
                f" expected (n, {self.feature_count}) and (n,) with n of at least 1"
            )
        if labels.min() < 0 or labels.max() >= self.class_count:
            raise DataError(f"dataset {self.name}: a {kind} label is outside of 0 .. {self.class_count - 1}")
        if not np.isfinite(features).all():
            raise DataError(f"dataset {self.name}: a {kind} feature is NaN or infinite; drop that row")

    @cached_property
    def sha256(self) -> str:
        """SHA-256, hex, over the class count and, per array in the order of the fields, a line `name dtype shape` and
        its little-endian bytes. The dataset's name is not part of it: the same data under another path is the same."""
        digest = hashlib.sha256(f"gradstorm dataset 1\nclass_count {self.class_count}\n".encode())
        for part in _PARTS:
            array: npt.NDArray[Any] = getattr(self, part)
            canonical = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
            digest.update(f"{part} {canonical.dtype.str} {'x'.join(map(str, array.shape))}\n".encode())
            digest.update(canonical.reshape(-1).data)
        return digest.hexdigest()


def dataset_to_bytes(dataset: Dataset) -> bytes:
    """The whole dataset as one safetensors file; the same bytes for the same dataset."""
    header = json.dumps({"class_count": dataset.class_count, "name": dataset.name}).encode()
    tensors: dict[str, npt.NDArray[Any]] = {part: getattr(dataset, part) for part in _PARTS}
    # A tensor, not safetensors metadata: the order of metadata keys in the file is not fixed.
    return safetensors_numpy.save({"header": np.frombuffer(header, dtype=np.uint8), **tensors})


def dataset_from_bytes(content: bytes, expected_sha256: str) -> Dataset:
    """Inverse of `dataset_to_bytes`. Raises DataError unless the result has the expected digest."""
    try:
        tensors = safetensors_numpy.load(content)
        header = json.loads(tensors["header"].tobytes())
        dataset = _from_tensors(header, tensors)
    except (SafetensorError, KeyError, ValueError, TypeError, AttributeError, ConfigurationError) as error:
        raise DataError(f"the received dataset is unreadable ({error}); fetch it again") from error
    if dataset.sha256 != expected_sha256:
        raise DataError(
            f"the received dataset has SHA-256 {dataset.sha256}, the run's is {expected_sha256};"
            " fetch it again from the coordinator"
        )
    return dataset


def _from_tensors(header: Mapping[str, Any], tensors: Mapping[str, npt.NDArray[Any]]) -> Dataset:
    for part in _PARTS:
        array = tensors[part]
        expected = np.float64 if part.endswith("features") else np.int64
        if array.dtype != expected or array.ndim != (2 if part.endswith("features") else 1):
            raise ValueError(f"{part} is {array.dtype} of shape {array.shape}")
    train, test = ((tensors[f"{kind}_features"], tensors[f"{kind}_labels"]) for kind in ("train", "test"))
    return Dataset(str(header["name"]), *train, *test, int(train[0].shape[1]), int(header["class_count"]))
