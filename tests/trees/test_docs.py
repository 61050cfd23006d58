"""The page of graph trees names every reason."""

from __future__ import annotations

from pathlib import Path

from windfall.runtime.trees import Skip

PAGE = Path(__file__).resolve().parents[2] / "docs" / "graph-trees.md"


def test_every_reason_is_in_the_page() -> None:
    text = PAGE.read_text()
    assert [skip.name for skip in Skip if f"| {skip.reason} | {skip.remedy} |" not in text] == []
