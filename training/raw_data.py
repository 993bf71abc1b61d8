"""Arrays as a user's file holds them, and the checks that turn them into features and labels.

Every refusal names the file, the place in it, what was found there, and what to do.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from training.arrays import FloatArray, IntArray
from training.errors import DataError

Place = Callable[[int], str]
"""Names the row of an index in the file's own terms ("line 7", "features row 6")."""


@dataclass(frozen=True, slots=True, eq=False)
class RawData:
    """features float64 (n, d), labels int64 (n,), and the same for the test part, or None for both."""

    features: FloatArray
    labels: IntArray
    test_features: FloatArray | None = None
    test_labels: IntArray | None = None


def require_finite(where: str, features: FloatArray, row_name: Place) -> None:
    """Raise DataError naming the first NaN or infinity by row and column (columns counted from 1)."""
    bad = np.argwhere(~np.isfinite(features))
    if len(bad):
        row, column = (int(index) for index in bad[0])
        raise DataError(
            f"{where}, {row_name(row)}, column {column + 1}: {features[row, column]} is not a finite number"
            f" ({len(bad)} such values in all); drop these rows or fill the values in"
        )


def whole_labels(where: str, labels: npt.NDArray[np.float64], row_name: Place) -> IntArray:
    """Turn numbers into class numbers, int64. Raises DataError for one that is no whole number from 0 on."""
    bad = np.flatnonzero(~((labels >= 0) & (labels == np.floor(labels)) & (labels < 2.0**31)))
    if len(bad):
        row = int(bad[0])
        raise DataError(
            f"{where}, {row_name(row)}: label {labels[row]:g} is no class number; number the classes 0, 1, 2, ..."
        )
    return np.ascontiguousarray(labels, dtype=np.int64)


def require_trainable(where: str, features: FloatArray, labels: IntArray) -> None:
    """Raise DataError for fewer than 2 rows, no feature, a single class, or absurdly many classes."""
    rows = len(labels)
    if rows < 2:
        raise DataError(f"{where} has {rows} row{'' if rows == 1 else 's'} of data; training needs at least 2")
    if features.shape[1] < 1:
        raise DataError(f"{where} has no feature column besides the label; add at least one")
    if labels.min() == labels.max():
        raise DataError(f"{where} has one class only ({labels[0]}) in {rows} rows; training needs at least 2 classes")
    if labels.max() >= max(rows, 1000):
        raise DataError(
            f"{where} has {rows} rows but a label of {labels.max()}; is that an id? Number the classes 0, 1, 2, ..."
        )
