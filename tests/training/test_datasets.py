"""Datasets are deterministic, read-only, and recognised by their SHA-256 after shipping."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors import numpy as safetensors_numpy

from training.datasets import Dataset, DatasetSpec, dataset_from_bytes, dataset_to_bytes, load_dataset
from training.errors import ConfigurationError, DataError

BLOBS = DatasetSpec("blobs", seed=3, sample_count=40, feature_count=8, class_count=4)


@pytest.mark.parametrize(("samples", "features", "classes"), [(1, 1, 2), (3, 8, 4), (10, 2, 3), (5000, 8, 4)])
def test_blobs_of_any_size(samples: int, features: int, classes: int) -> None:
    spec = DatasetSpec("blobs", 1, samples, features, classes)
    dataset = load_dataset(spec)
    assert dataset.train_features.shape == (samples, features)
    assert dataset.train_features.dtype == np.float64
    assert dataset.train_labels.dtype == np.int64
    assert set(dataset.test_labels.tolist()) == set(range(classes))
    assert (dataset.feature_count, dataset.class_count) == (features, classes)
    assert load_dataset(spec).sha256 == dataset.sha256
    assert load_dataset(DatasetSpec("blobs", 2, samples, features, classes)).sha256 != dataset.sha256


def test_the_bundled_digits() -> None:
    dataset = load_dataset(DatasetSpec("digits", seed=5))
    assert dataset.train_features.shape == (1438, 64)
    assert dataset.test_features.shape == (359, 64)
    assert dataset.class_count == 10
    assert (dataset.train_features.min(), dataset.train_features.max()) == (0.0, 1.0)
    assert set(dataset.train_labels.tolist()) == set(range(10))
    assert load_dataset(DatasetSpec("digits", seed=5)).sha256 == dataset.sha256
    assert load_dataset(DatasetSpec("digits", seed=6)).sha256 != dataset.sha256
    rows = {row.tobytes() for row in (*dataset.train_features, *dataset.test_features)}
    assert len(rows) == 1797  # nothing is in both parts, nothing is lost


def test_arrays_are_read_only_and_the_callers_are_left_alone() -> None:
    features, labels = np.zeros((2, 3)), np.array([0, 1])
    dataset = Dataset("mine", features, labels, features, labels, 3, 2)
    with pytest.raises(ValueError, match="read-only"):
        dataset.train_features[0, 0] = 1.0
    features[0, 0] = 0.0


def test_layout_and_width_of_the_input_do_not_change_the_digest() -> None:
    features, labels = np.arange(6.0).reshape(2, 3), np.array([0, 1])
    expected = Dataset("a", features, labels, features, labels, 3, 2).sha256
    fortran: Any = np.asfortranarray(features)
    assert Dataset("b", fortran, labels.astype(np.int32), features, labels, 3, 2).sha256 == expected
    assert Dataset("a", features, labels, features, labels, 3, 3).sha256 != expected
    assert Dataset("a", -features, labels, features, labels, 3, 2).sha256 != expected
    assert Dataset("a", features, labels, features[:1], labels[:1], 3, 2).sha256 != expected


@pytest.mark.parametrize("case", ["rows", "columns", "label", "negative", "nan", "no test"])
def test_arrays_that_do_not_fit_are_refused(case: str) -> None:
    features, labels = np.zeros((2, 3)), np.array([0, 1])
    test = (features, labels)
    bad = features.copy()
    bad[1, 2] = np.nan
    train: Any = {
        "rows": (features, labels[:1]),
        "columns": (features[:, :2], labels),
        "label": (features, np.array([0, 2])),
        "negative": (features, np.array([0, -1])),
        "nan": (bad, labels),
        "no test": (features, labels),
    }[case]
    if case == "no test":
        test = (features[:0], labels[:0])
    with pytest.raises(DataError, match="dataset mine"):
        Dataset("mine", train[0], train[1], test[0], test[1], 3, 2)


def test_kind_03_no_samples_is_a_configuration_error() -> None:
    with pytest.raises(ConfigurationError, match=r"dataset\.sample_count is 0"):
        DatasetSpec("blobs", sample_count=0)
    none, labels = np.zeros((0, 3)), np.zeros(0, dtype=np.int64)
    with pytest.raises(ConfigurationError, match="no samples"):
        Dataset("mine", none, labels, none, labels, 3, 2)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"kind": "mnist"}, "dataset.kind"),
        ({"kind": "blobs", "seed": -1}, "dataset.seed"),
        ({"kind": "blobs", "class_count": 1}, "dataset.class_count"),
        ({"kind": "blobs", "feature_count": 2.5}, "dataset.feature_count"),
        ({"kind": "file"}, "dataset.path"),
        ({"kind": "blobs", "path": "a.csv"}, "dataset.path"),
        ({"kind": "file", "path": "a.parquet"}, "must end in .csv or .npz"),
    ],
)
def test_specs_that_make_no_sense_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        DatasetSpec(**arguments)


@pytest.mark.parametrize("spec", [BLOBS, DatasetSpec("digits")], ids=["blobs", "digits"])
def test_shipping_round_trip(spec: DatasetSpec) -> None:
    dataset = load_dataset(spec)
    content = dataset_to_bytes(dataset)
    arrived = dataset_from_bytes(content, dataset.sha256)
    assert arrived.sha256 == dataset.sha256
    assert (arrived.name, arrived.feature_count, arrived.class_count) == (
        dataset.name,
        dataset.feature_count,
        dataset.class_count,
    )
    assert arrived.test_features.tobytes() == dataset.test_features.tobytes()
    assert dataset_to_bytes(arrived) == content


def test_another_dataset_is_refused_on_arrival() -> None:
    other = load_dataset(DatasetSpec("blobs", seed=4, sample_count=40))
    with pytest.raises(DataError, match="SHA-256"):
        dataset_from_bytes(dataset_to_bytes(other), load_dataset(BLOBS).sha256)


def test_damaged_bytes_never_arrive_as_something_else() -> None:
    dataset = load_dataset(BLOBS)
    content = dataset_to_bytes(dataset)
    for length in {*range(0, len(content), 128), len(content) - 1}:
        with pytest.raises(DataError, match="received dataset"):
            dataset_from_bytes(content[:length], dataset.sha256)
    choose = random.Random(1)
    for _ in range(300):
        changed = bytearray(content)
        changed[choose.randrange(len(content))] ^= 1 << choose.randrange(8)
        try:
            arrived = dataset_from_bytes(bytes(changed), dataset.sha256)
        except DataError:
            continue
        assert arrived.train_features.tobytes() == dataset.train_features.tobytes()  # the name's bits carry no data
        assert arrived.test_labels.tobytes() == dataset.test_labels.tobytes()


@pytest.mark.parametrize("header", [b"[]", b"{}", b"x", b'{"class_count": "many", "name": "a"}'])
def test_a_strange_header_is_refused(header: bytes) -> None:
    tensors = dict(safetensors_numpy.load(dataset_to_bytes(load_dataset(BLOBS))))
    tensors["header"] = np.frombuffer(header, dtype=np.uint8)
    with pytest.raises(DataError, match="received dataset"):
        dataset_from_bytes(safetensors_numpy.save(tensors), load_dataset(BLOBS).sha256)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"cannot read the dataset .*none\.csv: No such file"):
        load_dataset(DatasetSpec("file", path=str(tmp_path / "none.csv")))
