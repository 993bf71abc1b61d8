"""What examples/ and README.md show is true: the examples run, the commands exist, the document has those keys."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import typer.main

import testbed
from chaos.library import scenario_names
from testbed.cli import app, run_command
from testbed.exit_codes import ExitCode
from testbed.plants import PLANTS

ROOT = Path(__file__).resolve().parent.parent
EXAMPLES = ROOT / "examples"
README = (ROOT / "README.md").read_text(encoding="utf-8")


def shown_commands() -> list[list[str]]:
    """Every `gradstorm …` line of README.md's indented blocks, as words, without its comment."""
    lines = re.findall(r"^    gradstorm (.*)$", README, flags=re.MULTILINE)
    return [re.split(r"\s+(?:#|>)", line)[0].split() for line in lines]


def listed(heading: str) -> set[str]:
    """What the first column of the table under this heading names."""
    section = README.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (.*?) \|", section, flags=re.MULTILINE)
    return {word for row in rows for word in re.findall(r"`([^`]+)`|^(\d+)$", row) for word in word if word}


def test_the_examples_are_a_users_own_pytest(tmp_path: Path) -> None:
    options = ["-p", "no:cacheprovider", f"--basetemp={tmp_path / 'runs'}"]
    command = [sys.executable, "-m", "pytest", *options, str(EXAMPLES)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=110)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "4 passed" in done.stdout, done.stdout


def test_the_command_line_runs_the_example(tmp_path: Path) -> None:
    for strategy in ("ring", "ps"):
        scenario, out = str(EXAMPLES / "two-deaths.yaml"), str(tmp_path / strategy)
        assert run_command(["run", scenario, "--strategy", strategy, "--out", out]) == ExitCode.PASS


def test_every_command_of_the_readme_exists() -> None:
    group = typer.main.get_command(app)
    shown = shown_commands()
    assert len(shown) > 5
    for words in shown:
        command = group.commands.get(words[0])  # type: ignore[attr-defined]
        assert command is not None, f"README shows gradstorm {' '.join(words)}"
        options = {name for parameter in command.params for name in parameter.opts}
        assert {word for word in words if word.startswith("--")} <= options, words
        if words[0] == "run":
            assert words[1].endswith(".yaml") or words[1] in scenario_names(), words
        for place, word in enumerate(words):
            assert word != "--plant" or words[place + 1] in PLANTS, words


def test_the_document_has_the_keys_of_the_readme(tmp_path: Path) -> None:
    document = testbed.run("clean", steps=4, out=tmp_path / "run").document
    assert listed("The document of `--json`") == set(document)


def test_the_exit_codes_are_those_of_the_readme() -> None:
    assert listed("Exit codes") == {str(int(code)) for code in ExitCode}
