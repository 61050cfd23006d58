"""Ops that read memory which they write: eager refuses most of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import windfall
from windfall.events import Eager

Write = Callable[[torch.Tensor], Any]
INDEX = torch.tensor([1, 2])
EAGER: dict[str, Write] = {
    "copy_": lambda y: y[1:].copy_(y[:-1]),
    "add_": lambda y: y[1:].add_(y[:-1]),
    "one element": lambda y: y.mul_(y[0]),
    "transposed": lambda y: y[:4].view(2, 2).mul_(y[:4].view(2, 2).t()),
    "other dtype": lambda y: y.view(torch.int32)[1:].add_(y[:-1].view(torch.int32)),
    "lerp_": lambda y: y[1:].lerp_(y[:-1], 0.5),
    "addcmul_": lambda y: y[1:].addcmul_(y[1:], y[:-1]),
    "clamp_": lambda y: y[1:].clamp_(min=y[:-1]),
    "out": lambda y: torch.add(y[:-1], 1, out=y[1:]),
    "where out": lambda y: torch.where(y[1:] > 2, y[1:], y[:-1], out=y[1:]),
    "sum out": lambda y: torch.sum(y.view(2, 3), 0, out=y[:3]),
    "mm out": lambda y: torch.mm(y[:4].view(2, 2), y[1:5].view(2, 2), out=y[:4].view(2, 2)),
    "cumsum out": lambda y: torch.cumsum(y[:-1], 0, out=y[1:]),
    "gather out": lambda y: torch.gather(y, 0, torch.arange(5), out=y[1:]),
    "index_add_": lambda y: y.index_add_(0, INDEX, y[:2]),
    "index_add_ of itself": lambda y: y.index_add_(0, torch.arange(6), y),
    "index_copy_": lambda y: y.index_copy_(0, INDEX, y[:2]),
    "index_fill_": lambda y: y.index_fill_(0, INDEX, y[0]),
    "index_put_": lambda y: y.index_put_((INDEX,), y[:2]),
    "put_": lambda y: y.put_(INDEX, y[:2]),
    "scatter_": lambda y: y.scatter_(0, INDEX, y[:2]),
    "scatter_add_": lambda y: y.scatter_add_(0, INDEX, y[:2]),
    "scatter_reduce_": lambda y: y.scatter_reduce_(0, INDEX, y[:2], "sum"),
    "masked_scatter_": lambda y: y.masked_scatter_(y > 2, y),
    "addmm_": lambda y: y[:4].view(2, 2).addmm_(y[1:5].view(2, 2), y[2:6].view(2, 2)),
    "foreach": lambda y: torch._foreach_add_([y[1:]], [y[:-1]]),
    "foreach, another": lambda y: torch._foreach_add_([y[4:], y[:2]], [y[:2], y[1:3]]),
}
NATIVE: dict[str, Write] = {
    "itself": lambda y: y.add_(y),
    "the same elements": lambda y: y.view(2, 3).add_(y[:].view(2, 3)),
    "out": lambda y: torch.add(y, 1, out=y),
    "addmm of its result": lambda y: torch.addmm(
        y[:4].view(2, 2), torch.ones(2, 1), torch.ones(1, 2), out=y[:4].view(2, 2)
    ),
    "cumsum of its result": lambda y: torch.cumsum(y, 0, out=y),
    "halves": lambda y: y[3:].copy_(y[:3]),
    "index_add_ of another part": lambda y: y[:3].index_add_(0, INDEX, y[4:]),
    "interleaved": lambda y: y[::2].add_(y[1::2]),
    "columns": lambda y: y.view(3, 2)[:, 0].copy_(y.view(3, 2)[:, 1]),
    "a copy": lambda y: y[1:].add_(y[:-1].clone()),
    "foreach": lambda y: torch._foreach_add_([y[4:], y[:1]], [y[1:3], y[3:4]]),
}


def outcome(function: Any, needs_grad: bool) -> Any:
    x = torch.arange(6.0, requires_grad=needs_grad)
    try:
        found = function(x * 1 if needs_grad else x)
        result = [found.detach().tolist()]
        return [*result, torch.autograd.grad(found.sum(), x)[0].tolist()] if needs_grad else result
    except (RuntimeError, NotImplementedError) as error:
        return str(error)


def check(write: Write, of_input: bool, needs_grad: bool) -> tuple[Any, dict[str, int]]:
    def run(x: torch.Tensor) -> torch.Tensor:
        y = x if of_input else x * 1
        write(y)
        return y

    compiled = windfall.compile(run)
    wanted = outcome(run, needs_grad)
    assert outcome(compiled, needs_grad) == wanted
    return wanted, windfall.explanation(compiled).eager


@pytest.mark.parametrize("of_input", [True, False])
@pytest.mark.parametrize("name", EAGER)
def test_by_eager(name: str, of_input: bool) -> None:
    _, eager = check(EAGER[name], of_input, False)
    assert str(Eager.GRAPH) in eager
    if name != "other dtype":  # of numbers that do not follow a gradient
        check(EAGER[name], of_input, True)


@pytest.mark.parametrize("of_input", [True, False])
@pytest.mark.parametrize("name", NATIVE)
def test_natively(name: str, of_input: bool) -> None:
    wanted, eager = check(NATIVE[name], of_input, False)
    assert not isinstance(wanted, str) and eager == {}
    check(NATIVE[name], of_input, True)
