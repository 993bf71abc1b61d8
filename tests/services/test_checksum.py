"""The CRC is the published one, CRC-32 as zlib and PNG have it, whoever computes it."""

from __future__ import annotations

import zlib

from hypothesis import given
from hypothesis import strategies as st

from services.checksum import crc32


def test_the_check_value_of_crc_32() -> None:
    assert crc32(b"123456789") == 0xCBF43926


@given(st.binary(max_size=300), st.integers(0, 8))
def test_it_is_what_zlib_computes(data: bytes, start: int) -> None:
    assert crc32(data) == zlib.crc32(data)
    assert crc32(memoryview(data)[start:]) == zlib.crc32(data[start:])
