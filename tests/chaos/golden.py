"""Golden files: what a test says is compared with tests/golden/…; GRADSTORM_REWRITE_GOLDEN=1 writes it instead."""

from __future__ import annotations

import os
from pathlib import Path

FOLDER = Path(__file__).resolve().parent.parent / "golden"
REWRITE = os.environ.get("GRADSTORM_REWRITE_GOLDEN") == "1"


def compare(name: str, text: str) -> None:
    """Compare with the committed text; a difference is a change of behaviour that the commit has to explain."""
    path = FOLDER / name
    if REWRITE:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    assert path.is_file(), f"no {path.name}; make it with GRADSTORM_REWRITE_GOLDEN=1 and read what it says"
    assert text == path.read_text(encoding="utf-8")
