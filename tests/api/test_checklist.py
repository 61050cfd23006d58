"""`docs/checklist.md` names tests that exist, for every row and every complaint."""

from __future__ import annotations

import ast
import functools
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "docs" / "checklist.md").read_text(encoding="utf-8")
NAMED = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")
ROWS = (
    "Entry", "Backend", "Scalars", "Modules", "Guards, ambient", "Guards, values", "Tensor guard",
    "Guard eval", "fullgraph/error_on_graph_break", "Recompile", "Automatic dynamic",
    "Dynamic control", "0/1, duck", "Disable family", "Stance", "Queries", "Logs", "Inspection",
    "Threads", "Memory", *(str(number) for number in range(1, 16)),
)  # fmt: skip


@functools.cache
def functions(path: str) -> frozenset[str]:
    """The names of the tests in a file."""
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    return frozenset(node.name for node in tree.body if isinstance(node, ast.FunctionDef))


def test_every_test_that_is_named_exists() -> None:
    found = NAMED.findall(TEXT)
    assert len(found) > 80
    assert [(path, name) for path, name in found if name not in functions(path)] == []


@pytest.mark.parametrize("row", ROWS)
def test_every_row_has_a_test(row: str) -> None:
    lines = [line for line in TEXT.splitlines() if line.startswith(f"| {row} |")]
    assert len(lines) == 1
    assert NAMED.findall(lines[0])
