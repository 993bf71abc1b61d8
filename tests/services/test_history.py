"""The history's form: what is written is read back, every damage is named with its line, and no bytes make it crash."""

from __future__ import annotations

import json
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.history import Damage, History, HistoryLine, encode_line, read_history
from services.history_schema import schema_json
from tests.services.honest_run import HonestRun, Plan, encoded

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def saved() -> tuple[bytes, bytes]:
    return encoded(HonestRun(Plan(steps=2)).lines())


def kinds(history: History) -> list[tuple[str, int]]:
    return [(damage.kind, damage.line) for damage in history.damage]


def split(content: bytes) -> list[bytes]:
    return content.splitlines(keepends=True)


def test_what_was_written_is_read_back() -> None:
    lines = HonestRun(Plan(steps=2)).lines()
    history = read_history(*encoded(lines))
    assert history.damage == ()
    assert history.ended
    assert len(history.lines) == len(lines)
    for read, written in zip(history.lines, lines, strict=True):
        assert (read.seq, read.at_ms, read.source, read.launch, read.number, read.kind, read.body_json) == (
            written.seq, written.at_ms, written.source, written.launch, written.number, written.kind, written.body_json,
        )  # fmt: skip
        assert list(read.arrays) == list(written.arrays)
        for name, array in written.arrays.items():
            assert read.arrays[name].tobytes() == array.tobytes()


def test_a_line_is_plain_json() -> None:
    array = np.array([1.5, -0.0, np.nan])
    text, chunk = encode_line(HistoryLine(1, 2.5, 'odd "name"', 1, 3, "Reduced", '{"step":7}', {"value": array}), 40)
    crc = zlib.crc32(chunk)
    head = (
        '{"seq":1,"at_ms":2.5,"source":"odd \\"name\\"","launch":1,"n":3,"kind":"Reduced","body":{"step":7},'
        f'"arrays":{{"value":[40,3,"{crc:08x}"]}}'
    )
    assert text == f'{head},"crc":"{zlib.crc32(head.encode()):08x}"}}\n'.encode()
    assert json.loads(text)["arrays"] == {"value": [40, 3, f"{crc:08x}"]}
    assert chunk == array.tobytes()


@pytest.mark.parametrize("flip", [5, 60, -3])
def test_a_changed_byte_is_named(saved: tuple[bytes, bytes], flip: int) -> None:
    lines = split(saved[0])
    broken = bytearray(lines[4])
    broken[flip] ^= 1
    history = read_history(b"".join([*lines[:4], bytes(broken), *lines[5:]]), saved[1])
    assert kinds(history)[0] in (("crc", 5), ("form", 5))
    assert kinds(history)[1] == ("gap", 6)
    assert len(history.lines) == len(lines) - 1


def test_a_missing_line_is_a_gap(saved: tuple[bytes, bytes]) -> None:
    lines = split(saved[0])
    history = read_history(b"".join(lines[:4] + lines[6:]), saved[1])
    assert history.damage == (Damage(5, "gap", "sequence number 7 where 5 is due: 2 lines are missing"),)


def test_a_line_that_comes_twice(saved: tuple[bytes, bytes]) -> None:
    lines = split(saved[0])
    history = read_history(b"".join([*lines[:4], lines[3], *lines[4:]]), saved[1])
    assert kinds(history) == [("duplicate", 5)]
    assert len(history.lines) == len(lines)


@pytest.mark.parametrize("keep", [1, 30, -1])
def test_a_torn_last_line(saved: tuple[bytes, bytes], keep: int) -> None:
    lines = split(saved[0])
    whole = b"".join(lines[:6])
    history = read_history(whole + lines[6][:keep], saved[1])
    assert kinds(history) == [("torn", 7), ("end", 0)]
    assert history.good_bytes == len(whole)


def test_a_tail_of_zeros_is_one_damage(saved: tuple[bytes, bytes]) -> None:
    lines = split(saved[0])
    whole = b"".join(lines[:6])
    history = read_history(whole + lines[6][:9] + b"\0" * 500 + b"\n" + b"\0" * 20, saved[1])
    assert kinds(history) == [("torn", 7), ("end", 0)]
    assert history.good_bytes == len(whole)


def test_no_end_record(saved: tuple[bytes, bytes]) -> None:
    lines = split(saved[0])
    assert kinds(read_history(b"".join(lines[:-1]), saved[1])) == [("end", 0)]


def test_lines_after_the_end_record(saved: tuple[bytes, bytes]) -> None:
    lines = split(saved[0])
    again = HistoryLine(len(lines) + 1, 1.0, "driver", 1, 2, "Healed", '{"bound_ms":1.0,"clean_steps":1}')
    history = read_history(saved[0] + encode_line(again, 0)[0], saved[1])
    assert history.damage == (Damage(0, "end", f"lines after the end record, which has sequence number {len(lines)}"),)


def test_an_empty_history() -> None:
    assert kinds(read_history(b"", b"")) == [("empty", 0)]


def test_arrays_that_are_missing_or_changed(saved: tuple[bytes, bytes]) -> None:
    lines, arrays = saved
    cut = read_history(lines, arrays[:-8])
    assert kinds(cut)[0][0] == "arrays"
    changed = bytearray(arrays)
    changed[3] ^= 1
    history = read_history(lines, bytes(changed))
    assert kinds(history)[0][0] == "arrays"
    assert "history.arrays" in history.damage[0].what


@given(st.binary(max_size=400), st.binary(max_size=64))
def test_any_bytes_can_be_read(lines: bytes, arrays: bytes) -> None:
    history = read_history(lines, arrays)
    assert history.damage
    assert history.good_bytes <= len(lines)


@st.composite
def mangled(draw: st.DrawFn) -> bytes:
    """A true history with bytes changed, dropped, doubled or put in."""
    content = bytearray(encoded(HonestRun(Plan(steps=1, workers=1)).lines())[0])
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(content) - 1))
        match draw(st.integers(0, 3)):
            case 0:
                content[at] = draw(st.integers(0, 255))
            case 1:
                del content[at : at + draw(st.integers(1, 300))]
            case 2:
                content[at:at] = content[at : at + draw(st.integers(1, 300))]
            case _:
                content[at:at] = draw(st.binary(max_size=20))
        if not content:
            break
    return bytes(content)


@given(mangled())
def test_no_mangling_makes_it_crash(content: bytes) -> None:
    history = read_history(content, b"")
    assert [line.seq for line in history.lines] == sorted({line.seq for line in history.lines})


_places = st.one_of(st.integers(-5, 2**70), st.text(max_size=3), st.none(), st.floats(allow_nan=False))


@given(st.dictionaries(st.text(max_size=3), st.lists(_places, max_size=4), max_size=3))
def test_well_formed_lines_with_nonsense_in_them(described: dict[str, object]) -> None:
    place = '{"seq":1,"at_ms":1.0,"source":"a","launch":1,"n":1,"kind":"Died","body":{}'
    head = f'{place},"arrays":{json.dumps(described)}'
    content = f'{head},"crc":"{zlib.crc32(head.encode()):08x}"}}\n'.encode()
    history = read_history(content, b"")
    assert history.lines or history.damage


@pytest.mark.parametrize("at_ms", ["1", "NaN", "1e999", "1" * 400, "1" * 5000, "true", "null", '"1.0"'])
def test_a_time_that_is_none(at_ms: str) -> None:
    head = f'{{"seq":1,"at_ms":{at_ms},"source":"a","launch":1,"n":1,"kind":"Died","body":{{}},"arrays":{{}}'
    history = read_history(f'{head},"crc":"{zlib.crc32(head.encode()):08x}"}}\n'.encode(), b"")
    assert (history.lines, history.damage[0].kind) == ((), "torn")
    assert "at_ms" in history.damage[0].what or "digits" in history.damage[0].what


def test_the_published_schema_is_fresh() -> None:
    path = ROOT / "services" / "schemas" / "history.schema.json"
    assert path.read_text(encoding="utf-8") == schema_json(), "write it anew: see services/history_schema.py"
