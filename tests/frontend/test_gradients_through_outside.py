"""Passes inside of a compiled function that lead through tensors with a history from outside: what
was made before the call, or before a break. Such a pass is torch's own; it reaches every leaf."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import windfall

Pass = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], Any]


def _grad(root: torch.Tensor, *inputs: torch.Tensor, **more: Any) -> Any:
    return torch.autograd.grad(root, inputs, retain_graph=True, **more)


def _backward(root: torch.Tensor, *inputs: torch.Tensor) -> Any:
    root.backward(retain_graph=True, inputs=inputs)
    return [one.grad for one in inputs]


# Of a tensor with a history from outside, the leaf that it was made of, and another leaf.
PASSES: dict[str, Pass] = {
    "at once": lambda h, w, v: _grad(h, w, allow_unused=True),
    "behind an op": lambda h, w, v: _grad(h.sin(), w, allow_unused=True),
    "zeros where unused": lambda h, w, v: _grad(h * 2, w, materialize_grads=True),
    "two leaves": lambda h, w, v: _grad(h * v.sum(), v, w, allow_unused=True),
    "both ways": lambda h, w, v: _grad(h * w.sum(), w),
    "its own leaf": lambda h, w, v: _grad(
        h * v.detach().requires_grad_().sum(), w, allow_unused=True
    ),
    "backward to both": lambda h, w, v: _backward(h * v.sum() * w.sum(), v, w),
    "backward both ways": lambda h, w, v: _backward(h * w.sum(), w),
}


def _leaves() -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    return torch.randn(3, requires_grad=True), torch.randn(3, requires_grad=True)


@pytest.mark.parametrize("name", PASSES)
@pytest.mark.parametrize("backend", ["eager", "windfall"])
def test_a_history_from_before_the_call(name: str, backend: str) -> None:
    function = PASSES[name]

    def run(called: Pass) -> Any:
        w, v = _leaves()
        return called((w * 3).sum(), w, v)

    compiled = windfall.compile(function, backend=backend)
    for _ in range(2):
        torch.testing.assert_close(run(compiled), run(function))
    assert 60 in [one.number for one in windfall.explanation(compiled).breaks]


@pytest.mark.parametrize("name", PASSES)
def test_a_history_from_before_a_break(name: str) -> None:
    def whole(w, v):
        h = (w * 3).sum()
        windfall.graph_break()
        return PASSES[name](h, w, v)

    compiled = windfall.compile(whole)
    torch.testing.assert_close(compiled(*_leaves()), whole(*_leaves()))
    assert {one.number for one in windfall.explanation(compiled).breaks} == {40, 60}


def test_a_leaf_that_has_a_history_in_the_next_call() -> None:
    """What is no leaf any more is not taken for one."""

    def function(h, w):
        return _grad((h * w).sum(), w)

    compiled = windfall.compile(function)
    for made in (lambda w: w.detach().requires_grad_(), lambda w: w * 2, lambda w: w.detach()):
        w, _ = _leaves()
        torch.testing.assert_close(compiled(made(w), w), function(made(w), w))
    told = windfall.explanation(compiled)
    assert [one.number for one in told.breaks] == [60]


def test_leaves_alone_are_one_graph() -> None:
    def function(w, v):
        return _grad((w * v).sum(), v, allow_unused=True)

    compiled = windfall.compile(function)
    torch.testing.assert_close(compiled(*_leaves()), function(*_leaves()))
    told = windfall.explanation(compiled)
    assert not told.breaks and not told.eager
