"""Names of a graph's inputs are the same in every process: no address stands in them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from windfall.events import EventLog
from windfall.options import Options
from windfall.pipeline import Compiler


class Key:
    """An object that tables are kept by."""


def _tables(make: Callable[[], Any]) -> Callable[..., Any]:
    first, second = make(), make()
    state = {first: torch.ones(3), second: torch.zeros(3)}

    def program(x: torch.Tensor) -> torch.Tensor:
        return x + state[first] * state[second]

    return program


KEYS: dict[str, Callable[[], Any]] = {
    "parameters": lambda: torch.nn.Parameter(torch.ones(2)),
    "objects": Key,
    "classes": lambda: type("Made", (), {}),
    "functions": lambda: lambda: None,
    "modules": lambda: torch.nn.Linear(1, 1),
}

BREAKING = ("objects", "modules")  # an object as a key is looked up natively


@pytest.mark.parametrize("kind", KEYS)
def test_inputs_in_tables_by_objects(kind: str) -> None:
    log = EventLog()
    program = _tables(KEYS[kind])
    compiled = Compiler(Options.checked(strict=True, records=True), log).compiled(program)
    x = torch.ones(3)
    assert torch.equal(compiled(x), program(x))
    captures = [event.record for event in log.snapshot("capture")]
    for names in [[one.name for one in capture.inputs] for capture in captures]:
        assert len(names) == len(set(names))
        assert not [one for one in names if "0x" in one]
    assert kind in BREAKING or len(captures[0].inputs) == 3
