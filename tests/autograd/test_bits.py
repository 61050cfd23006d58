"""Dropout's masks are kept as bits: the gradients are eager's, in an eighth of a byte each."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

import windfall
from windfall.events import EventKind

PACKED, NOT_EIGHTS, FEW = (32, 64), (33, 63), (8, 8)


def direct(x, p):
    return F.dropout(x, p)


def turned(x, p):
    return F.dropout(x.t(), p)


def twice(x, p):
    return F.dropout(F.dropout(x, p).tanh(), p)


def of_probabilities(x, p):
    return torch.bernoulli(torch.full_like(x, p)) * x


def saved_types(compiled) -> list[str]:
    events = windfall.explanation(compiled).events
    (split,) = (one.record for one in events if one.kind is EventKind.SPLIT)
    return [str(one) for one in split.saved]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("sizes", [PACKED, NOT_EIGHTS, FEW])
@pytest.mark.parametrize(
    ("program", "p"),
    [(direct, 0.1), (direct, 0.5), (turned, 0.2), (twice, 0.5), (of_probabilities, 0.5)],
)
def test_masks(program, p, sizes, dtype):
    torch.manual_seed(0)
    start = torch.randn(sizes, dtype=dtype)
    compiled = windfall.compile(program, options={"records": True})
    results = []
    for call in (program, compiled):
        torch.manual_seed(6)
        x = start.clone().requires_grad_()
        y = call(x, p)
        y.backward(torch.ones_like(y), retain_graph=True)
        y.backward(torch.full_like(y, 0.5))
        results.append([y, x.grad, torch.rand(1)])
    torch.testing.assert_close(*results)
    assert windfall.explanation(compiled).eager == {}
    count = (2 if program is twice else 1) if sizes == PACKED else 0
    assert saved_types(compiled).count("u8[256]") == count


def checkpointed(x, p):
    return checkpoint(lambda t: F.dropout(t.exp(), p).sin(), x, use_reentrant=False)


@pytest.mark.parametrize("sizes", [PACKED, NOT_EIGHTS, FEW])
@pytest.mark.parametrize("program", [direct, turned, twice, of_probabilities, checkpointed])
def test_derivatives_of_derivatives(program, sizes):
    torch.manual_seed(0)
    start = torch.randn(sizes, dtype=torch.float64)
    results = []
    for call in (program, windfall.compile(program)):
        torch.manual_seed(6)
        x = start.clone().requires_grad_()
        (first,) = torch.autograd.grad(call(x.tanh(), 0.5).exp().sum(), x, create_graph=True)
        (second,) = torch.autograd.grad(first.square().sum(), x, create_graph=True)
        (third,) = torch.autograd.grad(second.square().sum(), x)
        results.append([first, second, third, torch.rand(1)])
    torch.testing.assert_close(*results)


def test_no_more_than_bits_is_kept():
    model = nn.Sequential(nn.Linear(64, 64), nn.Dropout(0.5), nn.Linear(64, 64), nn.Dropout(0.5))
    compiled, x = windfall.compile(model), torch.randn(32, 64)
    known = {one.data_ptr() for one in (x, *model.parameters())}
    saved: list[int] = []

    def pack(one: torch.Tensor) -> torch.Tensor:
        if one.data_ptr() not in known:
            saved.append(one.nbytes)
        return one

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda one: one):
        compiled(x)
    assert sorted(saved) == [256, 256, 32 * 64 * 4]  # both masks, and what the second layer reads


def test_where_sizes_vary_they_are_kept_as_they_are():
    compiled = windfall.compile(direct, dynamic=True)
    for rows in (32, 40):
        results = []
        for call in (direct, compiled):
            torch.manual_seed(6)
            x = torch.ones(rows, 64, requires_grad=True)
            call(x, 0.5).sum().backward()
            results.append([x.grad, torch.rand(1)])
        torch.testing.assert_close(*results)
    assert windfall.explanation(compiled).eager == {}
