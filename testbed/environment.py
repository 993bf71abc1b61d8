"""What this machine and this installation are: versions, BLAS, commit. For the manifest, the verdict and `doctor`.

`limit_blas_threads` must run before numpy is imported (the number of threads is read at import and can change the
last digit of a sum), so this module imports nothing heavy at its top.
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

BLAS_THREAD_SETTINGS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")
_PACKAGES = ("gradstorm", "numpy", "grpcio", "protobuf", "autograd", "safetensors", "scikit-learn")


def limit_blas_threads() -> None:
    """One BLAS thread in this process and its children, unless the user's environment says otherwise."""
    for name in BLAS_THREAD_SETTINGS:
        os.environ.setdefault(name, "1")


def version() -> str:
    """Gradstorm's own version."""
    return installed("gradstorm") or "0+unknown"


def installed(package: str) -> str:
    """Version of an installed package, empty when it is not there."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


def versions() -> dict[str, str]:
    """Python, system and the packages that a result can depend on."""
    found = {"python": platform.python_version(), "system": platform.platform()}
    return found | {package: installed(package) for package in _PACKAGES}


def git_commit() -> str:
    """Commit of the checkout that this code runs from (with "+" when it has changes); empty outside of one."""
    root = Path(__file__).resolve().parents[1]
    if not (root / ".git").exists():
        return ""
    try:
        commit = _git(root, "rev-parse", "HEAD")
        return commit + ("+" if commit and _git(root, "status", "--porcelain", "--untracked-files=no") else "")
    except (OSError, subprocess.TimeoutExpired):
        return ""


def blas() -> list[dict[str, Any]]:
    """Each BLAS that numpy loaded: library, version, kernel architecture and number of threads."""
    import numpy  # noqa: F401 - loads the library that is asked about
    from threadpoolctl import threadpool_info

    libraries = [library for library in threadpool_info() if library.get("user_api") == "blas"]
    keys = ("internal_api", "version", "architecture", "num_threads")
    return [{key: library.get(key) for key in keys} for library in libraries]


def python_command() -> str:
    """The interpreter that runs this, for role processes and commands that are shown."""
    return sys.executable


def _git(root: Path, *arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, timeout=5, check=False)
    return done.stdout.strip() if done.returncode == 0 else ""
