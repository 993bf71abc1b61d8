"""The codec against its second writing, by hand-computed payloads, and at every edge."""

from __future__ import annotations

import math
import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from tests.training.boundary_codec import reference
from training.boundary_codec import BITS, decode, encode, encode_dense, payload_bytes, stats
from training.errors import ConfigurationError, ContractError, NonFiniteError

FLOATS = st.floats(allow_nan=False, allow_infinity=False)
FEW = st.sampled_from([0.0, -0.0, 1.0, -1.0, 0.5, 2.0, 5e-324, -1e30])
KEEP = st.one_of(st.sampled_from([1, 10, 25, 50, 100]), st.integers(1, 100))
VALUES = hnp.arrays(np.float64, st.integers(0, 300), elements=st.one_of(FLOATS, FEW), fill=st.nothing())


def array(*values: float) -> Any:
    return np.array(values, dtype=np.float64)


@given(VALUES, KEEP, st.sampled_from(BITS))
@example(np.zeros(0), 50, 6)
@example(np.zeros(9), 50, 6)
def test_equals_its_second_writing(values: Any, keep_percent: int, bits: int) -> None:
    payload = encode(values, keep_percent, bits)
    assert payload == reference.encode(values.tolist(), keep_percent, bits)
    assert len(payload) == payload_bytes(len(values), keep_percent, bits)
    expected = np.array(reference.received(values.tolist(), keep_percent, bits), dtype=np.float64)
    np.testing.assert_array_equal(decode(payload, len(values)), expected)


@given(VALUES, KEEP, st.sampled_from(BITS))
@example(array(1e30, 1.0, -1.0, 3.0), 100, 4)
@example(array(5e-324, -1e-323, 1.5e-323), 100, 4)
@example(array(1.7e308, -1.7e308, 1e308), 100, 12)
@example(array(7.0, 7.0, 7.0), 50, 6)
@example(array(-0.0), 1, 4)
def test_what_is_kept_comes_back_within_half_a_step(values: Any, keep_percent: int, bits: int) -> None:
    received = decode(encode(values, keep_percent, bits), len(values))
    kept = reference.kept_positions(values.tolist(), keep_percent)
    dropped = np.ones(len(values), dtype=bool)
    dropped[kept] = False
    assert not received[dropped].any()
    if kept:
        peak = np.abs(values).max()
        half_step = peak / (2 ** (bits - 1) - 1) / 2
        assert (np.abs(values[kept] - received[kept]) <= half_step * (1 + 1e-14) + 5e-324).all()
        largest = kept[int(np.abs(values[kept]).argmax())]
        assert received[largest] == values[largest]


@given(VALUES, st.sampled_from(BITS))
def test_encoding_again_changes_nothing(values: Any, bits: int) -> None:
    once = decode(encode(values, 100, bits), len(values))
    if len(values) == 0 or np.abs(values).max() > 1e-300:  # below that, levels fall together
        assert encode(once, 100, bits) == encode(once + 0.0, 100, bits)
        np.testing.assert_array_equal(decode(encode(once, 100, bits), len(values)), once)


@given(hnp.arrays(np.float64, st.integers(0, 40), elements=FLOATS))
def test_dense_keeps_every_bit(values: Any) -> None:
    payload = encode_dense(values)
    assert len(payload) == 8 + 8 * len(values)
    assert decode(payload, len(values)).tobytes() == values.tobytes()


def test_kind_14_the_sparsifier() -> None:
    assert decode(encode(array(-9, 1, 2, 0), 25, 8), 4).tolist() == [-9, 0, 0, 0]
    assert decode(encode(array(1, -1, 1, 1), 50, 8), 4).tolist() == [1, -1, 0, 0]
    assert decode(encode(array(0, 0, 0, 0), 50, 8), 4).tolist() == [0, 0, 0, 0]
    fifty = np.arange(1.0, 51.0)
    assert np.flatnonzero(decode(encode(fifty, 1, 8), 50)).tolist() == [49]
    assert np.count_nonzero(decode(encode(fifty, 3, 8), 50)) == 2
    assert np.count_nonzero(decode(encode(fifty, 100, 12), 50)) == 50


@pytest.mark.parametrize("keep_percent", [0, -1, 101, 50.0, True, "50", None])
def test_kind_14_k_out_of_range_is_refused(keep_percent: Any) -> None:
    with pytest.raises(ConfigurationError, match="keeps"):
        encode(np.ones(4), keep_percent, 8)
    with pytest.raises(ConfigurationError, match="keeps"):
        payload_bytes(4, keep_percent, 8)


@pytest.mark.parametrize("bits", [0, 1, 2, 5, 16, 64, 6.0, True, None])
def test_bits_out_of_range_are_refused(bits: Any) -> None:
    with pytest.raises(ConfigurationError, match="bits"):
        encode(np.ones(4), 50, bits)


def test_a_payload_by_hand() -> None:
    """8 values, the 4 largest kept, 4 bits: Q = 7, peak 7, so q is the value; a bitmap of 1 byte beats 4 indices."""
    payload = encode(array(0.1, -7, 3, 0, 0, 2, 0.2, -1), 50, 4)
    head = struct.pack("<BBBBId", 1, 2, 50, 4, 8, 7.0)
    bitmap = bytes([0b10100110])  # positions 1, 2, 5, 7
    values = bytes([0x0 | 0xA << 4, 0x9 | 0x6 << 4])  # -7+7, 3+7 | 2+7, -1+7, the first in the low half
    assert payload == head + bitmap + values


def test_six_and_twelve_bits_by_hand() -> None:
    six = encode(array(31, -31, 0, 1, 2), 100, 6)  # u = 62, 0, 31, 32, 33
    stream = 62 | 0 << 6 | 31 << 12 | 32 << 18 | 33 << 24
    assert six[16:] == stream.to_bytes(4, "little")
    twelve = encode(array(2047, -2046, 0), 100, 12)  # u = 4094, 1, 2047
    assert twelve[16:] == (4094 | 1 << 12 | 2047 << 24).to_bytes(5, "little")


def test_indices_where_they_are_smaller() -> None:
    values = np.zeros(300)
    values[[7, 299]] = (3.0, -4.0)
    payload = encode(values, 1, 8)  # K = 3: the lowest index of the zeros is kept as well
    assert payload[1] == 3
    assert payload[16:22] == struct.pack("<HHH", 0, 7, 299)
    assert decode(payload, 300).tolist() == [0.0] * 7 + [95 / 127 * 4.0] + [0.0] * 291 + [-4.0]


@pytest.mark.parametrize(("count", "width"), [(256, 1), (257, 2), (65536, 2), (65537, 4)])
def test_width_of_an_index(count: int, width: int) -> None:
    kept = -(-count // 100)
    assert payload_bytes(count, 1, 8) == 16 + min(kept * width, -(-count // 8)) + kept
    values = np.random.default_rng(count).normal(size=count)
    assert encode(values, 1, 8) == reference.encode(values.tolist(), 1, 8)
    assert np.count_nonzero(decode(encode(values, 1, 8), count)) == kept


def test_bytes_of_the_default_boundary() -> None:
    values = np.random.default_rng(0).normal(size=(8, 64, 32))
    for keep_percent, kept, position_bytes in ((10, 1639, 2048), (25, 4096, 2048), (50, 8192, 2048), (100, 16384, 0)):
        for bits in BITS:
            expected = 16 + position_bytes + -(-kept * bits // 8)
            assert len(encode(values, keep_percent, bits)) == payload_bytes(16384, keep_percent, bits) == expected
    assert payload_bytes(16384, 50, 6) == 8208


def test_kind_10_lengths_around_the_groups() -> None:
    generator = np.random.default_rng(1)
    for count in [*range(35), 97, 127, 128, 129, 1021]:
        values = generator.normal(size=count)
        for keep_percent in (10, 50, 100):
            for bits in BITS:
                assert encode(values, keep_percent, bits) == reference.encode(values.tolist(), keep_percent, bits)


@pytest.mark.parametrize("poison", [math.nan, math.inf, -math.inf])
def test_kind_09_non_finite_is_refused_and_named(poison: float) -> None:
    values = np.ones((3, 4))
    values[1, 2] = poison
    with pytest.raises(NonFiniteError, match="element 6 of a boundary of 12"):
        encode(values, 50, 6)
    with pytest.raises(NonFiniteError, match="element 6 of a boundary of 12"):
        encode_dense(values)


def test_signs_of_zero_and_an_outlier() -> None:
    assert math.copysign(1, decode(encode(array(-0.0, 1.0), 100, 8), 2)[0]) == 1.0
    assert math.copysign(1, decode(encode_dense(array(-0.0, 1.0)), 2)[0]) == -1.0
    assert encode(array(-0.0, -0.0), 50, 8) == encode(array(0.0, 0.0), 50, 8)
    outlier = decode(encode(array(1e30, 1.0, -1.0), 100, 12), 3)
    assert outlier.tolist() == [1e30, 0.0, 0.0]


def test_one_element_and_none() -> None:
    for keep_percent in (1, 100):
        for bits in BITS:
            assert decode(encode(array(-3.7), keep_percent, bits), 1).tolist() == [-3.7]
            assert decode(encode(np.zeros(0), keep_percent, bits), 0).shape == (0,)
    assert len(encode(np.zeros(0), 50, 6)) == 16
    assert decode(encode_dense(np.zeros(0)), 0).shape == (0,)


def test_other_layouts_and_dtypes() -> None:
    values = np.random.default_rng(2).normal(size=(6, 5))
    assert encode(np.asfortranarray(values), 50, 6) == encode(values, 50, 6) == encode(values.reshape(-1), 50, 6)
    assert encode_dense(values.T) == encode_dense(values.T.copy())
    others: list[Any] = [values.astype(np.float32), values.astype(int)]
    for bad in others:
        with pytest.raises(ContractError, match="must be float64"):
            encode(bad, 50, 6)
        with pytest.raises(ContractError, match="must be float64"):
            encode_dense(bad)


def test_decode_gives_an_array_of_its_own() -> None:
    for payload in (encode_dense(np.ones(9)), encode(np.ones(9), 50, 6), encode(np.ones(9), 100, 8)):
        received = decode(memoryview(bytearray(payload)), 9)
        received += 1.0
        assert decode(payload, 9).max() == 1.0


PAYLOADS = [
    encode(np.random.default_rng(3).normal(size=count), keep_percent, bits)
    for count, keep_percent, bits in ((50, 50, 6), (300, 1, 12), (5, 100, 4), (17, 10, 8), (0, 50, 6), (1, 1, 12))
] + [encode(np.zeros(11), 50, 6), encode_dense(np.ones(3)), encode_dense(np.zeros(0))]


@pytest.mark.parametrize("payload", PAYLOADS)
def test_every_flipped_bit_is_refused_or_gives_finite_numbers(payload: bytes) -> None:
    count = struct.unpack_from("<I", payload, 4)[0]
    for at in range(8 * len(payload)):
        damaged = bytearray(payload)
        damaged[at // 8] ^= 1 << at % 8
        try:
            received = decode(bytes(damaged), count)
        except ContractError:
            continue
        if at < 64:  # k may become another that keeps as many; b too, where nothing is kept
            assert at // 8 in (2, 3)
            np.testing.assert_array_equal(received, decode(payload, count))
        assert received.shape == (count,)
        assert np.isfinite(received).all()


@pytest.mark.parametrize("payload", PAYLOADS)
def test_another_length_or_count_is_refused(payload: bytes) -> None:
    count = struct.unpack_from("<I", payload, 4)[0]
    for size in range(len(payload)):
        with pytest.raises(ContractError):
            decode(payload[:size], count)
    with pytest.raises(ContractError, match="bytes instead of"):
        decode(payload + b"\0", count)
    for other in (count + 1, -1, 2**32, 2**40):
        with pytest.raises(ContractError):
            decode(payload, other)


@pytest.mark.parametrize(("positions", "keep_percent", "bits"), [(0, 0, 0), (1, 100, 6), (2, 50, 6), (3, 1, 12)])
def test_a_small_payload_cannot_ask_for_much_memory(positions: int, keep_percent: int, bits: int) -> None:
    claim = struct.pack("<BBBBI", 1, positions, keep_percent, bits, 2**32 - 1) + bytes(64)
    with pytest.raises(ContractError, match="bytes instead of"):
        decode(claim, 2**32 - 1)


def changed(payload: bytes, at: int, content: bytes) -> bytes:
    return payload[:at] + content + payload[at + len(content) :]


def test_what_encode_cannot_have_made_is_refused() -> None:
    sparse = encode(np.arange(16.0), 50, 6)  # bitmap, 8 kept
    by_index = encode(np.arange(300.0), 1, 8)  # indices 297, 298, 299
    every = encode(np.arange(5.0), 100, 6)  # 30 bits in 4 bytes
    zeros = encode(np.zeros(4), 100, 8)
    tail = encode(np.arange(12.0), 50, 8)  # bitmap of 12 bits
    cases = {
        "positions of kind": changed(sparse, 1, b"\3"),
        "format": changed(sparse, 0, b"\2"),
        "claims what cannot be": changed(sparse, 2, b"\0"),
        "choose one of: 4, 6": changed(sparse, 3, b"\5"),
        "dense": changed(sparse, 1, b"\0"),
        "a peak of nan": changed(sparse, 8, struct.pack("<d", math.nan)),
        "a peak of inf": changed(sparse, 8, struct.pack("<d", math.inf)),
        "a peak of -1": changed(sparse, 8, struct.pack("<d", -1.0)),
        "a peak of 1.0": changed(encode(np.zeros(0), 50, 6), 8, struct.pack("<d", 1.0)),
        "a peak of -0.0": changed(zeros, 8, struct.pack("<d", -0.0)),
        "8 ascending": changed(sparse, 16, b"\1\0"),
        "6 ascending": changed(tail, 16, b"\0\xf7"),
        "3 ascending": changed(by_index, 16, struct.pack("<HHH", 297, 297, 299)),
        "below 300": changed(by_index, 16, struct.pack("<HHH", 297, 298, 300)),
        "6 symmetric bits": changed(sparse, 18, b"\x3f"),
        "outside of 6": changed(every, 19, bytes([every[19] | 0x80])),
        "under a peak of 0": changed(zeros, 16, b"\0"),
    }
    counts = {"a peak of 1.0": 0, "3 ascending": 300, "below 300": 300, "outside of 6": 5, "6 ascending": 12}
    for reason, payload in cases.items():
        count = counts.get(reason, len(zeros) - 16 if payload[8:16] in (bytes(8), struct.pack("<d", -0.0)) else 16)
        with pytest.raises(ContractError, match=reason):
            decode(payload, count)


@settings(max_examples=200)
@given(st.binary(max_size=60), st.integers(0, 30))
def test_noise_is_refused_or_gives_finite_numbers(noise: bytes, count: int) -> None:
    for payload in (noise, b"\1" + noise, struct.pack("<BBBBI", 1, 2, 50, 6, count) + noise):
        try:
            received = decode(payload, count)
        except ContractError:
            continue
        assert received.shape == (count,)
        assert np.isfinite(received).all()


def test_stats_by_hand() -> None:
    values = array(3, -4, 0, 1)
    quality = stats(values, array(3, 0, 0, 0), bytes(16))
    assert (quality.density, quality.payload_bytes, quality.ratio, quality.max_error) == (0.25, 16, 2.0, 4.0)
    assert quality.rms_error == pytest.approx(math.sqrt(17 / 4))
    same = stats(values.reshape(2, 2), values, encode_dense(values))
    assert (same.density, same.payload_bytes, same.max_error, same.rms_error) == (0.75, 40, 0.0, 0.0)
    assert stats(array(1e300, 0), array(-5e299, 0), b"1").rms_error == pytest.approx(1.5e300 / math.sqrt(2))
    empty = stats(np.zeros(0), np.zeros(0), encode(np.zeros(0), 50, 6))
    assert (empty.density, empty.payload_bytes, empty.ratio, empty.rms_error) == (0.0, 16, 0.0, 0.0)
    with pytest.raises(ContractError, match="compared"):
        stats(values, array(1), b"")
