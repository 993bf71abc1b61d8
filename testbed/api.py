"""Everything that the command line does with runs, as functions. A user's own pytest can drive it:

    result = testbed.run("kill-worker", engine="local", strategy="ring")
    assert result.passed, result.document

`run` blocks until the run is over and leaves a run folder. It raises GradstormError for what cannot be (nothing was
started, nothing is left) and EngineError when the machine would not; a violated or unknown verdict is a result.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from os import PathLike, environ
from pathlib import Path
from typing import Any

from chaos.scenario import Scenario
from testbed.engines.base import EngineError, ProgressSink, RunPlan, Silent
from testbed.environment import BLAS_THREAD_SETTINGS, blas, git_commit, versions
from testbed.exit_codes import ExitCode
from testbed.final_state import own_fingerprint
from testbed.lan.settings import LanSettings
from testbed.planning import Prepared, RunRequest, prepare, prepare_replay
from testbed.report_page.page import write_page
from testbed.results import RunResult, compose, judged_again
from testbed.run_folder import RunFolder, RunFolderError, find_run, process_marker
from training.errors import GradstormError


def run(  # noqa: PLR0913 - one argument for each option of the command line
    scenario: str | Scenario,
    engine: str = "sim",
    *,
    strategy: str | None = None,
    workers: int | None = None,
    seed: int | None = None,
    data: str | None = None,
    model: str | None = None,
    steps: int | None = None,
    batch: int | None = None,
    lr: float | None = None,
    text: str | None = None,
    resume: str | None = None,
    plant: str | Sequence[str] = (),
    out: str | PathLike[str] | None = None,
    lan: LanSettings | None = None,
    progress: ProgressSink | None = None,
) -> RunResult:
    """Run a scenario (a name, a .yaml file, or an object) and return its verdict; see the module's docstring."""
    request = RunRequest(
        scenario=scenario,
        engine=engine,
        strategy=strategy,
        workers=workers,
        seed=seed,
        data=data,
        model=model,
        steps=steps,
        batch=batch,
        lr=lr,
        text=text,
        resume=resume,
        plants=(plant,) if isinstance(plant, str) else tuple(plant),
        out=Path(out) if out is not None else None,
        lan=lan,
    )
    return carry_out(prepare(request), progress)


def replay(run_name: str, *, out: str | PathLike[str] | None = None, progress: ProgressSink | None = None) -> RunResult:
    """Run what an earlier run's manifest says again, in the simulator, with the same seed, schedule and plants."""
    return carry_out(prepare_replay(find_run(run_name), Path(out) if out is not None else None), progress)


def verify(run_name: str) -> RunResult:
    """Judge a saved run again, from its history alone. `document["saved_verdict"]` is the verdict given then."""
    from services.shell.rooted_disk import RootedDisk
    from services.verify import verify as judge

    folder = find_run(run_name)
    with one_blas_thread():
        return judged_again(folder, judge(RootedDisk(str(folder.path))))


def carry_out(prepared: Prepared, progress: ProgressSink | None = None) -> RunResult:
    """Make the folder, let the engine run, write the verdict and its page."""
    with one_blas_thread():
        folder = RunFolder.create(prepared.folder_path)
        try:
            plan = _with_own_resume(prepared.plan, folder)
            _begin_folder(folder, prepared, plan)
            outcome = prepared.engine.run(plan, folder, progress or Silent())
        except (GradstormError, KeyboardInterrupt):  # after an error of our own everything stays
            folder.remove_unless_begun()
            raise
        result = compose(plan, prepared.engine.name, folder, outcome)
        _write(folder, result, progress or Silent())
        return result


def _begin_folder(folder: RunFolder, prepared: Prepared, plan: RunPlan) -> None:
    try:
        folder.dataset_path.write_bytes(plan.data)
        folder.write_manifest(_manifest(prepared, plan))
    except (RunFolderError, OSError) as error:
        raise EngineError(f"cannot begin the run in {folder.path}: {error}; nothing was started") from error


def _write(folder: RunFolder, result: RunResult, progress: ProgressSink) -> None:
    """The verdict and its page. A run that a full disk has stopped says so, whether or not it can be written down."""
    try:
        folder.write_verdict(result.document)
        write_page(folder)
    except (RunFolderError, OSError) as error:
        if result.exit_code is not ExitCode.STOPPED:
            raise EngineError(str(error)) from error
        progress.note(str(error))


@contextlib.contextmanager
def one_blas_thread() -> Iterator[None]:
    """Limit BLAS here too: numpy may have been loaded before Gradstorm. The user's environment wins."""
    if any(environ.get(name, "1") != "1" for name in BLAS_THREAD_SETTINGS):
        yield
        return
    import threadpoolctl

    with threadpoolctl.threadpool_limits(1, user_api="blas"):
        yield


def _with_own_resume(plan: RunPlan, folder: RunFolder) -> RunPlan:
    """Keep the checkpoint that the run goes on from in its own folder: the earlier run may be pruned."""
    if plan.resume is None:
        return plan
    kept = folder.resumed_from / plan.resume.name
    shutil.copytree(plan.resume.folder, kept)
    return replace(plan, resume=replace(plan.resume, folder=str(kept)))


def _manifest(prepared: Prepared, plan: RunPlan) -> dict[str, Any]:
    config, scenario = plan.config, plan.scenario
    resume = plan.resume
    return {
        "run_id": config.run_id,
        "started_at": datetime.now(UTC).isoformat(timespec="milliseconds"),
        "engine": prepared.engine.name,
        "scenario": scenario.name,
        "strategy": config.strategy,
        "seed": config.seed,
        "plants": list(plan.plants),
        "resume": None if resume is None else {"run_id": resume.run_id, "name": resume.name},
        "config": asdict(config),
        "scenario_document": scenario.model_dump(mode="json"),
        "dataset": {"name": config.dataset_name, "sha256": config.dataset_sha256, "file": "dataset.safetensors"},
        "versions": versions(),
        "commit": git_commit(),
        "numerics": own_fingerprint(config),
        "blas": blas(),
        "driver": process_marker(),
    }
