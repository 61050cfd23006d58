"""What each stage prints of the walking skeleton's functions, read and approved by people."""

from __future__ import annotations

from typing import Any

import pytest

import windfall
from tests.test_acceptance import CASES, tensors
from windfall import jit
from windfall.ir.graph_text import print_graph


@pytest.mark.parametrize("name", CASES)
@pytest.mark.usefixtures("capsys")
def test_stages(name: str, golden: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jit, "vector_bits", lambda: 256)  # kernels print the same everywhere
    function, shapes, extra = CASES[name]
    told = windfall.explain(function, strict=True)(*tensors(*shapes), *extra)
    parts = []
    for number, capture in enumerate(told.captures):
        parts += [f"== segment {number}: {capture.name}", print_graph(capture.graph), "-- guards"]
        parts += [str(guard) for guard in capture.guards]
        if capture.stopped is not None:
            parts += ["-- stopped", f"W{capture.stopped.number:04d} {capture.stopped.detail}"]
    for event in told.events:
        if event.kind == "rewrite":
            parts += [f"== source of {event.subject}", event.record.source]
    for note in told.kernels():
        parts += [f"== {note.name} ({note.kind})", note.text]
    golden(name, "\n".join(parts))
