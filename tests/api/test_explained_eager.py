"""What ran in eager is counted by what it is."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import windfall
from windfall import codegen
from windfall.errors import Unsupported
from windfall.events import LOGS, STAGES, TYPES, Eager, EventKind, EventLog, EventType
from windfall.reporting.explain import BEHIND_BREAKS, TEXTS


def test_names_of_logs_and_stages_are_declared_once() -> None:
    assert TEXTS.keys() == LOGS.keys()
    assert {kind for kind in LOGS.values() if kind is not None} <= set(TYPES.values())
    with pytest.raises(ValueError, match="declared twice"):
        EventType("another", logs=("graph",))
    assert STAGES[0] is EventKind.CAPTURE and EventKind.FALLBACK not in STAGES


def test_a_step_at_a_break() -> None:
    def prints(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        print(end="")
        return y + 1

    told = windfall.explain(prints)(torch.ones(3))
    assert told.eager == {BEHIND_BREAKS: 1}
    assert f"in eager so far: {BEHIND_BREAKS} (1)" in str(told)


def test_nothing_in_eager_is_nothing_to_tell() -> None:
    told = windfall.explain(lambda x: x * 2 + 1)(torch.ones(3))
    assert told.eager == {}
    assert "in eager so far" not in str(told)


def test_backward_op_by_op() -> None:
    def scaled(x: torch.Tensor) -> torch.Tensor:
        return x.exp() * 3

    compiled: Any = windfall.compile(scaled)
    x = torch.ones(3, requires_grad=True)
    (first,) = torch.autograd.grad(compiled(x).sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), x)
    assert torch.allclose(second, x.detach().exp() * 3)
    assert windfall.explanation(compiled).eager == {}  # gradients of gradients are compiled
    (rows,) = torch.autograd.grad(compiled(x), x, torch.eye(3), is_grads_batched=True)
    assert torch.allclose(rows, torch.diag(x.detach().exp() * 3))
    told = windfall.explanation(compiled)
    assert told.eager == {str(Eager.BACKWARD): 1}
    assert len(told.fallbacks) == 1


def test_a_graph_op_by_op(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise Unsupported(100, "a test")

    def twice(x: torch.Tensor) -> torch.Tensor:
        return x * 2 + x.relu()

    monkeypatch.setattr(codegen, "lower", refuse)
    compiled: Any = windfall.compile(twice)
    assert compiled(torch.ones(2)).tolist() == [3, 3]
    told = windfall.explanation(compiled)
    assert told.eager == {str(Eager.GRAPH): 1}
    assert told.fallbacks == ["W0100: a test"]


def test_a_call_that_is_not_compiled() -> None:
    compiled: Any = windfall.compile(lambda x: x + 1, backend="windfall")
    with windfall.set_stance("eager_on_recompile"):
        compiled(torch.ones(2))
        compiled(torch.ones(2))
    told = windfall.explanation(compiled)
    assert told.eager == {str(Eager.CALL): 2}


def test_what_stages_made_is_kept_when_asked_for() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return x.exp() + 1

    kept: Any = windfall.compile(f, options={"records": True})
    plain: Any = windfall.compile(f)
    for compiled in (kept, plain):
        compiled(torch.ones(3))
    events = {one.kind: one.record for one in windfall.explanation(kept).events}
    assert all(events[kind] is not None for kind in (EventKind.LOWER, EventKind.EMIT))
    events = {one.kind: one.record for one in windfall.explanation(plain).events}
    heavy = (EventKind.DIFFERENTIATE, EventKind.LOWER, EventKind.SCHEDULE, EventKind.EMIT)
    assert all(events[kind] is None for kind in heavy)
    # Whatever is told of them is the same.
    one, other = (windfall.explanation(each).to_dict() for each in (kept, plain))
    for told in (one, other):
        told.pop("seconds")
    assert one == other


def test_listeners_see_records_that_are_not_kept() -> None:
    seen = []
    log = EventLog((lambda event: seen.append(event.record),), records=False)
    with log.stage(EventKind.LOWER, "f") as event:
        event.record = "loops"
    assert seen == ["loops"] and event.record is None
