"""Saved values that were written before backward: a pass raises for those that it reads, and for no
others (ADR 69)."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.autograd.both import Compile, both, leaf, raised


def _pass(way: str, result: torch.Tensor, wanted: list[torch.Tensor]) -> Any:
    """Gradients of one result, in one of the ways of asking."""
    ones = torch.ones_like(result)
    if way == "plain":
        return torch.autograd.grad(result, wanted, ones, allow_unused=True)
    if way == "batched":
        return torch.autograd.grad(
            *(result, wanted, torch.stack([ones, ones * 2])),
            is_grads_batched=True,
            allow_unused=True,
        )
    if way == "autocast":
        with torch.autocast("cpu", torch.bfloat16):
            return torch.autograd.grad(result, wanted, ones, allow_unused=True)
    first = torch.autograd.grad(result, wanted, ones, create_graph=True, allow_unused=True)
    loss = sum((one**2).sum() for one in first if one is not None)
    return [*first, *torch.autograd.grad(loss, wanted, allow_unused=True)]


@pytest.mark.parametrize("way", ["plain", "again", "autocast", "batched"])
@pytest.mark.parametrize("written", [0, 1])
@pytest.mark.parametrize("asked", [0, 1])
def test_of_two_results_in_one_node(way: str, written: int, asked: int) -> None:
    """Eager raises if and only if the result that is asked was made with the weight that was
    written; so do we."""

    def scenario(compile: Compile) -> Any:
        def run(x: torch.Tensor, v: torch.Tensor, w: torch.Tensor) -> Any:
            middle = (x * 2).exp()
            return middle @ v, middle @ w

        x, v, w = leaf(3, 3), leaf(3, 3), leaf(3, 3)
        results = compile(run)(x, v, w)
        with torch.no_grad():
            (v, w)[written].mul_(2)
        refused = raised(lambda: _pass(way, results[asked], [x, v, w]))
        if refused is not None:
            return refused
        return _pass(way, (compile(run)(x, v, w))[asked], [x, v, w])

    passes = 2 if written != asked else 1  # of which the one that raises is counted too
    both(scenario, {"backward, op by op": passes} if way == "batched" else None)


def test_a_value_that_is_read_still_raises() -> None:
    """Both results asked: what either reads is checked."""

    def scenario(compile: Compile) -> Any:
        x, v, w = leaf(3, 3), leaf(3, 3), leaf(3, 3)
        results = compile(lambda x, v, w: (x.exp() @ v, x.exp() @ w))(x, v, w)
        with torch.no_grad():
            v.mul_(2)
        return raised(lambda: torch.autograd.grad([one.sum() for one in results], [x]))

    assert both(scenario)


@pytest.mark.parametrize("written", ["saved", "own"])
def test_a_pass_that_reads_the_nodes_own_result(written: str) -> None:
    """It is checked like any other, and others are not checked for its sake."""

    def scenario(compile: Compile) -> Any:
        x = leaf(3, 3) * 1
        soft, scaled = compile(lambda x: (torch.softmax(x, -1), x * x.sum()))(x)
        with torch.no_grad():
            (x if written == "saved" else soft).mul_(2)
        ones = torch.ones_like(soft)
        return [
            raised(lambda: torch.autograd.grad(soft, x, ones, retain_graph=True)),
            raised(lambda: torch.autograd.grad(scaled, x, ones, retain_graph=True)),
        ]

    both(scenario)
