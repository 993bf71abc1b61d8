"""The digest sees bits, not numbers."""

from __future__ import annotations

import hashlib
import struct

import numpy as np
import pytest

from training.digest import array_digest
from training.errors import ContractError


def test_the_canonical_bytes_are_little_endian_float64() -> None:
    values = [1.0, -2.5, 1e300]
    assert array_digest(np.array(values)) == hashlib.sha256(struct.pack("<3d", *values)).hexdigest()
    assert array_digest(np.zeros(0)) == hashlib.sha256(b"").hexdigest()


def test_memory_layout_and_byte_order_do_not_matter() -> None:
    matrix = np.random.default_rng(0).normal(size=(6, 5))
    expected = array_digest(matrix)
    assert array_digest(np.asfortranarray(matrix)) == expected
    assert array_digest(np.repeat(matrix, 2, axis=1)[:, ::2]) == expected
    assert array_digest(matrix.astype(">f8")) == expected
    assert array_digest(matrix.T) != expected


def test_kind_22_negative_zero_and_nan_payloads_differ() -> None:
    assert array_digest(np.array([0.0])) != array_digest(np.array([-0.0]))
    payloads = np.array([0x7FF8000000000000, 0x7FF8000000000001, 0xFFF8000000000000], dtype=np.uint64).view(np.float64)
    assert len({array_digest(payloads[[index]]) for index in range(3)}) == 3
    assert array_digest(payloads[[0]]) == array_digest(payloads[[0]].copy())


def test_kind_10_other_dtypes_are_refused() -> None:
    for dtype in (np.float32, np.int64, np.complex128):
        with pytest.raises(ContractError):
            array_digest(np.zeros(3, dtype=dtype))
