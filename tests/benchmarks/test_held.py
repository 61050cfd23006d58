"""What compiling leaves in memory is measured in a process of its own, with any tree's windfall."""

from __future__ import annotations

from pathlib import Path

from benchmarks import held


def test_a_process_says_what_it_holds(tmp_path: Path) -> None:
    """That of the tree is measured: one that compiles nothing leaves next to nothing."""
    told = held.measure(held.HERE, "tiny bert")
    assert told.keys() == {"resident", "in use", "blocks of Python", "objects"}
    assert 1000 < told["objects"] < told["blocks of Python"]

    room = tmp_path / "windfall"
    room.mkdir()
    (room / "__init__.py").write_text("def compile(f):\n    return f\n")
    idle = held.measure(tmp_path, "tiny bert")
    assert idle["objects"] < 1000 < told["objects"]
