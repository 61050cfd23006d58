"""`docs/compiled-autograd.md` names tests that exist, for every row and every hard test."""

from __future__ import annotations

import re

import pytest

from tests.api.test_checklist import ROOT, functions
from tests.distributed.checks import CHECKS
from tests.engine.scenarios import SCENARIOS

TEXT = (ROOT / "docs" / "compiled-autograd.md").read_text(encoding="utf-8")
NAMED = re.compile(r"`(tests/[\w/]+\.py)::(\w+)(?:\[(\w+)\])?`")
ROWS = (
    "Take-over", "Key of a node", "Prefix cache", "Lifting of tensors", "Lifting of scalars",
    "Sizes", "Saved values stay", "State of nodes", "Compiler apart", "First use",
    "Fit to the edge", "Hooks", "retain_grad", "Unpack hooks", "Python Functions",
    "Our own regions", "Leaves", "Callbacks", "Thread's modes", "Reentrancy", "Threads",
    "Dispatch modes", "Current node, profiler", "Refusal", "Misses say why", "Errors",
    *(str(number) for number in range(1, 31)),
)  # fmt: skip
CASES = {
    "tests/engine/test_scenarios.py": SCENARIOS,
    "tests/distributed/test_two_processes.py": CHECKS,
}


def test_every_test_that_is_named_exists() -> None:
    for path, name, case in NAMED.findall(TEXT):
        assert name in functions(path), (path, name)
        assert not case or case in CASES[path], case


@pytest.mark.parametrize("row", ROWS)
def test_every_row_has_a_test(row: str) -> None:
    lines = [line for line in TEXT.splitlines() if line.startswith(f"| {row} |")]
    assert len(lines) == 1
    assert NAMED.findall(lines[0])
