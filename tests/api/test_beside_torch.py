"""What needs a process of its own: it loads torch's compiler or must not, or forks."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    "script", ["tests.api.alone", "tests.api.beside_torch", "tests.api.forking"]
)
def test_script(script: str) -> None:
    run = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", script], cwd=ROOT, capture_output=True, text=True
    )
    assert run.returncode == 0, run.stdout + run.stderr
