"""ARCHITECTURE.md prints the table of phases as the code has it."""

from __future__ import annotations

from pathlib import Path

from chaos.phases import markdown_table


def test_the_table_of_phases_is_the_codes() -> None:
    text = (Path(__file__).parent.parent / "ARCHITECTURE.md").read_text(encoding="utf-8")
    printed = text.partition("<!-- phases -->\n")[2].partition("<!-- /phases -->")[0]
    assert printed == markdown_table(), "paste the output of chaos.phases.markdown_table() between the marks"
