"""Every complaint about a scenario: file, line, key, what is wrong, and the nearest name that would do.

The cases are in tests/golden/scenario_complaints.txt.
"""

from __future__ import annotations

import pytest

from chaos.checks import problems
from chaos.scenario import ScenarioError, parse_scenario
from tests.chaos.golden import FOLDER, REWRITE

HEAD = "name: mine\ntitle: Mine\n"
FILE = FOLDER / "scenario_complaints.txt"
DASHES = "----\n"


def cases() -> dict[str, tuple[str, str]]:
    """Title -> (scenario without the head, what is said)."""
    found = {}
    for block in FILE.read_text(encoding="utf-8").split("=== ")[1:]:
        title, _, rest = block.partition("\n")
        text, _, said = rest.partition(DASHES)
        found[title] = (text, said.strip())
    return found


def complaints(title: str, text: str) -> str:
    with pytest.raises(ScenarioError) as caught:
        parse_scenario(text if title.endswith("(whole)") else HEAD + text, "mine.yaml")
    assert str(caught.value) == "\n".join(caught.value.complaints)
    return str(caught.value)


@pytest.mark.skipif(not REWRITE, reason="writes the golden file only when it is asked to")
def test_rewrite() -> None:
    intro = FILE.read_text(encoding="utf-8").partition("=== ")[0]
    blocks = [f"=== {title}\n{text}{DASHES}{complaints(title, text)}\n\n" for title, (text, _) in cases().items()]
    FILE.write_text(intro + "".join(blocks), encoding="utf-8")


@pytest.mark.parametrize("title", cases())
def test_complaints(title: str) -> None:
    text, said = cases()[title]
    assert complaints(title, text) == said


def test_what_is_nested_too_deeply_is_refused() -> None:
    with pytest.raises(ScenarioError, match=r"^mine\.yaml:1:1: nested too deeply$"):
        parse_scenario(HEAD + "x: " + "[" * 3000 + "]" * 3000, "mine.yaml")


def test_a_file_that_is_far_too_long_is_refused() -> None:
    with pytest.raises(ScenarioError, match="1000020 characters; a scenario has at most 1000000"):
        parse_scenario(HEAD + "#" * (1_000_020 - len(HEAD)), "mine.yaml")


def test_a_sensible_scenario_has_no_problems() -> None:
    assert problems(parse_scenario(HEAD, "mine.yaml")) == []
