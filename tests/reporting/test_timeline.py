"""The trace for Perfetto: its form, and that spans are what ran."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import torch

import windfall

X = torch.linspace(-2, 2, 12).reshape(3, 4)


def program(x: torch.Tensor) -> torch.Tensor:
    y = x.sin()
    print(end="")
    return (y * 2).cos()


def trace(tmp_path: Path, *compiled: Any) -> list[dict[str, Any]]:
    path = windfall.timeline(tmp_path / "trace.json", *compiled)
    found = json.loads(Path(path).read_text())
    assert found["displayTimeUnit"] == "ms"
    rows: list[dict[str, Any]] = found["traceEvents"]
    return rows


def test_stages_breaks_and_runs(tmp_path: Path) -> None:
    compiled = windfall.compile(program, options={"runs": True})
    for rows in (3, 3, 5):
        compiled(torch.randn(rows, 4))
    rows_ = trace(tmp_path, compiled)
    spans = [one for one in rows_ if one["ph"] == "X"]
    assert all(one["ts"] >= 0 and one["dur"] >= 0 for one in spans)
    names = [one["name"] for one in spans]
    assert names.count("run") == 3
    assert {"capture", "lower", "emit", "build", "enter"} <= set(names)
    marks = {one["name"] for one in rows_ if one["ph"] == "i"}
    assert "break W0001" in marks and "recompile" in marks
    # What was compiled stands inside of the call that asked for it.
    first = next(one for one in spans if one["name"] == "run")
    inside = [one for one in spans if one["name"] == "capture"][:2]
    for one in inside:
        assert first["ts"] <= one["ts"]
        assert one["ts"] + one["dur"] <= first["ts"] + first["dur"] + 1


def test_without_being_asked_calls_are_not_timed(tmp_path: Path) -> None:
    compiled = windfall.compile(program)
    compiled(X)
    assert "run" not in {one["name"] for one in trace(tmp_path, compiled)}


def test_threads_have_tracks_of_their_own(tmp_path: Path) -> None:
    compiled = windfall.compile(lambda x: x.sin() + 1, options={"runs": True})
    compiled(X)
    other = threading.Thread(target=lambda: compiled(X))
    other.start()
    other.join()
    rows = trace(tmp_path, compiled)
    assert len({one["tid"] for one in rows if one["name"] == "run"}) == 2
    named = [one["args"]["name"] for one in rows if one["name"] == "thread_name"]
    assert named == ["thread 0", "thread 1"]


def test_spans_of_a_thread_nest_or_stand_apart(tmp_path: Path) -> None:
    compiled = windfall.compile(torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU()))
    compiled(X).sum().backward()
    spans = [one for one in trace(tmp_path, compiled) if one["ph"] == "X"]
    for one in spans:
        for other in spans:
            start, end = one["ts"], one["ts"] + one["dur"]
            begins, ends = other["ts"], other["ts"] + other["dur"]
            assert ends <= start + 1 or end <= begins + 1 or (begins >= start - 1 and ends <= end + 1) or (start >= begins - 1 and end <= ends + 1)  # fmt: skip  # noqa: E501


def test_runs_do_not_change_what_the_object_is() -> None:
    model = torch.nn.Linear(4, 2)
    compiled = windfall.compile(model, options={"runs": True})
    assert torch.equal(compiled(X), windfall.compile(model)(X))
    assert list(compiled.state_dict()) == list(model.state_dict())
    assert windfall.explanation(compiled).graphs
    assert windfall.compile(compiled, options={"runs": True}) is compiled
