"""A factory of role processes for a test: one gradient of every worker takes as long as the environment says.

For all that time the worker's thread stands in the computation and says nothing; everything else is production's.
"""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass
from typing import Any, ClassVar

from services.host import Role
from services.jobs import Gradient, GradientJob
from services.roles import worker
from services.shell.options import ShellOptions
from testbed.engines import local_cast

SECONDS_VARIABLE = "GRADSTORM_TEST_SILENT_S"
SILENT_STEP = 2  # the gradient that takes so long, counted from 1


@dataclass(frozen=True, slots=True, eq=False)
class SilentJob(GradientJob):
    """As `GradientJob`, late once."""

    inline: ClassVar[bool] = False
    calls: ClassVar[list[None]] = []

    def __call__(self) -> Gradient:
        self.calls.append(None)
        if len(self.calls) == SILENT_STEP:
            threading.Event().wait(float(os.environ[SECONDS_VARIABLE]))
        return GradientJob(self.model, self.dataset, self.parameters, self.sample_ids)()


def make_role(options: ShellOptions) -> Role:
    """As the engine's own factory."""
    in_use: Any = worker
    in_use.GradientJob = SilentJob
    return local_cast.make_role(options)
