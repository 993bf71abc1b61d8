"""What is printed of a standing testbed: logs by role."""

from __future__ import annotations

from pathlib import Path

import pytest

from testbed.hand.status_lines import log_lines
from training.errors import ConfigurationError


def test_logs_of_one_role_and_of_nobody(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    for name in ("worker-1.1.log", "worker-1.2.log", "driver.1.log"):
        (tmp_path / "logs" / name).write_text(f"a\nb\n{name}\n")
    assert list(log_lines(tmp_path, "worker-1", 2)) == [
        "== worker-1.1.log", "b", "worker-1.1.log", "== worker-1.2.log", "b", "worker-1.2.log",
    ]  # fmt: skip
    with pytest.raises(ConfigurationError, match="no log of 'wroker'; there are those of driver, worker-1"):
        list(log_lines(tmp_path, "wroker", 2))
