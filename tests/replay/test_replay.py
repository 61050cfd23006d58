"""The tool that shows what a refactor changed: it sees changes, and nothing where there is none."""

from __future__ import annotations

import shutil
from pathlib import Path

import torch

from tests.replay.__main__ import ROOT, record_all
from tests.replay.corpus import corpus
from tests.replay.described import described
from tests.replay.differences import differences, read, summary

ONE = {"op a": [("graph", "f", "x = 1\ny = 2\n"), ("answer", "op a", "f32 1\n")]}


def test_equal_recordings_do_not_differ() -> None:
    assert differences(ONE, ONE) == []
    assert summary([], 1, 10) == "1 items, no difference"


def test_a_line_and_a_lacking_item_are_differences() -> None:
    other = {"op a": [("graph", "f", "x = 1\ny = 3\n"), ("answer", "op a", "f32 1\n")]}
    (found,) = differences(ONE, other)
    assert (found.item, found.log, found.changes) == ("op a", "graph", ("-y = 2", "+y = 3"))
    assert [one.log for one in differences(ONE, {})] == ["item"]
    assert "graph 1" in summary([found], 1, 10)


def test_agreed_names_do_not_differ() -> None:
    other = {"op a": [("graph", "f", "x = 1\nz = 2\n"), ("answer", "op a", "f32 1\n")]}
    assert differences(ONE, other)
    assert differences(ONE, other, [("^[yz] =", "result =")]) == []


def test_answers_are_compared_by_their_bits() -> None:
    x = torch.arange(6.0)
    assert described(x) == described(x.clone())
    assert described(x) != described(x.nextafter(torch.tensor(9.0)))
    assert described([x, {"a": 1}]) == described([x.clone(), {"a": 1}])


def test_the_corpus_has_programs_ops_and_models() -> None:
    kinds = {item.name.split(" ")[0] for item in corpus()}
    assert kinds == {"program", "op", "model"}


def test_a_change_of_the_compiler_is_seen(tmp_path: Path) -> None:
    """One tree as it is, one in which the log's word for a graph is another."""
    changed = tmp_path / "changed"
    shutil.copytree(ROOT / "windfall", changed / "windfall")
    file = changed / "windfall/ir/graph_text.py"
    file.write_text(file.read_text().replace('f"graph(', 'f"function('))
    trees = {
        tmp_path / "one.jsonl": ROOT,
        tmp_path / "other.jsonl": ROOT,
        tmp_path / "changed.jsonl": changed,
    }
    record_all(trees, "op aminmax")
    one, other, third = map(read, trees)
    assert one.keys() == {"op aminmax"}
    assert {log for log, _, _ in one["op aminmax"]} >= {"graph", "guards", "llvm", "answer"}
    assert differences(one, other) == []
    found = differences(one, third)
    assert found
    assert {line.split("(")[0] for line in found[0].changes} == {"-graph", "+function"}
