"""The fingerprint is stable on one machine, and depends on what it says it depends on."""

from __future__ import annotations

import subprocess
import sys
import warnings
from pathlib import Path

from training.config import ModelConfig
from training.numerics import fingerprint, model_fingerprint

SOFTMAX = ModelConfig("softmax", 8, 4)


def test_repeatable_in_one_process_and_silent() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert fingerprint() == fingerprint()
        assert len(fingerprint()) == 64
        assert model_fingerprint(SOFTMAX, 32) == model_fingerprint(SOFTMAX, 32)


def test_the_model_and_its_rows_are_part_of_it() -> None:
    configs = (SOFTMAX, ModelConfig("softmax", 8, 5), ModelConfig("mlp", 8, 4, 16))
    found = {model_fingerprint(config, rows) for config in configs for rows in (1, 32)}
    assert len(found) == 6
    assert fingerprint() not in found


def test_another_process_with_the_same_environment_agrees() -> None:
    code = "import sys; from training.numerics import fingerprint; sys.stdout.write(fingerprint())"
    root = Path(__file__).resolve().parents[2]
    out = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True)
    assert out.stdout == fingerprint()
