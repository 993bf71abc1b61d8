"""A user's .npz: arrays `features` (n, d) and `labels` (n,), optionally `test_features` and `test_labels`.

Never a pickle: an archive with object arrays is refused, not loaded.
"""

import io
import struct
import tokenize
import zipfile
import zlib
from typing import Any

import numpy as np
import numpy.typing as npt

from training.arrays import FloatArray, IntArray
from training.errors import DataError
from training.raw_data import RawData, require_finite, require_trainable, whole_labels

# What zipfile, zlib and numpy's header parser raise on damaged input; each was met or is documented.
_UNREADABLE = (
    ValueError, TypeError, SyntaxError, tokenize.TokenError, LookupError, OverflowError, MemoryError,
    OSError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error, struct.error,
)  # fmt: skip


def parse_npz(name: str, content: bytes) -> RawData:
    """Parse the content of the file called `name`. Raises DataError naming the array and the place in it."""
    arrays = _arrays(name, content)
    for needed in ("features", "labels"):
        if needed not in arrays:
            found = ", ".join(sorted(arrays)) or "nothing"
            raise DataError(
                f"{name} has no array {needed!r} (found: {found}); save it with np.savez(features=, labels=)"
            )
    if ("test_features" in arrays) != ("test_labels" in arrays):
        raise DataError(f"{name} has only one of test_features and test_labels; give both or neither")
    features, labels = _pair(name, arrays, "features", "labels")
    require_trainable(name, features, labels)
    if "test_features" not in arrays:
        return RawData(features, labels)
    test_features, test_labels = _pair(name, arrays, "test_features", "test_labels")
    if test_features.shape[1] != features.shape[1] or len(test_labels) == 0:
        raise DataError(
            f"{name}: test_features {test_features.shape} against features {features.shape};"
            " needs as many columns and at least one row"
        )
    if test_labels.max() > labels.max():
        raise DataError(
            f"{name}: test_labels has class {test_labels.max()} but labels ends at {labels.max()};"
            " a class that is never trained cannot be tested"
        )
    return RawData(features, labels, test_features, test_labels)


def _arrays(name: str, content: bytes) -> dict[str, npt.NDArray[Any]]:
    if not content:
        raise DataError(f"{name} is empty; save it with np.savez(features=, labels=)")
    if not zipfile.is_zipfile(io.BytesIO(content)):
        raise DataError(f"{name} is no .npz archive (or it is cut short); save it with np.savez(features=, labels=)")
    arrays = {}
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as archive:
            for key in archive.files:
                arrays[key] = archive[key]
    except _UNREADABLE as error:
        if "Object arrays" in str(error):
            raise DataError(
                f"{name}: array {key!r} holds Python objects, which would have to be unpickled and so could run code;"
                " save it as numbers (array.astype(float))"
            ) from error
        raise DataError(f"{name} cannot be read as an .npz archive ({error}); save it again with np.savez") from error
    return arrays


def _pair(name: str, arrays: dict[str, npt.NDArray[Any]], first: str, second: str) -> tuple[FloatArray, IntArray]:
    features = _real(name, first, arrays[first], 2)
    labels = _real(name, second, arrays[second], 1)
    if len(features) != len(labels):
        raise DataError(f"{name}: {first} has {len(features)} rows but {second} has {len(labels)}; make them equal")

    def feature_row(row: int) -> str:
        return f"array {first}, row {row + 1}"

    def label_row(row: int) -> str:
        return f"array {second}, row {row + 1}"

    require_finite(name, features, feature_row)
    return features, whole_labels(name, labels, label_row)


def _real(name: str, key: str, array: npt.NDArray[Any], dimensions: int) -> FloatArray:
    if not isinstance(array, np.ndarray):
        raise DataError(f"{name}: {key} is no array; save it with np.savez({key}=array)")
    if array.dtype.kind not in "biuf":
        raise DataError(f"{name}: array {key} holds {array.dtype}, not numbers; replace class names by 0, 1, 2, ...")
    if array.ndim != dimensions:
        raise DataError(f"{name}: array {key} has shape {array.shape}; it must have {dimensions} dimension(s)")
    return np.ascontiguousarray(array, dtype=np.float64)
