"""Where checkpoints live: plans that write, publish and remove them, and the search for the newest good one.

Nothing here touches a disk by itself except to read. A plan is data; whatever prefix of it was applied, by a killed
process or before a power cut, a reader finds the old checkpoint or the new one, whole.

Duties of the caller, in order:
1. now and then, when nobody else writes there: apply `cleanup_plan`;
2. per checkpoint: apply `write_plan`, then `publish_plan`, and tell nobody before both are through;
3. then, if old ones shall go: apply `retention_plan`;
4. an OSError ends the plan and is never retried.
The folder's own name is made durable by `write_plan`; that of the folder around it is the caller's.
"""

import posixpath
from dataclasses import dataclass

from training.checkpoint_format import (
    CheckpointKey,
    CheckpointState,
    checkpoint_name,
    decode_with_key,
    encode,
    parse_name,
    sealed_json,
    unsealed_json,
)
from training.config import ModelConfig
from training.disk import Disk, DiskOp, MakeDir, Remove, Rename, SyncDir, SyncFile, WriteFile
from training.errors import CheckpointError

POINTER = "LATEST"

_TEMPORARY = "tmp-"
_POINTER_FORMAT = 1


@dataclass(frozen=True, slots=True)
class Damage:
    """A checkpoint (or the pointer) that was skipped, and why."""

    name: str
    reason: str


def write_plan(folder: str, state: CheckpointState, incarnation: int) -> tuple[DiskOp, ...]:
    """Write a checkpoint into `folder`, all its files synced before its name appears. It is not yet published."""
    name = checkpoint_name(state.step, state.generation, incarnation)
    temporary = posixpath.join(folder, _TEMPORARY + name)
    ops: list[DiskOp] = [MakeDir(folder), SyncDir(posixpath.dirname(folder)), MakeDir(temporary)]
    for file, content in encode(state, incarnation).items():
        path = posixpath.join(temporary, file)
        ops += [WriteFile(path, content), SyncFile(path)]
    ops += [SyncDir(temporary), Rename(temporary, posixpath.join(folder, name)), SyncDir(folder)]
    return tuple(ops)


def publish_plan(folder: str, name: str) -> tuple[DiskOp, ...]:
    """Point `LATEST` at the checkpoint `name`. Raises CheckpointError for a name that is no checkpoint's."""
    if parse_name(name) is None:
        raise CheckpointError(f"{name!r} is no checkpoint's name; publish what `checkpoint_name` gives")
    temporary = posixpath.join(folder, _TEMPORARY + POINTER)
    content = sealed_json({"format": _POINTER_FORMAT, "name": name})
    return (
        WriteFile(temporary, content),
        SyncFile(temporary),
        Rename(temporary, posixpath.join(folder, POINTER)),
        SyncDir(folder),
    )


def cleanup_plan(disk: Disk, folder: str) -> tuple[DiskOp, ...]:
    """Remove the temporary files and folders that a killed writer left behind. Raises OSError from reading."""
    if not disk.exists(folder):
        return ()
    strays = [name for name in disk.list(folder) if name.startswith(_TEMPORARY)]
    ops = [op for name in strays for op in _removal(disk, posixpath.join(folder, name))]
    return (*ops, SyncDir(folder)) if ops else ()


def retention_plan(disk: Disk, folder: str, keep: int) -> tuple[DiskOp, ...]:
    """Remove all but the `keep` newest checkpoints, but never the published one nor the newest good one.

    Each is renamed to a temporary name before its files go, so that no reader meets half of it. Raises
    CheckpointError for keep below 1, OSError from reading.
    """
    if keep < 1:
        raise CheckpointError(f"cannot keep {keep} checkpoints; keep at least 1")
    ordered = [name for _, name in _found(disk, folder)]
    good = next((name for name in ordered if isinstance(_examine(disk, folder, name), CheckpointState)), None)
    published, _ = _published(disk, folder)
    ops: list[DiskOp] = []
    for name in ordered[keep:]:
        if name not in (good, published):
            doomed = posixpath.join(folder, _TEMPORARY + name)
            ops += [*_leftover(disk, doomed), Rename(posixpath.join(folder, name), doomed), SyncDir(folder)]
            ops += _removal(disk, posixpath.join(folder, name), doomed)
    return (*ops, SyncDir(folder)) if ops else ()


def newest_good(
    disk: Disk, folder: str, expect_model: ModelConfig | None, expect_dataset: str | None
) -> tuple[str, CheckpointState, tuple[Damage, ...]]:
    """Find the checkpoint to resume from: (name, state, what was skipped and why).

    The published one comes first. If it or the pointer is unusable: the newest complete one that is no newer than
    what the pointer says, and only then one that was written but never published. Newest means highest
    `CheckpointKey`. Raises CheckpointError when there is none, or when the one found belongs to another model
    configuration or dataset (None: any will do); OSError if the folder itself cannot be listed.
    """
    published, damages = _published(disk, folder)
    for name in _candidates(disk, folder, published):
        found = _examine(disk, folder, name)
        if isinstance(found, CheckpointState):
            _require_expected(folder, name, found, expect_model, expect_dataset)
            return name, found, tuple(damages)
        damages.append(found)
    skipped = "; ".join(f"{damage.name}: {damage.reason}" for damage in damages)
    raise CheckpointError(f"no usable checkpoint in {folder} ({skipped}); start a new run, or restore the folder")


def _found(disk: Disk, folder: str) -> list[tuple[CheckpointKey, str]]:
    """Every checkpoint by name, newest first."""
    if not disk.exists(folder):
        return []
    named = ((parse_name(name), name) for name in disk.list(folder))
    return sorted(((key, name) for key, name in named if key is not None), reverse=True)


def _candidates(disk: Disk, folder: str, published: str | None) -> list[str]:
    found = _found(disk, folder)
    names = [name for _, name in found]
    limit = parse_name(published) if published is not None else None
    if published is None or limit is None:
        return names
    trusted = [name for key, name in found if key < limit]
    unpublished = [name for key, name in found if key > limit]
    return [published, *trusted, *unpublished]


def _published(disk: Disk, folder: str) -> tuple[str | None, list[Damage]]:
    """What the pointer says, or None and why not."""
    path = posixpath.join(folder, POINTER)
    if not disk.exists(path):
        return None, [Damage(POINTER, "the pointer is missing")]
    try:
        body = unsealed_json(POINTER, disk.read(path))
    except (CheckpointError, OSError) as error:
        return None, [Damage(POINTER, str(error))]
    name = body.get("name")
    if body.get("format") != _POINTER_FORMAT or not isinstance(name, str) or parse_name(name) is None:
        return None, [Damage(POINTER, f"the pointer names {name!r}, which is no checkpoint of this format")]
    return name, []


def _examine(disk: Disk, folder: str, name: str) -> CheckpointState | Damage:
    """Read one checkpoint whole; what is wrong with it is the result, not an error."""
    path = posixpath.join(folder, name)
    if not disk.exists(path):
        return Damage(name, f"it is missing, though {POINTER} names it")
    try:
        files = {file: disk.read(posixpath.join(path, file)) for file in disk.list(path)}
        key, state = decode_with_key(files)
    except (CheckpointError, OSError) as error:
        return Damage(name, str(error))
    if key != parse_name(name):
        claimed = checkpoint_name(key.step, key.generation, key.incarnation)
        return Damage(name, f"its manifest says that it is {claimed}; the folder was renamed or swapped")
    return state


def _require_expected(
    folder: str, name: str, state: CheckpointState, model: ModelConfig | None, dataset: str | None
) -> None:
    where = posixpath.join(folder, name)
    if model is not None and state.model != model:
        raise CheckpointError(
            f"{where} belongs to another model: it holds {state.model}, this run has {model};"
            " resume with that configuration, or start a new run"
        )
    if dataset is not None and state.dataset_sha256 != dataset:
        raise CheckpointError(
            f"{where} belongs to another dataset: SHA-256 {state.dataset_sha256}, this run's is {dataset};"
            " resume with the same data, or start a new run"
        )


def _leftover(disk: Disk, path: str) -> list[DiskOp]:
    return _removal(disk, path) if disk.exists(path) else []


def _removal(disk: Disk, path: str, moved_to: str | None = None) -> list[DiskOp]:
    """Remove what stands at `path` now (and will stand at `moved_to`), contents first."""
    target = path if moved_to is None else moved_to
    try:
        names = disk.list(path)
    except NotADirectoryError:
        return [Remove(target)]
    inside = [op for name in names for op in _removal(disk, posixpath.join(path, name), posixpath.join(target, name))]
    return [*inside, Remove(target)]
