"""PyTorch as a peer: our own scripts in `peers/`, run by a Python that has torch. It is no dependency of ours."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from testbed.engines.base import EngineError

PYTHON_VARIABLE = "GRADSTORM_TORCH_PYTHON"
NOT_FOUND = "peer not found, install python3-torch (or name a Python that has torch in GRADSTORM_TORCH_PYTHON)"
_DEBIAN_PYTHON = "/usr/bin/python3"
_SCRIPTS = Path(__file__).with_name("peers")
_ASK = (
    "import torch, torch.distributed as d; assert d.is_available(); print(torch.__version__);"
    "print(*sorted({l.split()[-1] for l in open('/proc/self/maps') if 'blas' in l}))"
)


@dataclass(frozen=True, slots=True)
class TorchPeer:
    """A Python that has torch with gloo."""

    python: str
    version: str
    blas: str = ""  # the library that it multiplies with, as far as is known

    @property
    def slow_blas(self) -> str:
        """A warning when it multiplies with the reference BLAS, which nobody would train with; else empty."""
        slow = "blas/libblas.so" in self.blas
        return "torch has the reference BLAS: install libopenblas0-pthread for a fair comparison" if slow else ""

    def run(self, script: str, *arguments: str, timeout_s: float) -> list[dict[str, Any]]:
        """Run a script of `peers/`; the JSON lines that it printed. Raises EngineError with its last words."""
        command = [self.python, str(_SCRIPTS / script), *arguments]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=timeout_s, check=False, env=_environment(os.environ)
            )
        except subprocess.TimeoutExpired:
            raise EngineError(f"the peer {script} did not end within {timeout_s:g} s") from None
        if done.returncode != 0:
            raise EngineError(f"the peer {script} ended with code {done.returncode}:\n{done.stderr[-1000:].strip()}")
        return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def find_torch(environment: Mapping[str, str] = os.environ) -> TorchPeer | None:
    """The Python that the environment names, else Debian's, if it has torch."""
    python = environment.get(PYTHON_VARIABLE) or _DEBIAN_PYTHON
    try:
        done = subprocess.run(
            [python, "-c", _ASK], capture_output=True, text=True, timeout=120, check=False,
            env=_environment(environment),
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return None
    version, _, blas = done.stdout.partition("\n")
    return TorchPeer(python, version.strip(), blas.strip()) if done.returncode == 0 and version.strip() else None


def _environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Ours without what would lead another Python to our packages; one thread, as our roles have."""
    kept = {name: value for name, value in environment.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
    return kept | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
