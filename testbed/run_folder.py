"""The folder of a run, the same on every engine, and the place where runs are kept.

    manifest.json         versions, commit, seed, configuration, numerics fingerprint; enough to run it again
    dataset.safetensors   what was trained on (`training.datasets.dataset_to_bytes`)
    history.jsonl         every record in order, with sequence number and CRC; large arrays beside it
    checkpoints/          published checkpoints and the pointer
    coordinator.log       the coordinator's durable decisions
    resumed-from/         the checkpoint of an earlier run that this one went on from, if it did
    logs/                 one file per role and launch
    verdict.json          the document that `run --json` printed
    report.html           the same for people, with pictures; opens offline

JSON documents are written to a temporary name, synced and renamed, so that a reader finds the old one or the new
one, whole. Runs live in ./runs, or in the folder that GRADSTORM_HOME names.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

from testbed.places import require_folder, said
from training.disk import Rename, SyncDir, SyncFile, WriteFile, apply_all
from training.errors import ConfigurationError, GradstormError
from training.real_disk import RealDisk

MANIFEST = "manifest.json"
VERDICT = "verdict.json"
_MARK = "gradstorm-run"  # the manifest's `kind`: prune removes no folder without it
_MANIFEST_SCHEMA = 1
_LATEST = "latest"


class RunFolderError(GradstormError):
    """A run's folder cannot be made, found or read (exit code 2 or 3, as the message says)."""


@dataclass(frozen=True, slots=True)
class RunFolder:
    """Paths of one run. Holds no state."""

    path: Path

    @classmethod
    def create(cls, path: Path) -> RunFolder:
        """Make the folder, its parents included. Raises ConfigurationError when it exists, RunFolderError otherwise."""
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.mkdir()
            folder = cls(path.resolve())
            folder.logs.mkdir()
        except FileExistsError as error:
            raise already_there(path) from error
        except OSError as error:
            raise RunFolderError(f"cannot make the run folder {path}: {said(error)}") from error
        return folder

    def remove_unless_begun(self) -> None:
        """Take the folder of a run away that ended before its first record, unless a log says something."""
        begun = [*self.path.glob("history.*"), *self.logs.iterdir()]
        if not any(path.is_dir() or path.stat().st_size for path in begun):
            shutil.rmtree(self.path, ignore_errors=True)

    @property
    def manifest_path(self) -> Path:
        return self.path / MANIFEST

    @property
    def dataset_path(self) -> Path:
        return self.path / "dataset.safetensors"

    @property
    def history_path(self) -> Path:
        return self.path / "history.jsonl"

    def dataset(self) -> bytes:
        """What was trained on. Raises RunFolderError."""
        return _read(self.dataset_path)

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @property
    def resumed_from(self) -> Path:
        return self.path / "resumed-from"

    @property
    def logs(self) -> Path:
        return self.path / "logs"

    @property
    def verdict_path(self) -> Path:
        return self.path / VERDICT

    @property
    def report_path(self) -> Path:
        return self.path / "report.html"

    def log_path(self, role: str, launch: int) -> Path:
        """Where launch `launch` of a role writes what it says."""
        return self.logs / f"{role}.{launch}.log"

    def write_manifest(self, document: dict[str, Any]) -> None:
        """Replace the manifest, adding what marks the folder as ours."""
        write_json(self.manifest_path, {"kind": _MARK, "schema": _MANIFEST_SCHEMA, **document})

    def manifest(self) -> dict[str, Any]:
        """The manifest. Raises RunFolderError when there is none or it is unreadable."""
        document = _read_json(self.manifest_path)
        if document.get("kind") != _MARK:
            raise RunFolderError(f"{self.manifest_path} is no manifest of a run")
        return document

    def write_verdict(self, document: dict[str, Any]) -> None:
        """Replace the verdict document."""
        write_json(self.verdict_path, document)

    def verdict(self) -> dict[str, Any]:
        """The verdict document, {} while there is none. Raises RunFolderError when it is unreadable."""
        return _read_json(self.verdict_path) if self.verdict_path.exists() else {}


@dataclass(frozen=True, slots=True)
class RunSummary:
    """One line of `gradstorm runs list`."""

    name: str
    path: str
    started_at: str
    scenario: str
    engine: str
    strategy: str
    seed: int
    verdict: str  # as in verdict.json, or "running", "unfinished", "unreadable"
    size_bytes: int


def runs_home() -> Path:
    """Where runs are kept."""
    return Path(os.environ.get("GRADSTORM_HOME") or "runs")


def new_run_id(engine: str, scenario: str, strategy: str, seed: int, configuration_digest: str) -> str:
    """Id of a run: of the simulator it follows from what is run; of the others it is unique."""
    name = re.sub(r"[^A-Za-z0-9_.-]+", "-", scenario).strip("-.") or "scenario"
    stem = f"{name}-{strategy}-{engine}-s{seed}"
    if engine == "sim":
        return f"{stem}-{configuration_digest[:8]}"
    return f"{stem}-{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"


def folder_for(run_id: str, out: Path | None) -> Path:
    """Where a run goes: `out`, which must not exist, or a name under the home that is still free."""
    home = runs_home()
    if out is not None and os.path.lexists(out):
        raise already_there(out)
    require_folder(out or home / run_id, "the run folder", "--out or GRADSTORM_HOME")
    if out is not None:
        return out
    name, number = run_id, 1
    while os.path.lexists(home / name):
        number += 1
        name = f"{run_id}.{number}"
    return home / name


def already_there(path: Path) -> ConfigurationError:
    """What to say of a folder that exists."""
    return ConfigurationError(f"the run folder {path} exists already; give --out another name, or remove it")


def left_of(folder: Path) -> str:
    """What to say of the folder of a run that was interrupted."""
    return f"what there is of the run is in {folder}" if folder.exists() else "the run had not begun"


def find_run(name: str) -> RunFolder:
    """The run that `name` means: a folder, an id under the home, a unique beginning of one, or "latest"."""
    direct = Path(name)
    if _is_run(direct):
        return _readable(direct)
    if os.path.isdir(direct):
        raise RunFolderError(f"{direct} is a folder without {MANIFEST}, so not a run")
    names = [path.name for path in _run_paths(runs_home())]
    if name == _LATEST and names:
        return _readable(runs_home() / newest(names))
    matches = [name] if name in names else [other for other in names if other.startswith(name)]
    if len(matches) == 1:
        return _readable(runs_home() / matches[0])
    if matches:
        raise RunFolderError(f"{name} could be any of {', '.join(sorted(matches)[:5])}; say more of it")
    raise RunFolderError(f"no run {name!r}, neither as a folder nor in {runs_home()}; see `gradstorm runs list`")


def newest(names: Iterable[str]) -> str:
    """Of these runs under the home, the one that started last."""
    return max(names, key=lambda name: ((runs_home() / name / MANIFEST).stat().st_mtime_ns, name))


def list_runs() -> list[RunSummary]:
    """Every run under the home, oldest first."""
    summaries = [_summary(path) for path in _run_paths(runs_home(), closed=True)]
    return sorted(summaries, key=lambda summary: (summary.started_at, summary.name))


def prune(keep: int) -> list[RunSummary]:
    """Remove all finished or abandoned runs but the `keep` newest; returns those removed.

    A running one stays, and so does a folder whose manifest does not say that it is ours.
    """
    idle = [summary for summary in list_runs() if summary.verdict not in ("running", "unreadable")]
    doomed = idle[: max(0, len(idle) - keep)]
    for summary in doomed:
        try:
            shutil.rmtree(summary.path)
        except OSError as error:
            raise RunFolderError(f"cannot remove {error.filename or summary.path}: {said(error)}") from error
    return doomed


def write_json(path: Path, document: dict[str, Any]) -> None:
    """Write a document durably and all at once. Raises RunFolderError."""
    write_whole(path, json.dumps(document, indent=2, sort_keys=True, allow_nan=False).encode() + b"\n")


def write_whole(path: Path, content: bytes) -> None:
    """Whoever is interrupted leaves the old file or the new one. Raises RunFolderError."""
    temporary = str(path.with_name(f".{path.name}.tmp"))
    plan = (
        WriteFile(temporary, content),
        SyncFile(temporary),
        Rename(temporary, str(path)),
        SyncDir(str(path.parent)),
    )
    try:
        apply_all(RealDisk(), plan)
    except OSError as error:
        raise RunFolderError(f"cannot write {path}: {said(error)}") from error


def process_marker() -> dict[str, Any]:
    """Who drives the run, so that another command can tell a running run from an abandoned one."""
    import psutil

    process = psutil.Process()
    return {"pid": process.pid, "created": process.create_time()}


def _run_paths(home: Path, closed: bool = False) -> list[Path]:
    """Runs below `home`; `closed`: also folders that nobody may look into. Raises ConfigurationError."""
    try:
        names = os.listdir(home)
    except OSError as error:
        if not os.path.lexists(home) and isinstance(error, FileNotFoundError):
            return []
        raise ConfigurationError(
            f"runs are kept in {home}: {said(error)}; set GRADSTORM_HOME to a folder, or to one that does not exist yet"
        ) from error
    found = []
    for name in sorted(names):
        try:
            wanted = _is_run(home / name)
        except RunFolderError:
            wanted = closed
        found += [home / name] if wanted else []
    return found


def _is_run(path: Path) -> bool:
    try:
        return (path / MANIFEST).is_file()
    except OSError as error:
        raise RunFolderError(f"cannot read a run at {path}: {said(error)}") from error


def _readable(path: Path) -> RunFolder:
    """The run at `path`. Raises RunFolderError naming the file of it that cannot be read."""
    folder = RunFolder(path.resolve())
    for file in (folder.manifest_path, folder.dataset_path, folder.history_path, folder.verdict_path):
        if os.path.lexists(file):
            _open(file).close()
    return folder


def _summary(path: Path) -> RunSummary:
    folder = RunFolder(path)
    size = sum(os.path.getsize(file) for file in path.rglob("*") if os.path.isfile(file))
    try:
        manifest, verdict = folder.manifest(), folder.verdict()
    except RunFolderError:
        return RunSummary(path.name, str(path), "", "?", "?", "?", 0, "unreadable", size)
    return RunSummary(
        name=path.name,
        path=str(path),
        started_at=str(manifest.get("started_at", "")),
        scenario=str(manifest.get("scenario", "?")),
        engine=str(manifest.get("engine", "?")),
        strategy=str(manifest.get("strategy", "?")),
        seed=int(manifest.get("seed", 0)),
        verdict=str(verdict.get("verdict") or ("running" if _driven(manifest) else "unfinished")),
        size_bytes=size,
    )


def _driven(manifest: dict[str, Any]) -> bool:
    import psutil

    driver = manifest.get("driver") or {}
    try:
        return bool(psutil.Process(int(driver["pid"])).create_time() == driver["created"])
    except (psutil.Error, KeyError, ValueError):
        return False


def _read_json(path: Path) -> dict[str, Any]:
    try:
        document = json.loads(_read(path))
    except ValueError as error:
        raise RunFolderError(f"cannot read {path}: {error}") from error
    if not isinstance(document, dict):
        raise RunFolderError(f"{path} holds no JSON object")
    return document


def _read(path: Path) -> bytes:
    with _open(path) as file:
        return file.read()


def _open(path: Path) -> IO[bytes]:
    try:
        return path.open("rb")
    except OSError as error:
        raise RunFolderError(f"cannot read {path}: {said(error)}") from error
