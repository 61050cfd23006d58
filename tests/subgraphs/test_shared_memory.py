"""A subgraph writes what it is given: natively, unless what it writes stands elsewhere too."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

import windfall


def indices_of_one_tensor(out: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """Both indices are parts of one tensor; neither is written."""
    row, column = torch.where(x > 0)
    return out.index_add_(0, row, (x[row] * 2 + 1) * x[row, column, None])


def written_beside_a_view(out: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    view = out[1:]
    (row,) = torch.where(x[:, 0] > 0)
    out.index_add_(0, row, x[row] * 2 + 1)
    return view * out[:-1]


def both_written(out: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    view = out.view(-1)
    (row,) = torch.where(x[:, 0] > 0)
    out.index_add_(0, row, x[row] + 1)
    view.mul_(2)
    return out + 1


def experts(x: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """Tokens go to the two experts that want them most."""
    share, chosen = (x @ weights[0]).softmax(-1).topk(2, -1)
    out = torch.zeros_like(x)
    for number in range(weights.shape[0]):
        row, place = torch.where(chosen == number)
        out.index_add_(0, row, (x[row] @ weights[number]).relu() * share[row, place, None])
    return out


WRITES = [indices_of_one_tensor, written_beside_a_view, both_written]


@pytest.mark.parametrize("f", WRITES, ids=lambda one: one.__name__)
def test_writes_are_seen_by_all(f: Callable[..., torch.Tensor]) -> None:
    compiled = windfall.compile(f)
    for seed in range(5):
        torch.manual_seed(seed)
        out, x = torch.randn(6, 4), torch.randn(6, 4)
        mine = out.clone()
        torch.testing.assert_close(compiled(mine, x), f(out, x))
        torch.testing.assert_close(mine, out)
    if f is indices_of_one_tensor:
        assert not windfall.explanation(compiled).fallbacks


@pytest.mark.parametrize("gradient", [False, True])
def test_tokens_that_go_to_experts_run_natively(gradient: bool) -> None:
    compiled = windfall.compile(experts)
    for seed in range(4):
        torch.manual_seed(seed)
        x, weights = torch.randn(5 + seed, 4), torch.randn(4, 4, 4, requires_grad=gradient)
        expected, found = experts(x, weights), compiled(x, weights)
        torch.testing.assert_close(found, expected)
        if gradient:
            (one,) = torch.autograd.grad(found.sum(), weights)
            (other,) = torch.autograd.grad(expected.sum(), weights)
            torch.testing.assert_close(one, other)
    told = windfall.explanation(compiled).to_dict()
    assert (told["break_count"], told["fallbacks"], told["eager"]) == (0, [], {})
