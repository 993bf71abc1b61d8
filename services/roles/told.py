"""A line of the history as the verifier itself goes by: readable, and told by who may tell it.

Whoever has the run's token may report anything in its own name. It all goes into the history, and the judge says what
it thinks of it; but nothing of the verifier's own course may depend on it.
"""

from __future__ import annotations

from collections.abc import Collection

from services.fact_codec import fact_from_numbered
from services.fact_tellers import may_tell
from services.history import HistoryLine
from services.messages import Numbered
from services.records import Fact
from services.wire_error import WireError


def told_fact(line: HistoryLine, kinds: Collection[str]) -> Fact | None:
    """The fact in the line, if it is one of these kinds, in its form, and the reporter's to tell."""
    if line.kind not in kinds:
        return None
    try:
        fact = fact_from_numbered(Numbered(line.number, line.kind, line.body_json))  # its arrays are not looked at
    except WireError:
        return None
    return fact if may_tell(line.source, fact) else None
