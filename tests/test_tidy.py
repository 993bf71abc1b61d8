"""The habits that a script can check, as tests. CONTRIBUTING.md says why we have them.

Every check looks at the files that git tracks; generated code (services/wire/*_pb2*) is left alone.
Patterns are put together from pieces so that this file does not match itself.
"""

from __future__ import annotations

import ast
import functools
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.xdist_group("tidy")  # every file is parsed once
ROOT = Path(__file__).resolve().parent.parent
MAX_FUNCTION_LINES = 70
MAX_FILE_LINES = 450
SOURCE_SUFFIXES = {".py", ".proto", ".sh", ".yml", ".toml", ".js", ".j2"}
MAY_PRINT = ("testbed/cli", "testbed/report", "testbed/bench", "scripts/")
MAY_SLEEP = ("services/shell/", "testbed/engines/")
ATTACKERS = {"test_lying_members.py"}  # makes what must be refused
SERIALISERS_THAT_RUN_CODE = {"pickle", "cPickle", "_pickle", "dill", "cloudpickle", "shelve", "marshal"}
UNFINISHED = re.compile(r"\b(?:" + "|".join(("TO" + "DO", "FIX" + "ME", "XX" + "X")) + r")\b")
ADDRESSES = re.compile(
    "|".join(
        (
            r"py" + r"pi\.org",
            r"python" + r"hosted\.org",
            r"registry\." + r"npmjs",
            r"registry\." + r"yarnpkg",
            r"proxy\." + r"golang",
            r"crates" + r"\.io",
            r"(?<![\w.-])/wo" + r"rk/",
            r"\." + r"library/",
        )
    )
)

Check = Callable[[Path], Iterator[str]]


@functools.cache
def tracked_files() -> tuple[Path, ...]:
    """Every committed file that exists, as a path relative to the root; without git, every file not hidden."""
    listing = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listing.returncode == 0 and listing.stdout:
        names = [Path(name) for name in listing.stdout.split("\0") if name]
    else:
        names = [path.relative_to(ROOT) for path in ROOT.rglob("*")]
        names = [path for path in names if not any(part.startswith(".") for part in path.parts)]
    return tuple(sorted(path for path in names if (ROOT / path).is_file()))


def is_generated(path: Path) -> bool:
    """Whether `make proto` wrote this file."""
    return path.parent.as_posix() == "services/wire" and "_pb2" in path.name


def own_files() -> list[Path]:
    """Tracked files that a person wrote."""
    return [path for path in tracked_files() if not is_generated(path)]


def text_of(path: Path) -> str:
    """The file's text, empty when it is not text."""
    try:
        return (ROOT / path).read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return ""


@functools.cache
def tree_of(path: Path) -> ast.Module:
    """The syntax tree of a Python file."""
    return ast.parse(text_of(path), filename=str(path))


def nodes_of(path: Path) -> Iterator[ast.AST]:
    """Every node of a Python file, nothing for another file."""
    if path.suffix == ".py":
        yield from ast.walk(tree_of(path))


def imported_names(node: ast.AST) -> list[str]:
    """Dotted names that an import statement brings in; none for any other node."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
        return [node.module] + [f"{node.module}.{alias.name}" for alias in node.names]
    return []


def dotted(node: ast.AST) -> str:
    """`time.sleep` for the expression time.sleep; empty for anything that is no plain dotted name."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        head = dotted(node.value)
        return f"{head}.{node.attr}" if head else ""
    return ""


def calls_of(path: Path) -> Iterator[tuple[str, ast.Call]]:
    """Every call in a Python file with the dotted name that is called."""
    for node in nodes_of(path):
        if isinstance(node, ast.Call):
            yield dotted(node.func), node


# ---------------------------------------------------------------- the checks: each yields its complaints


def long_functions(path: Path) -> Iterator[str]:
    """A function fits on a screen."""
    for node in nodes_of(path):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if lines > MAX_FUNCTION_LINES:
                yield f"{path}:{node.lineno}: {node.name} has {lines} lines, at most {MAX_FUNCTION_LINES}"


def long_files(path: Path) -> Iterator[str]:
    """A file holds one noun. Data, documents and vendored code may be longer."""
    if path.suffix in SOURCE_SUFFIXES and "vendor" not in path.parts:
        lines = text_of(path).count("\n")
        if lines > MAX_FILE_LINES:
            yield f"{path}: {lines} lines, at most {MAX_FILE_LINES}"


def missing_docstrings(path: Path) -> Iterator[str]:
    """A module opens with what it is for."""
    if path.suffix == ".py" and not ast.get_docstring(tree_of(path)):
        yield f"{path}: no module docstring"


def sleeps(path: Path) -> Iterator[str]:
    """Time belongs to the shell and the engines; a test waits for a condition, with a bound."""
    if path.as_posix().startswith(MAY_SLEEP):
        return
    for name, call in calls_of(path):
        if name == "time.sleep":
            yield f"{path}:{call.lineno}: time.sleep outside the shell and the engines"
    for node in nodes_of(path):
        if "time.sleep" in imported_names(node):
            yield f"{path}:{getattr(node, 'lineno', 0)}: imports sleep"


def prints(path: Path) -> Iterator[str]:
    """Only the command line, the report and the benchmarks talk to a person."""
    if path.as_posix().startswith(MAY_PRINT):
        return
    for name, node in calls_of(path):
        if name == "print":
            yield f"{path}:{node.lineno}: print outside the command line"


def unfinished_notes(path: Path) -> Iterator[str]:
    """What is not done is an issue, not a comment."""
    if path.suffix in SOURCE_SUFFIXES or path.name == "Makefile":
        for number, line in enumerate(text_of(path).splitlines(), start=1):
            if UNFINISHED.search(line):
                yield f"{path}:{number}: unfinished: {line.strip()}"


def swallowed_errors(path: Path) -> Iterator[str]:
    """No error disappears: no bare except, and none that catches everything and does nothing."""
    for node in nodes_of(path):
        if not isinstance(node, ast.ExceptHandler):
            continue
        if node.type is None:
            yield f"{path}:{node.lineno}: bare except"
        elif dotted(node.type) in ("Exception", "BaseException") and all(
            isinstance(statement, ast.Pass | ast.Continue) for statement in node.body
        ):
            yield f"{path}:{node.lineno}: catches {dotted(node.type)} and does nothing"


def code_running_serialisers(path: Path) -> Iterator[str]:
    """A file or a message never decides which code runs."""
    if path.name in ATTACKERS:
        return
    for node in nodes_of(path):
        for name in imported_names(node):
            if name.partition(".")[0] in SERIALISERS_THAT_RUN_CODE:
                yield f"{path}:{getattr(node, 'lineno', 0)}: imports {name}"
    for name, call in calls_of(path):
        for keyword in call.keywords:
            if keyword.arg == "allow_pickle" and not (
                isinstance(keyword.value, ast.Constant) and keyword.value.value is False
            ):
                yield f"{path}:{call.lineno}: {name} with allow_pickle"


def mocks(path: Path) -> Iterator[str]:
    """We run the real core in the simulator instead of a stand-in for it."""
    for node in nodes_of(path):
        if any(name == "mock" or name.startswith("unittest.mock") for name in imported_names(node)):
            yield f"{path}:{getattr(node, 'lineno', 0)}: imports unittest's mock"


def machine_addresses(path: Path) -> Iterator[str]:
    """No file depends on one machine's folders or names a package registry."""
    for number, line in enumerate(text_of(path).splitlines(), start=1):
        found = ADDRESSES.search(line)
        if found:
            yield f"{path}:{number}: names {found.group()!r}"


CHECKS: tuple[Check, ...] = (
    long_functions,
    long_files,
    missing_docstrings,
    sleeps,
    prints,
    unfinished_notes,
    swallowed_errors,
    code_running_serialisers,
    mocks,
    machine_addresses,
)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_tidy(check: Check) -> None:
    complaints = [complaint for path in own_files() for complaint in check(path)]
    assert not complaints, f"{check.__doc__}\n" + "\n".join(complaints)


def complaints_about(check: Check, source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What `check` says about a file with this content."""
    monkeypatch.setattr(f"{__name__}.ROOT", tmp_path)
    tree_of.cache_clear()
    (tmp_path / "example.py").write_text(source, encoding="utf-8")
    found = list(check(Path("example.py")))
    tree_of.cache_clear()
    return found


BAD_EXAMPLES: dict[str, tuple[Check, str]] = {
    "function": (long_functions, "def f():\n" + "    x = 1\n" * MAX_FUNCTION_LINES),
    "file": (long_files, "x = 1\n" * (MAX_FILE_LINES + 1)),
    "docstring": (missing_docstrings, "x = 1\n"),
    "sleep": (sleeps, "import time\ntime.sleep(1)\n"),
    "sleep imported": (sleeps, "from time import sleep\n"),
    "print": (prints, "print(1)\n"),
    "note": (unfinished_notes, "# TO" + "DO later\n"),
    "bare except": (swallowed_errors, "try:\n    f()\nexcept:\n    g()\n"),
    "silent except": (swallowed_errors, "try:\n    f()\nexcept Exception:\n    pass\n"),
    "serialiser": (code_running_serialisers, "from pickle import loads\n"),
    "numpy's": (code_running_serialisers, "import numpy as np\nnp.load('x', allow_pickle=True)\n"),
    "mock": (mocks, "from unittest import mock\n"),
    "folder": (machine_addresses, "HOME = '/wo" + "rk/main'\n"),
    "registry": (machine_addresses, "# see https://py" + "pi.org/project/x\n"),
}


@pytest.mark.parametrize("name", BAD_EXAMPLES)
def test_each_check_can_fail(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check, source = BAD_EXAMPLES[name]
    assert complaints_about(check, source, tmp_path, monkeypatch), (
        f"{check.__name__} sees nothing wrong with {source!r}"
    )
