"""The front end alone: graphs run as `torch.fx.GraphModule`s, guards by the reference evaluator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch.fx

from windfall.events import EventLog
from windfall.frontend import Compiled, Facts, State, capture, rewrite
from windfall.ir.guard import first_failure
from windfall.ir.stages import MISS, Capture, Entry, Segment
from windfall.options import Options


class EagerCompiled(Compiled):
    """A compiled object whose graphs run op by op; remembers what was captured."""

    def __init__(self, target: Callable[..., Any], strict: bool = True) -> None:
        super().__init__(target, self.compile_one, EventLog(), Options(strict=strict))
        self.captures: list[Capture] = []
        self.segments: list[Segment] = []

    def compile_one(self, state: State, facts: Facts) -> Entry:
        captured = capture(state, facts)
        captured.graph.lint()
        segment = rewrite(captured)
        self.captures.append(captured)
        self.segments.append(segment)
        return enter(segment)

    @property
    def graphs(self) -> list[Capture]:
        """Captures that hold an operation."""
        return [
            one
            for one in self.captures
            if any(node.op.startswith("call") for node in one.graph.nodes)
        ]

    @property
    def breaks(self) -> list[Any]:
        return [one.stopped for one in self.captures if one.stopped is not None]


def enter(segment: Segment) -> Entry:
    """An entry: guards first, then the generated function."""
    module = torch.fx.GraphModule(torch.nn.Module(), segment.capture.graph)
    function = segment.load(module.forward)
    guards = segment.capture.guards

    def call(*slots: Any) -> Any:
        if first_failure(guards, slots) is not None:
            return MISS
        return function(*slots)

    return Entry(call, segment, native=False)


def same(actual: Any, expected: Any) -> bool:
    """Equal in structure, types and every bit of the tensors."""
    if type(actual) is not type(expected):
        return False
    if isinstance(actual, torch.Tensor):
        return (
            actual.dtype == expected.dtype
            and actual.stride() == expected.stride()
            and actual.requires_grad == expected.requires_grad
            and torch.equal(actual.isnan(), expected.isnan())
            and torch.equal(actual.nan_to_num(), expected.nan_to_num())
        )
    if isinstance(actual, tuple | list):
        return len(actual) == len(expected) and all(map(same, actual, expected))
    if isinstance(actual, dict):
        return list(actual) == list(expected) and all(
            same(actual[key], expected[key]) for key in actual
        )
    if type(actual).__eq__ is object.__eq__ and hasattr(actual, "__dict__"):
        return same(vars(actual), vars(expected))
    return bool(actual == expected)


def compile_eager(target: Callable[..., Any]) -> EagerCompiled:
    """`target`, compiled with graphs that run eagerly."""
    return EagerCompiled(target)


def check(function: Any, *arguments: Any, breaks: int | None = 0) -> Any:
    """Two calls as in eager, none of them in eager, with this many breaks (None: any number)."""
    compiled = compile_eager(function)
    for _ in range(2):
        assert same(compiled(*arguments), function(*arguments))
    assert compiled.log.snapshot("fallback") == ()
    if breaks is not None:
        assert len(compiled.breaks) == breaks, compiled.breaks
    return compiled
