"""`docs/autograd-checklist.md` names tests that exist, for every row that it claims."""

from __future__ import annotations

import pytest

from tests.api.test_checklist import NAMED, ROOT, functions

TEXT = (ROOT / "docs" / "autograd-checklist.md").read_text(encoding="utf-8")
ROWS = (
    "Flattening", "Metadata pass", "Functionalization", "Duplicates", "Aliased inputs",
    "Write-back", "Output aliases", "Joint graph", "Never-grad inputs", "Default partitioner",
    "Min-cut", "Memory budget", "Selective checkpointing", "Saved order", "RNG", "Autocast", "HOPs",
    "autograd.Function", "Stages, lazy backward", "Calling convention", "Double backward",
    "Effects", "Subclasses", "Saved-tensor hooks", "Hooks inside", "Cache", "Later passes",
    "Tangents", "Passes inside", "Inference", "Dynamic shapes", "Wrapper order",
    *(str(number) for number in range(1, 13)),
    *(f"defect {number}" for number in range(1, 11)),
    *(f"test {number}" for number in range(1, 41)),
)  # fmt: skip


def test_every_test_that_is_named_exists() -> None:
    found = NAMED.findall(TEXT)
    assert len(found) > 120
    assert [(path, name) for path, name in found if name not in functions(path)] == []


@pytest.mark.parametrize("row", ROWS)
def test_every_row_has_a_test(row: str) -> None:
    lines = [line for line in TEXT.splitlines() if line.startswith(f"| {row} |")]
    assert len(lines) == 1
    assert NAMED.findall(lines[0])


def test_how_the_forty_run() -> None:
    """At least 38 of the 40 natively; the others say what they do."""
    lines = [line.split(" | ") for line in TEXT.splitlines() if line.startswith("| test ")]
    assert len(lines) == 40
    assert sum(line[2].startswith("native") for line in lines) >= 38
