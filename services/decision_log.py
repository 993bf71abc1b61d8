"""The coordinator's log: the facts that it has decided, one line each, durable before they are told.

A line is `crc32 kind body`, the CRC in eight hex digits over the rest. A relaunched coordinator reads the log and
stands where the dead one stood. Duty of the caller: append a line and sync the file before anything of it is told.
"""

from __future__ import annotations

from services.checksum import crc32
from services.fact_codec import fact_from_numbered, fact_to_numbered
from services.messages import Numbered
from services.records import Fact
from services.wire_error import WireError
from training.disk import AppendFile, DiskOp, Rename, SyncDir, SyncFile, WriteFile

PATH = "coordinator.log"
_TEMPORARY = "coordinator.log.tmp"


def append_plan(fact: Fact) -> tuple[DiskOp, ...]:
    """Operations that make one decision durable. Arrays of the fact are not kept."""
    return (AppendFile(PATH, encode_line(fact)), SyncFile(PATH))


def begin_plan(facts: tuple[Fact, ...]) -> tuple[DiskOp, ...]:
    """Operations that replace the whole log (a new run, or one whose last line was torn)."""
    content = b"".join(encode_line(fact) for fact in facts)
    return (WriteFile(_TEMPORARY, content), SyncFile(_TEMPORARY), Rename(_TEMPORARY, PATH), SyncDir("."))


def encode_line(fact: Fact) -> bytes:
    numbered = fact_to_numbered(fact, 0)
    rest = f"{numbered.kind} {numbered.body_json}".encode()
    return b"%08x %s\n" % (crc32(rest), rest)


class LogDamaged(Exception):
    """A whole line does not read back: no crash leaves that, so nothing may be concluded from the rest."""


def read_log(content: bytes) -> tuple[tuple[Fact, ...], bool]:
    """The decisions in the log, and whether its end is torn: no newline there, as a crash in an append leaves it.

    A torn line was never told, so it may be dropped; if it lacks nothing but the newline, it counts.
    Raises LogDamaged for an unreadable line that has its newline.
    """
    *lines, rest = content.split(b"\n")
    facts: list[Fact] = []
    for number, line in enumerate(lines, start=1):
        fact = _decode_line(line)
        if fact is None:
            raise LogDamaged(f"{PATH} line {number} is damaged; restore it, or start a new run from a checkpoint")
        facts.append(fact)
    whole = _decode_line(rest)
    return (*facts, *([] if whole is None else [whole])), rest != b""


def _decode_line(line: bytes) -> Fact | None:
    crc, _, rest = line.partition(b" ")
    if len(crc) != 8 or crc != b"%08x" % crc32(rest):
        return None
    kind, _, body = rest.decode("ascii", "replace").partition(" ")
    try:
        return fact_from_numbered(Numbered(0, kind, body))
    except WireError:
        return None
