"""`windfall.compile(..., compiled_autograd=True)`: passes inside of the target's calls."""

from __future__ import annotations

import copy

import pytest
import torch

import windfall
from windfall.engine.engine import RECORDED, REPLAYED


def _step(model: torch.nn.Module, x: torch.Tensor) -> torch.Tensor:
    model.zero_grad()
    loss = model(x).pow(2).mean()
    windfall.graph_break()  # else the pass is part of the graph
    loss.backward()
    return loss


def _check(call: object, made: object) -> None:
    told = windfall.explanation(made)
    assert told.passes == {RECORDED: 1, REPLAYED: 3}
    assert "aten." in str(told.pass_programs[0]) and "backward pass 0" in str(told)


def test_a_step() -> None:
    model, x = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Tanh()), torch.randn(2, 3)
    step = windfall.compile(_step, compiled_autograd=True)
    real = torch.autograd.Variable._execution_engine
    _step(model, x)
    expected = [one.grad.clone() for one in model.parameters()]  # type: ignore[union-attr]
    for _ in range(4):
        step(model, x)
        for one, wanted in zip(model.parameters(), expected, strict=True):
            assert torch.allclose(one.grad, wanted, atol=1e-6)  # type: ignore[arg-type]
    assert torch.autograd.Variable._execution_engine is real
    _check(step, step)
    assert step.__name__ == "_step"


def test_explain_tells_of_passes() -> None:
    model, x = torch.nn.Linear(3, 3), torch.randn(2, 3)
    told = windfall.explain(_step, compiled_autograd=True)(model, x)
    assert told.passes == {RECORDED: 1}


def test_modules_methods_and_copies() -> None:
    class Trains(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = torch.nn.Linear(3, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.inner.zero_grad()
            loss: torch.Tensor = self.inner(x).sin().sum()
            windfall.graph_break()
            loss.backward()
            return loss

    x = torch.randn(2, 3)
    made = windfall.compile(Trains(), compiled_autograd=True)
    for _ in range(4):
        made(x)
    _check(made, made)
    again = copy.deepcopy(made)
    again(x)
    assert windfall.explanation(again).passes == {RECORDED: 1}


def test_off_by_default_and_checked() -> None:
    step = windfall.compile(_step)
    step(torch.nn.Linear(3, 3), torch.randn(2, 3))
    assert windfall.explanation(step).passes == {}
    with pytest.raises(windfall.UserError):
        windfall.compile(_step, compiled_autograd="yes")  # type: ignore[arg-type]
