"""Numbers that a test has come to and people want to see: `record_property(COUNTED, "…")`, told after all tests."""

from __future__ import annotations

from collections.abc import Callable

COUNTED = "counted"
RecordProperty = Callable[[str, object], None]
"""What pytest's fixture `record_property` is."""
