"""The role's log: one JSON object per line on standard error, which whoever starts the process puts into a file."""

from __future__ import annotations

import sys
from typing import Any

import structlog

from services.shell.options import ShellOptions


def role_log(options: ShellOptions) -> Any:
    """A logger bound to run, role and launch."""
    return structlog.wrap_logger(
        structlog.PrintLogger(sys.stderr),
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(sort_keys=True, default=str),
        ],
        wrapper_class=structlog.BoundLogger,
    ).bind(run=options.run_id, role=options.role, launch=options.launch)
