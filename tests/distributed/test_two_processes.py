"""Two processes that exchange gradients: one launch of `torchrun`, a test for each check."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.distributed.checks import CHECKS

ROOT = Path(__file__).resolve().parents[2]
PROCESSES = 2
WAYS = ("outside", "outside, engine", "inside", "inside, engine")


def _graphs(count: int) -> dict[str, int]:
    return dict.fromkeys(WAYS, count)


_OVERLAP = ["program", 2176, "program", 2176, "program", 2112, "program", 64]
# What each check answers: how many graphs were compiled, and how it ran.
ANSWERS: dict[str, Any] = {
    "ddp": _graphs(1),
    "ddp_small_buckets": _graphs(1),
    "ddp_views_of_buckets": _graphs(1),
    "ddp_static_graph": _graphs(1),
    "ddp_unused_parameters": _graphs(2),  # one for each half
    "ddp_accumulation": _graphs(1),
    "ddp_optimizer": _graphs(1),
    "ddp_buffers": _graphs(1),
    "ddp_break_inside": _graphs(2),
    # Of eager four buckets too, which it fills in the order in which gradients come.
    "ddp_overlap": {"eager": [2112, 2176, 2176, 64], "outside": _OVERLAP, "inside": _OVERLAP},
    "ranks_that_compile_different_things": True,
    "fsdp": {
        "blocks": [1, 1, 1],
        "blocks, engine": [1, 1, 1],
        "whole": [3],
        "whole, engine": [3],
    },
    "collectives_are_torchs": 3,
}


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What each process wrote."""
    folder = tmp_path_factory.mktemp("answers")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += ["--nproc-per-node", str(PROCESSES), "-m", "tests.distributed.worker", str(folder)]
    threads = {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}
    environment = {**os.environ, **threads, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=900, check=False
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(PROCESSES)]


def test_every_check_has_an_answer() -> None:
    assert list(CHECKS) == list(ANSWERS)


@pytest.mark.parametrize("name", CHECKS)
def test_check(name: str, answers: list[dict[str, Any]]) -> None:
    for rank, found in enumerate(answers):
        assert "error" not in found[name], f"rank {rank}: {found[name]['error']}"
        assert found[name]["answer"] == ANSWERS[name], f"rank {rank}"
