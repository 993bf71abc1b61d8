"""Datasets: seeded blobs, the real `digits`, and a user's own file; and the bytes that ship one to a member.

Duties of the caller: ship `dataset_to_bytes` together with `Dataset.sha256`, and refuse a member that holds another
digest. Nothing here unpickles anything.
"""

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError
from safetensors import numpy as safetensors_numpy

from training.arrays import FloatArray, IntArray
from training.csv_file import parse_csv
from training.errors import ConfigurationError, DataError
from training.npz_file import parse_npz
from training.raw_data import RawData
from training.real_disk import RealDisk

DatasetKind = Literal["blobs", "digits", "file"]

_HELD_OUT = 0.2  # share of the samples that is tested on, where the data does not say itself
_CENTRE_SCALE = 1.5  # in units of the noise: the blobs overlap, so the loss has somewhere to go
_PARTS = ("train_features", "train_labels", "test_features", "test_labels")
_PARSERS = {".csv": parse_csv, ".npz": parse_npz}


@dataclass(frozen=True, slots=True)
class DatasetSpec:
    """Which data a run trains on. Raises ConfigurationError.

    `sample_count` (for training), `feature_count` and `class_count` shape the blobs and mean nothing elsewhere;
    `path` is the file's. `seed` makes the blobs, and draws the held-out part where the data has none.
    """

    kind: DatasetKind
    seed: int = 0
    sample_count: int = 1024
    feature_count: int = 8
    class_count: int = 4
    path: str = ""

    def __post_init__(self) -> None:
        if self.kind not in get_args(DatasetKind):
            raise ConfigurationError(
                f"dataset.kind is {self.kind!r}; choose one of: {', '.join(get_args(DatasetKind))}"
            )
        minima = {"seed": 0, "sample_count": 1, "feature_count": 1, "class_count": 2}
        for name, minimum in minima.items():
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < minimum:
                raise ConfigurationError(
                    f"dataset.{name} is {value!r}; it must be a whole number of at least {minimum}"
                )
        if (self.kind == "file") != bool(self.path):
            raise ConfigurationError(
                f"dataset.path is {self.path!r} with kind {self.kind}; it goes with kind file only"
            )
        if self.path and _suffix(self.path) not in _PARSERS:
            raise ConfigurationError(f"dataset.path is {self.path!r}; it must end in .csv or .npz")


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


def load_dataset(spec: DatasetSpec) -> Dataset:
    """Make or read the dataset. Raises DataError naming file and place, ConfigurationError as `DatasetSpec` does.

    blobs: sample_count training samples, plus a fourth as many (at least one per class) to test on. digits: 1797
    images of 8x8 scaled to [0, 1]. digits, and a file without a test part: 20 % drawn by the seed are held out.
    A file's numbers are taken as they are.
    """
    if spec.kind == "blobs":
        return _blobs(spec)
    if spec.kind == "digits":
        return _split("digits", _digits(), 10, spec.seed)
    try:
        content = RealDisk().read(spec.path)
    except OSError as error:
        raise DataError(f"cannot read the dataset {spec.path}: {error.strerror or error}; check the path") from error
    raw = _PARSERS[_suffix(spec.path)](spec.path, content)
    return _split(os.path.basename(spec.path), raw, int(raw.labels.max()) + 1, spec.seed)


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


def _suffix(path: str) -> str:
    return os.path.splitext(path)[1].lower()


def _blobs(spec: DatasetSpec) -> Dataset:
    """Gaussian blobs of unit noise; the class of sample i is i modulo the class count."""
    generator = np.random.default_rng(spec.seed)
    centres = _CENTRE_SCALE * generator.standard_normal((spec.class_count, spec.feature_count))

    def draw(count: int) -> tuple[FloatArray, IntArray]:
        labels = np.arange(count, dtype=np.int64) % spec.class_count
        return centres[labels] + generator.standard_normal((count, spec.feature_count)), labels

    train = draw(spec.sample_count)
    test = draw(max(spec.class_count, spec.sample_count // 4))
    return Dataset("blobs", *train, *test, spec.feature_count, spec.class_count)


def _digits() -> RawData:
    from sklearn.datasets import load_digits  # noqa: PLC0415 - a second to import, and only digits needs it

    bunch = load_digits()
    features = np.asarray(bunch.data, dtype=np.float64) / 16.0  # pixels are 0 .. 16
    return RawData(features, np.asarray(bunch.target, dtype=np.int64))


def _split(name: str, raw: RawData, class_count: int, seed: int) -> Dataset:
    feature_count = int(raw.features.shape[1])
    if raw.test_features is not None and raw.test_labels is not None:
        parts = (raw.features, raw.labels, raw.test_features, raw.test_labels)
        return Dataset(name, *parts, feature_count, class_count)
    order = np.random.default_rng(seed).permutation(len(raw.labels))
    test = np.sort(order[: max(1, round(_HELD_OUT * len(order)))])
    train = np.sort(order[len(test) :])
    parts = (raw.features[train], raw.labels[train], raw.features[test], raw.labels[test])
    return Dataset(name, *parts, feature_count, class_count)
