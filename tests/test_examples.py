"""The examples run, and do what they say."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).resolve().parents[1] / "examples"
OLDER = {"__init__", "demo", "language", "models", "resnet"}  # run elsewhere
# What each answers, and what of it tells that it works.
CHECKS: dict[str, Any] = {
    "gpt": lambda losses: losses[-1] < 0.8 * losses[0],
    "images": lambda right: right > 0.7,
    "generate": lambda tokens: len(tokens) == 5 + 8,
    "gradient_penalty": lambda penalties: penalties[-1] < 0.5 * penalties[0],
    "pinn": lambda losses: losses[-1] < 0.3 * losses[0],
    "lstm": lambda losses: min(losses[-3:]) < losses[0],
    "reinforce": lambda sure: sure > 0.6,
    "serve": lambda entries: entries <= 2,
}


def test_every_example_is_run() -> None:
    found = {path.stem for path in FOLDER.glob("*.py")} - OLDER
    assert found == {*CHECKS, "ddp"}


@pytest.mark.parametrize("name", CHECKS)
def test_it_runs(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    answer = importlib.import_module(f"examples.{name}").main()
    assert CHECKS[name](answer), answer
    assert capsys.readouterr().out


def test_with_torchrun() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2",
         str(FOLDER / "ddp.py")],
        capture_output=True, text=True, timeout=300, cwd=FOLDER.parent,
        env={"PYTHONPATH": str(FOLDER.parent), "WINDFALL_CACHE": "off", "OMP_NUM_THREADS": "1",
             "PATH": "/usr/bin:/bin"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    assert "2 processes, one model" in done.stdout
