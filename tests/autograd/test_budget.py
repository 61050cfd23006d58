"""A budget for what forward keeps: equal gradients, fewer bytes the smaller it is."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import windfall
from windfall.events import EventKind

BUDGETS = (0, 0.2, 0.5, 0.8, 1)
aten = torch.ops.aten


class Layer(nn.Module):
    """Attention and a perceptron, each added to what goes in."""

    def __init__(self, width: int, dropout: float) -> None:
        super().__init__()
        self.into, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.dropout = dropout

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        query, key, value = self.into(self.first(x)).chunk(3, -1)
        weights = (query @ key.mT).softmax(-1)
        x = x + F.dropout(self.out(weights @ value), self.dropout)
        return x + F.dropout(self.down(F.gelu(self.up(self.second(x)))), self.dropout)


class Convolutions(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            *(
                part
                for inside in (3, 8, 8, 8)
                for part in (nn.Conv2d(inside, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU())
            )
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x.view(2, 3, 8, 8)).mean((2, 3))


def layers(dropout: float) -> nn.Module:
    return nn.Sequential(*(Layer(16, dropout) for _ in range(3)))


MODELS = {
    "layers": (lambda: layers(0.0), (8, 12, 16)),
    "layers with dropout": (lambda: layers(0.2), (8, 12, 16)),
    "convolutions": (Convolutions, (2, 192)),
}


def step(model: nn.Module, call: Any, x: torch.Tensor) -> tuple[list[Any], int]:
    """Result, gradients, buffers, the next random number; and the bytes that were saved."""
    for one in model.buffers():
        one.zero_()
    model.zero_grad()
    torch.manual_seed(4)
    known = {one.data_ptr() for one in (x, *model.parameters(), *model.buffers())}
    saved: dict[int, int] = {}

    def pack(one: torch.Tensor) -> torch.Tensor:
        if one.data_ptr() not in known:
            saved[one.data_ptr()] = one.untyped_storage().nbytes()
        return one

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda one: one):
        result = call(x)
    saved.pop(result.data_ptr(), None)  # it lives anyway
    loss = result.square().mean()
    loss.backward()
    gradients = [one.grad for one in model.parameters()]
    buffers = [one.clone() for one in model.buffers()]
    return [loss, *gradients, *buffers, torch.rand(2)], sum(saved.values())


@pytest.mark.parametrize("name", MODELS)
def test_equal_gradients_and_monotone_bytes(name):
    torch.manual_seed(0)
    make, sizes = MODELS[name]
    model, x = make(), torch.randn(sizes)
    expected, _ = step(model, model, x)
    saved = []
    for budget in BUDGETS:
        compiled = windfall.compile(model, options={"memory_budget": budget})
        found, kept = step(model, compiled, x)
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-6)
        assert windfall.explanation(compiled).eager == {}
        saved.append(kept)
    assert saved == sorted(saved)
    assert len(set(saved)) >= 4
    for budget, kept in zip(BUDGETS, saved, strict=True):
        assert kept <= max(budget * saved[-1], saved[0]) + 256


def test_nothing_but_inputs():
    compiled = windfall.compile(layers(0.0), options={"memory_budget": 0, "records": True})
    x = torch.randn(8, 12, 16, requires_grad=True)
    compiled(x).sum().backward()
    events = windfall.explanation(compiled).events
    (split,) = (one.record for one in events if one.kind is EventKind.SPLIT)
    assert not split.saved
    assert windfall.explanation(compiled).eager == {}


def test_what_is_random_runs_once():
    """Also where backward needs only what was made of it."""

    def program(x, w):
        return (F.dropout(x @ w, 0.5).exp() @ w).sum() + torch.rand_like(x).mul(x).sum()

    results = []
    for budget in (0, 0.5, 1):
        compiled = windfall.compile(program, options={"memory_budget": budget, "records": True})
        torch.manual_seed(7)
        x, w = (torch.linspace(-1, 1, 16).view(4, 4).requires_grad_() for _ in range(2))
        compiled(x, w).backward()
        results.append([x.grad, w.grad, torch.rand(1)])
        events = windfall.explanation(compiled).events
        (split,) = (one.record for one in events if one.kind is EventKind.SPLIT)
        assert not any("bernoulli" in str(node.target) for node in split.backward.nodes)
    torch.testing.assert_close(results[0], results[2])
    torch.testing.assert_close(results[1], results[2])


def test_ops_of_others_run_once():
    calls = []

    @torch.library.custom_op("test_budget::noted", mutates_args=())
    def noted(x: torch.Tensor) -> torch.Tensor:
        calls.append(1)
        return x * 2

    noted.register_fake(torch.empty_like)
    noted.register_autograd(lambda ctx, grad: grad * 2)
    compiled = windfall.compile(lambda x: noted(x.exp()).sin().sum(), options={"memory_budget": 0})
    compiled(torch.ones(3, requires_grad=True)).backward()
    assert len(calls) == 1


def test_sizes_vary():
    model = layers(0.0)
    compiled = windfall.compile(model, options={"memory_budget": 0.5})
    for rows in (3, 5, 7):
        x = torch.randn(rows, 12, 16)
        found, expected = step(model, compiled, x)[0], step(model, model, x)[0]
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-6)
    assert windfall.explanation(compiled).eager == {}


@pytest.mark.parametrize(
    "options", [{"memory_budget": 0}, {"memory_budget": 0.5}, {"partition": "eager"}]
)
def test_second_derivatives(options):
    """What backward computes again has derivatives, and what was drawn is the same."""

    def program(x, w):
        return F.dropout((x @ w).tanh().softmax(-1) @ w, 0.4).exp().sum()

    results = []
    for call in (program, windfall.compile(program, options=options)):
        torch.manual_seed(7)
        x, w = (torch.linspace(-1, 1, 1024).double().view(32, 32).requires_grad_() for _ in "xw")
        first = torch.autograd.grad(call(x, w), [x, w], create_graph=True)
        second = torch.autograd.grad(sum(one.square().sum() for one in first), [x, w])
        results.append([*first, *second, torch.rand(1)])
    torch.testing.assert_close(*results)


@pytest.mark.parametrize("name", MODELS)
def test_partition_as_eager(name):
    """Nothing that eager computes in forward is computed in backward, nor the other way round."""
    torch.manual_seed(0)
    make, sizes = MODELS[name]
    model, x = make(), torch.randn(sizes)
    compiled = windfall.compile(model, options={"partition": "eager", "records": True})
    found, expected = step(model, compiled, x)[0], step(model, model, x)[0]
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-6)
    assert windfall.explanation(compiled).eager == {}
    events = windfall.explanation(compiled).events
    (split,) = (one.record for one in events if one.kind is EventKind.SPLIT)
    computed = {"aten.gelu.default", "aten._softmax.default", "aten.relu.default"}
    assert not computed & {str(node.target) for node in split.backward.nodes}


@pytest.mark.parametrize("budget", [-0.1, 1.5, "half", None, True])
def test_budgets_that_are_none(budget):
    with pytest.raises(windfall.UserError, match="memory_budget"):
        windfall.compile(torch.sin, options={"memory_budget": budget})


def test_a_budget_needs_a_cut():
    with pytest.raises(windfall.UserError, match="min-cut"):
        windfall.compile(torch.sin, options={"memory_budget": 0.5, "partition": "eager"})
    with pytest.raises(windfall.UserError, match="partition"):
        windfall.compile(torch.sin, options={"partition": "odd"})
