"""The whole way through, in seconds: the test to run before every commit."""

from __future__ import annotations

import copy

import torch
from torch import nn
from torch.nn import functional as F

import windfall


def first(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return F.gelu(x * y + 1).sum(-1)


def perceptron() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))


def test_the_first_function() -> None:
    x, y = torch.randn(5, 7), torch.randn(5, 7)
    compiled = windfall.compile(first)
    for _ in range(2):  # the call that compiles, and the one that uses what was compiled
        torch.testing.assert_close(compiled(x, y), first(x, y))


def test_the_first_function_with_gradients() -> None:
    inputs = [torch.randn(5, 7, requires_grad=True) for _ in range(2)]
    weight = torch.randn(5)
    compiled = windfall.compile(first)
    expected = torch.autograd.grad((first(*inputs) * weight).sum(), inputs)
    for _ in range(2):
        result = compiled(*inputs)
        assert result.requires_grad
        actual = torch.autograd.grad((result * weight).sum(), inputs)
        torch.testing.assert_close(actual, expected)


def test_a_perceptron_trains() -> None:
    eager = perceptron()
    model = copy.deepcopy(eager)
    compiled = windfall.compile(model)
    optimizers = [torch.optim.SGD(one.parameters(), lr=0.1) for one in (eager, model)]
    for _ in range(3):
        x, target = torch.randn(4, 6), torch.randn(4, 3)
        losses = []
        for forward, optimizer in zip((eager, compiled), optimizers, strict=True):
            optimizer.zero_grad()
            loss = F.mse_loss(forward(x), target)
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        torch.testing.assert_close(losses[1], losses[0])
    for actual, expected in zip(model.parameters(), eager.parameters(), strict=True):
        torch.testing.assert_close(actual.grad, expected.grad)
        torch.testing.assert_close(actual, expected)


def test_it_was_compiled_and_not_run_eagerly() -> None:
    facts = windfall.explain(first)(torch.randn(5, 7), torch.randn(5, 7)).to_dict()
    assert facts["graph_count"] == 1
    assert facts["break_count"] == 0
    assert facts["fallbacks"] == []
    assert [kernel["kind"] for kernel in facts["kernels"]] == ["generated"]
