"""Where datasets come from: seeded blobs, the real `digits`, and a user's own .csv or .npz.

Duty of the caller: load once, where the files are, and ship the result (`training.dataset`). A role imports that
module instead of this one, which reads files. Nothing here unpickles anything.
"""

import os
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from training.arrays import FloatArray, IntArray
from training.csv_file import parse_csv
from training.dataset import Dataset, dataset_from_bytes, dataset_to_bytes
from training.errors import ConfigurationError, DataError
from training.npz_file import parse_npz
from training.raw_data import RawData
from training.real_disk import RealDisk

__all__ = ["Dataset", "DatasetKind", "DatasetSpec", "dataset_from_bytes", "dataset_to_bytes", "load_dataset"]

DatasetKind = Literal["blobs", "digits", "file"]

_HELD_OUT = 0.2  # share of the samples that is tested on, where the data does not say itself
_CENTRE_SCALE = 1.5  # in units of the noise: the blobs overlap, so the loss has somewhere to go
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
