"""A user's own file: what is accepted, and what each refusal says."""

from __future__ import annotations

import io
import random
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from training.csv_file import parse_csv
from training.datasets import DatasetSpec, load_dataset
from training.errors import DataError
from training.npz_file import parse_npz

GOOD = "1,2,0\n3,4,1\n5,6.5,0\n"


def csv_of(text: str) -> Any:
    return parse_csv("d.csv", text.encode())


def npz_bytes(**arrays: Any) -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


def npy_bytes(array: Any) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


@pytest.mark.parametrize(
    "text",
    [
        GOOD,
        "a,b,c\n" + GOOD,
        "\ufeffa,b,c\n" + GOOD,
        GOOD.replace("\n", "\r\n"),
        GOOD.replace(",", " , "),
        "\n" + GOOD + "\n\n",
        "label,a,b\n0,1,2\n1,3,4\n0,5,6.5\n",
        '"a","b","c"\n"1","2","0"\n3,4,1.0\n5,6.5,0',
    ],
    ids=["plain", "header", "bom", "crlf", "blanks", "blank lines", "label first", "quoted"],
)
def test_csv_forms_that_mean_the_same(text: str) -> None:
    raw = csv_of(text)
    assert raw.features.tolist() == [[1, 2], [3, 4], [5, 6.5]]
    assert raw.labels.tolist() == [0, 1, 0]
    assert raw.labels.dtype == np.int64
    assert raw.features.flags.c_contiguous


BAD_CSV = {
    "empty": ("", r"d\.csv is empty"),
    "blank": (" \n , ,\n", r"d\.csv is empty"),
    "header only": ("a,b,c\n", "no row of data"),
    "one row": ("1,2,0\n", "1 row of data"),
    "ragged": ("1,2,0\n3,4\n", r"line 2: 2 columns where the first line has 3"),
    "text": ("1,2,0\n3,four,1\n", r"line 2, column 2: found the text 'four' in a number column"),
    "text under a header": ("x,y,c\n1,2,0\n3,?,1\n", r"line 3, column 2 \(y\): found the text '\?'"),
    "missing value": ("1,,0\n3,4,1\n", r"line 1, column 2: found the text ''"),
    "underscore": ("1_0,2,0\n3,4,1\n", r"line 1, column 1: found the text '1_0'"),
    "nan": ("1,2,0\nnan,4,1\n", r"line 2, column 1: 'nan' is not a finite number"),
    "infinite": ("1,2,0\n3,-inf,1\n", r"line 2, column 2: '-inf' is not a finite"),
    "overflow": ("1,2,0\n3,1e999,1\n", r"line 2, column 2: '1e999' is not a finite"),
    "class names": ("1,2,cat\n3,4,dog\n", r"line 1, column 3: the label is the text 'cat'; replace class names"),
    "fraction": ("1,2,0\n3,4,0.5\n", r"line 2: label 0\.5 is no class number"),
    "negative": ("1,2,0\n3,4,-1\n", r"line 2: label -1 is no class number"),
    "nan label": ("1,2,0\n3,4,nan\n", r"line 2: label nan is no class number"),
    "one class": ("1,2,1\n3,4,1\n", r"one class only \(1\)"),
    "ids": ("1,2,0\n3,4,123456\n", "is that an id"),
    "one column": ("1\n2\n", "is the separator a comma"),
    "semicolons": ("1;2;0\n3;4;1\n", "is the separator a comma|no row of data|one column"),
    "open quote": ('1,2,0\n3,"4,1\n', r"line 2"),
    "zero bytes": ("1,2,0\n3,\0,1\n", "zero bytes"),
}


@pytest.mark.parametrize("case", BAD_CSV)
def test_csv_refusals_name_the_place(case: str) -> None:
    text, message = BAD_CSV[case]
    with pytest.raises(DataError, match=message) as caught:
        csv_of(text)
    assert str(caught.value).startswith("d.csv")


def test_csv_that_is_no_text_is_refused() -> None:
    with pytest.raises(DataError, match=r"d\.csv, line 2: not UTF-8"):
        parse_csv("d.csv", b"1,2,0\n3,\xff,1\n")


@given(st.binary(max_size=60) | st.text(alphabet='01,.-"\n\r ela;', max_size=60).map(str.encode))
def test_csv_never_fails_in_another_way(content: bytes) -> None:
    try:
        raw = parse_csv("d.csv", content)
    except DataError:
        return
    assert np.isfinite(raw.features).all()
    assert len(raw.features) == len(raw.labels) >= 2


FEATURES, LABELS = np.arange(8.0).reshape(4, 2), np.array([0, 1, 0, 2])


def test_npz_with_and_without_a_test_part() -> None:
    raw = parse_npz("d.npz", npz_bytes(features=FEATURES.astype(np.float32), labels=LABELS.astype(np.uint8)))
    assert raw.features.dtype == np.float64
    assert raw.features.tolist() == FEATURES.tolist()
    assert raw.labels.tolist() == LABELS.tolist()
    assert raw.test_features is None
    whole = npz_bytes(features=FEATURES, labels=LABELS, test_features=FEATURES[:1], test_labels=LABELS[:1])
    tested = parse_npz("d.npz", whole)
    assert tested.test_features is not None
    assert tested.test_features.tolist() == [[0, 1]]


def poisoned(value: float) -> Any:
    features = FEATURES.copy()
    features[2, 1] = value
    return features


BAD_NPZ: dict[str, tuple[dict[str, Any], str]] = {
    "no labels": ({"features": FEATURES}, r"no array 'labels' \(found: features\)"),
    "no features": ({"labels": LABELS}, "no array 'features'"),
    "test features only": ({"features": FEATURES, "labels": LABELS, "test_features": FEATURES}, "only one of test"),
    "rows": ({"features": FEATURES, "labels": LABELS[:3]}, "features has 4 rows but labels has 3"),
    "flat": ({"features": FEATURES.reshape(-1), "labels": LABELS}, r"features has shape \(8,\)"),
    "deep": ({"features": FEATURES, "labels": LABELS.reshape(2, 2)}, r"labels has shape \(2, 2\)"),
    "nan": ({"features": poisoned(np.nan), "labels": LABELS}, "array features, row 3, column 2: nan"),
    "infinite": ({"features": poisoned(-np.inf), "labels": LABELS}, "array features, row 3, column 2: -inf"),
    "text labels": ({"features": FEATURES, "labels": np.array(list("abca"))}, "labels holds <U1, not numbers"),
    "complex": ({"features": FEATURES * 1j, "labels": LABELS}, "features holds complex128"),
    "fraction": ({"features": FEATURES, "labels": LABELS + 0.5}, "array labels, row 1: label 0.5"),
    "one class": ({"features": FEATURES, "labels": LABELS * 0}, "one class only"),
    "one row": ({"features": FEATURES[:1], "labels": LABELS[:1]}, "1 row of data"),
    "no rows": ({"features": FEATURES[:0], "labels": LABELS[:0]}, "0 rows of data"),
    "no columns": ({"features": FEATURES[:, :0], "labels": LABELS}, "no feature column"),
    "test columns": (
        {"features": FEATURES, "labels": LABELS, "test_features": FEATURES[:, :1], "test_labels": LABELS},
        r"test_features \(4, 1\)",
    ),
    "test empty": (
        {"features": FEATURES, "labels": LABELS, "test_features": FEATURES[:0], "test_labels": LABELS[:0]},
        "at least one row",
    ),
    "test class": (
        {"features": FEATURES, "labels": LABELS, "test_features": FEATURES, "test_labels": LABELS + 1},
        "test_labels has class 3",
    ),
}


@pytest.mark.parametrize("case", BAD_NPZ)
def test_npz_refusals_name_the_array(case: str) -> None:
    arrays, message = BAD_NPZ[case]
    with pytest.raises(DataError, match=message) as caught:
        parse_npz("d.npz", npz_bytes(**arrays))
    assert str(caught.value).startswith("d.npz")


def test_kind_21_object_arrays_are_refused_and_never_unpickled(tmp_path: Path) -> None:
    witness = tmp_path / "ran"

    class Hostile:
        def __reduce__(self) -> tuple[Any, ...]:
            return (Path.touch, (witness,))

    content = npz_bytes(features=FEATURES, labels=np.array([Hostile(), 1, 2, 3], dtype=object))
    with pytest.raises(DataError, match=r"array 'labels' holds Python objects.*run code"):
        parse_npz("d.npz", content)
    with pytest.raises(DataError, match=r"d\.npz is no \.npz archive"):
        parse_npz("d.npz", content[200:260])
    assert not witness.exists()


def test_npz_that_is_damaged_is_refused() -> None:
    content = npz_bytes(features=FEATURES, labels=LABELS)
    for length in range(0, len(content), 7):
        with pytest.raises(DataError, match=r"d\.npz"):
            parse_npz("d.npz", content[:length])


def test_an_npz_whose_array_headers_are_nonsense_is_refused_in_our_words() -> None:
    choose = random.Random(3)
    labels, features = npy_bytes(LABELS), npy_bytes(FEATURES)
    refused = 0
    for _ in range(1500):
        changed = bytearray(features)
        for _ in range(choose.choice((1, 2, 3))):
            changed[choose.randrange(90)] = choose.choice(b"0123456789(),'<>fiOu8 \xff")
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w") as archive:
            archive.writestr("features.npy", bytes(changed))
            archive.writestr("labels.npy", labels)
        try:
            parse_npz("d.npz", buffer.getvalue())  # a change may hit a blank, which means nothing
        except DataError:
            refused += 1
    assert refused > 1000


def test_a_file_is_loaded_and_split_by_the_seed(tmp_path: Path) -> None:
    path = tmp_path / "mine.csv"
    path.write_text("".join(f"{row},{row * row},{row % 3}\n" for row in range(50)))
    dataset = load_dataset(DatasetSpec("file", seed=1, path=str(path)))
    assert (dataset.name, dataset.class_count, dataset.feature_count) == ("mine.csv", 3, 2)
    assert (len(dataset.train_labels), len(dataset.test_labels)) == (40, 10)
    first = sorted([*dataset.train_features[:, 0].tolist(), *dataset.test_features[:, 0].tolist()])
    assert first == list(range(50))
    assert load_dataset(DatasetSpec("file", seed=1, path=str(path))).sha256 == dataset.sha256
    archive = tmp_path / "mine.NPZ"
    archive.write_bytes(npz_bytes(features=FEATURES, labels=LABELS, test_features=FEATURES[:1], test_labels=LABELS[:1]))
    given_split = load_dataset(DatasetSpec("file", path=str(archive)))
    assert (len(given_split.train_labels), len(given_split.test_labels)) == (4, 1)


def test_the_smallest_file_leaves_one_row_for_each_part(tmp_path: Path) -> None:
    path = tmp_path / "two.csv"
    path.write_text("1,0\n2,1\n")
    dataset = load_dataset(DatasetSpec("file", path=str(path)))
    assert (len(dataset.train_labels), len(dataset.test_labels)) == (1, 1)
