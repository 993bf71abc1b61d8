"""What the driver of a run writes down for itself: one JSON document per line."""

from __future__ import annotations

from typing import Any

import structlog


def log_to(file: Any) -> Any:
    """A logger that writes to that open text file."""
    return structlog.wrap_logger(
        structlog.WriteLogger(file),
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(sort_keys=True, default=str),
        ],
        wrapper_class=structlog.BoundLogger,
    )
