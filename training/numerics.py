"""A fingerprint of this machine's floating-point arithmetic: where two agree, equality is demanded bitwise.

Bits depend on the BLAS kernel, its thread count and numpy's SIMD paths. The inputs here are made of integers and
exact divisions alone, so that only what is measured can differ between machines.

Duty of the caller: set BLAS threads before numpy loads, compute this once per process, and compare it for equality
only; the text has no meaning of its own. Takes about two milliseconds.
"""

import hashlib
from typing import Any

import numpy as np
import numpy.typing as npt

from training.arrays import FloatArray
from training.config import ModelConfig
from training.models import loss_and_gradient, parameter_count

# (rows, inner, columns): tiny, tall, square, beyond one cache block, and odd sizes that leave remainders.
_SHAPES = ((1, 8, 4), (7, 8, 4), (32, 8, 4), (8, 32, 4), (32, 64, 10), (64, 32, 32), (33, 65, 17), (128, 300, 128))


def fingerprint() -> str:
    """SHA-256, hex, over the results of a fixed set of matmul, exp, tanh, log, sqrt and sum."""
    digest = hashlib.sha256(b"gradstorm numerics 1\n")
    for rows, inner, columns in _SHAPES:
        left, right = _plane(rows, inner, 1), _plane(inner, columns, 2)
        _add(digest, left @ right)
        _add(digest, left.T @ (left @ right))  # the transposed kernel, as in a backward pass
    values = _line(1031, 3) * 40.0
    for result in (np.exp(values), np.tanh(values / 8.0), np.sqrt(np.abs(values)), np.log(np.abs(values) + 1.0)):
        _add(digest, result)
    for rows, columns in ((1, 1031), (32, 4), (129, 65)):
        block = np.exp(_plane(rows, columns, 4))
        _add(digest, block.sum(axis=0))
        _add(digest, block.sum(axis=1))
        _add(digest, np.asarray(block.sum()))
    return digest.hexdigest()


def model_fingerprint(config: ModelConfig, batch_rows: int) -> str:
    """As `fingerprint`, and the run's own model on top: its loss and gradient over `batch_rows` >= 1 rows.

    Kernels depend on shapes, so give the rows that a member usually gets. Raises ContractError for no rows.
    """
    features = _plane(batch_rows, config.feature_count, 5)
    labels = np.arange(batch_rows, dtype=np.int64) % config.class_count
    loss, gradient = loss_and_gradient(config, _line(parameter_count(config), 6), features, labels)
    digest = hashlib.sha256(fingerprint().encode())
    _add(digest, np.asarray(loss))
    _add(digest, gradient)
    return digest.hexdigest()


def _line(count: int, salt: int) -> FloatArray:
    """Numbers in [-0.5, 0.5) with all 53 bits in use, float64 (count,): integer hashing, one exact division.

    The mixing is splitmix64's finaliser (Steele, Lea, Flood 2014).
    """
    mixed = (np.arange(1, count + 1, dtype=np.uint64) + np.uint64(salt << 32)) * np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed ^= mixed >> np.uint64(31)
    line: FloatArray = (mixed >> np.uint64(11)).astype(np.float64) / 2.0**53 - 0.5
    return line


def _plane(rows: int, columns: int, salt: int) -> FloatArray:
    return _line(rows * columns, salt).reshape(rows, columns)


def _add(digest: Any, result: npt.NDArray[np.float64]) -> None:
    digest.update(np.ascontiguousarray(result, dtype="<f8").reshape(-1).data)
