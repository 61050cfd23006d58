"""Sizes and numbers that vary: what is recorded, what is compiled, and that it is right."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch

import windfall
from tests.engine.sweep import OpByOp
from windfall import torch_abi
from windfall.engine import CompiledSegment, Engine, VaryingSegment
from windfall.engine.engine import CONFIRMED, RECORDED, REPLAYED
from windfall.events import EventKind, EventLog
from windfall.reporting.explain import Explanation, explanation_of


class Counting(OpByOp):
    """Notes what it compiles."""

    def __init__(self) -> None:
        self.one_size: list[str] = []
        self.any_size: list[str] = []

    def __call__(self, graph: torch.fx.Graph, types: Sequence[Any], name: str) -> CompiledSegment:
        self.one_size.append(name)
        return super().__call__(graph, types, name)

    def varying(
        self, graph: torch.fx.Graph, types: Sequence[Any], name: str
    ) -> VaryingSegment | None:
        self.any_size.append(name)
        return VaryingSegment(super().__call__(graph, types, name), ())


def _pass(w: torch.Tensor, x: torch.Tensor, scale: float = 2.0) -> torch.Tensor:
    w.grad = None
    ((x @ w).tanh().mean() * scale).backward()
    assert w.grad is not None
    return w.grad


def _assert_right(w: torch.Tensor, x: torch.Tensor, scale: float = 2.0) -> None:
    """Under the engine, and under torch's."""
    found = _pass(w, x, scale).clone()
    wanted = w.detach().clone().requires_grad_()
    (expected,) = torch_abi.run_by_real_engine(
        ((x @ wanted).tanh().mean() * scale,), (torch.tensor(1.0),), False, inputs=(wanted,)
    )
    assert torch.allclose(found, expected, atol=1e-6)


def _builds(told: Explanation) -> list[str]:
    return [one.subject for one in told.events if one.kind is EventKind.BUILD]


def test_batches_are_recorded_twice_and_compiled_once() -> None:
    w = torch.randn(4, 2, requires_grad=True)
    with windfall.compiled_autograd() as passes:
        for rows in (3, 4, 5, 6, 7, 8, 5, 5, 5):
            _assert_right(w, torch.randn(rows, 4))
    told = passes.explanation()
    assert told.passes == {RECORDED: 2, CONFIRMED: 1, REPLAYED: 6}
    assert len(_builds(told)) == 1 and "any size" in _builds(told)[0]
    assert not told.fallbacks


def test_a_schedule_compiles_once() -> None:
    w, x = torch.randn(4, 2, requires_grad=True), torch.randn(3, 4)
    with windfall.compiled_autograd() as passes:
        for step in range(8):
            _assert_right(w, x, 1.0 / (step + 3))
    told = passes.explanation()
    assert told.passes == {RECORDED: 2, CONFIRMED: 1, REPLAYED: 5}
    assert len(_builds(told)) == 1 and not told.fallbacks


def test_graphs_are_compiled_when_first_replayed() -> None:
    compiler = Counting()
    engine = Engine(compiler, EventLog())
    w, x = torch.randn(4, 2, requires_grad=True), torch.randn(3, 4)
    counts = []
    with torch_abi.taken_over(engine):
        for _ in range(3):
            _pass(w, x)
            counts.append(len(compiler.one_size))
        for rows in (5, 6, 7, 8):
            _pass(w, torch.randn(rows, 4))
            counts.append(len(compiler.any_size))
    assert counts == [0, 1, 1, 0, 0, 1, 1] and len(compiler.one_size) == 1


def test_a_program_that_a_third_size_refutes_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each pass is right, and recorded."""
    from windfall.engine import vary

    real = vary.VaryingProgram.at

    def wrong(self: Any, values: Any) -> Any:
        return real(self, {name: value + 1 for name, value in values.items()})

    monkeypatch.setattr(vary.VaryingProgram, "at", wrong)
    w = torch.randn(4, 2, requires_grad=True)
    with windfall.compiled_autograd() as passes:
        for rows in (3, 4, 5, 6, 7):
            _assert_right(w, torch.randn(rows, 4))
    told = passes.explanation()
    assert told.passes == {RECORDED: 5}
    assert "wrong for a third size" in told.pass_reasons[-1]


def test_misses_say_why_sizes_do_not_vary() -> None:
    with windfall.compiled_autograd() as passes:
        for rows in (4, 5, 6):
            x = torch.randn(rows, 3, requires_grad=True)
            torch.linalg.qr(x)[1].pow(2).sum().backward()
    told = passes.explanation()
    assert told.passes == {RECORDED: 3}
    assert "sizes do not vary: sizes of LinalgQrBackward0" in told.pass_reasons[1]


def test_torchs_engine_runs_what_was_recorded() -> None:
    """A graph that was recorded, confirmed or replayed is as it was: nothing of it was swapped."""
    w = torch.randn(4, 2, requires_grad=True)
    for rows in (3, 3, 4, 5, 6):
        loss = (torch.randn(rows, 4) @ w).exp().mean()
        (expected,) = torch.autograd.grad(loss, w, retain_graph=True)
        with windfall.compiled_autograd():
            (found,) = torch.autograd.grad(loss, w, retain_graph=True)
        (after,) = torch.autograd.grad(loss, w)
        assert torch.allclose(found, expected) and torch.equal(after, expected)
        with pytest.raises(RuntimeError, match="second time"):
            torch.autograd.grad(loss, w)


def test_regions_of_ours_vary_too() -> None:
    run = windfall.compile(lambda x, w: torch.sin(x @ w).sum(), dynamic=True)
    w = torch.randn(4, 4, requires_grad=True)
    with windfall.compiled_autograd() as passes:
        for rows in (3, 5, 6, 7, 9):
            x = torch.randn(rows, 4)
            w.grad = None
            run(x, w).backward()
            expected = x.t() @ (x @ w).cos()
            assert torch.allclose(w.grad, expected, atol=1e-4)  # type: ignore[arg-type]
    assert passes.explanation().passes == {RECORDED: 2, CONFIRMED: 1, REPLAYED: 2}


def test_an_engine_tells_what_it_ran() -> None:
    log = EventLog()
    engine = Engine(OpByOp(), log)
    w = torch.randn(4, 2, requires_grad=True)
    with torch_abi.taken_over(engine):
        for rows in (3, 4, 5, 6):
            _pass(w, torch.randn(rows, 4))
    told = explanation_of(log)
    assert told.passes == {RECORDED: 2, CONFIRMED: 1, REPLAYED: 1}
    assert "any size" not in str(told) and "backward pass 0" in str(told)
