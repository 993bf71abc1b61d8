"""What `gradstorm doctor` finds out, one thing at a time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Level = Literal["ok", "warning", "failure", "absent"]


@dataclass(frozen=True, slots=True)
class Finding:
    """What one check found. `advice` is empty when there is nothing to do."""

    name: str
    level: Level
    value: str
    advice: str = ""
