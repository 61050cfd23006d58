"""Views that autograd treats apart: those that an `autograd.Function` made, which have the gradient
that it says, and those of ops that answer several. Writes to either are refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import windfall
from windfall.events import Eager

Function = Callable[[torch.Tensor], Any]
VIEWS: dict[str, Function] = {
    "view_as": lambda x: x.view_as(x),
    "view": lambda x: x.view(3, 2),
    "transposed": lambda x: x.t(),
    "slice": lambda x: x[:],
    "part": lambda x: x[:, :2],
    "expand_as": lambda x: x.expand_as(x),
    "alias": lambda x: torch.ops.aten.alias(x),
    "clone": lambda x: x.clone(),
}


def reversed_by(view: Function) -> Function:
    """The view, as a function that gives minus three as its gradient everywhere."""

    class Reversed(torch.autograd.Function):
        @staticmethod
        def forward(context: Any, x: torch.Tensor) -> torch.Tensor:
            return view(x)

        @staticmethod
        def backward(context: Any, g: torch.Tensor) -> torch.Tensor:
            return g.sum() * torch.full((2, 3), -3.0)

    return lambda x: Reversed.apply(x)


USES: dict[str, Callable[[Function], Function]] = {
    "used": lambda apply: lambda x: apply(x) * 2,
    "of a result": lambda apply: lambda x: apply(x * 2),
    "part of it": lambda apply: lambda x: apply(x * 2)[0],
    "returned": lambda apply: lambda x: apply(x),
    "part returned": lambda apply: lambda x: apply(x)[0],
    "beside another": lambda apply: lambda x: (apply(x), x * 2),
    "beside its base": lambda apply: lambda x: (lambda y: (y, apply(y)))(x * 2),
}
# What lies upon something else that is seen: it has to be a view of that, with another gradient.
OP_BY_OP = {"returned", "part returned", "beside another", "beside its base"}


def results(function: Function, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    found = function(x)
    return found if isinstance(found, tuple) else (found,)


def gradient(function: Function, x: torch.Tensor, again: bool) -> Any:
    total = sum(one.square().sum() for one in results(function, x))
    (found,) = torch.autograd.grad(total, x, create_graph=again)
    return torch.autograd.grad(found.sum(), x)[0] if again else found


def sharing(function: Function, x: torch.Tensor) -> list[tuple[bool, bool]]:
    same = [one.data_ptr() == x.data_ptr() for one in results(function, x)]
    return [(one._base is x, at) for one, at in zip(results(function, x), same, strict=True)]


def refuses(function: Function, x: torch.Tensor) -> list[str]:
    """What is said of a write to each result."""
    said = []
    for index in range(len(results(function, x))):
        try:
            results(function, x)[index].mul_(2)
            said.append("")
        except RuntimeError as error:
            said.append(str(error).partition(" is a view ")[2] or str(error))
    return said


def check(function: Function, how: dict[str, int]) -> None:
    compiled = windfall.compile(function)
    x = torch.randn(2, 3, requires_grad=True)
    torch.testing.assert_close(gradient(compiled, x, False), gradient(function, x, False))
    assert windfall.explanation(compiled).eager == how
    assert sharing(compiled, x) == sharing(function, x)
    assert refuses(compiled, x) == refuses(function, x)
    torch.testing.assert_close(gradient(compiled, x, True), gradient(function, x, True))


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("view", VIEWS)
def test_view_that_a_function_made(view: str, use: str) -> None:
    op_by_op = use in OP_BY_OP and view != "clone"
    check(USES[use](reversed_by(VIEWS[view])), {str(Eager.GRAPH): 1} if op_by_op else {})


PIECES: dict[str, Function] = {
    "unbind": lambda x: x.unbind(0),
    "split": lambda x: x.split(1),
    "sizes": lambda x: x.split([1, 1]),
    "chunk": lambda x: x.chunk(2, dim=1),
    "tensor_split": lambda x: x.tensor_split(2),
    "select": lambda x: (x[0], x[1]),
}


@pytest.mark.parametrize("pieces", PIECES)
def test_pieces(pieces: str) -> None:
    make = PIECES[pieces]
    check(lambda x: tuple(make(x)), {})
    check(lambda x: tuple(make(x * 2)), {})
    check(lambda x: make(x * 2)[1], {})
    check(lambda x: make(x * 2)[1][:], {})
    check(lambda x: (lambda y: (y, *make(y)))(x * 2), {})


@pytest.mark.parametrize("pieces", PIECES)
def test_pieces_written_inside(pieces: str) -> None:
    def run(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        PIECES[pieces](y)[0].mul_(2)
        return y

    def outcome(function: Function, x: torch.Tensor) -> Any:
        try:
            return torch.autograd.grad(function(x).sum(), x)[0].tolist()
        except RuntimeError as error:
            return str(error).partition(" is a view ")[2] or str(error)

    x = torch.randn(2, 3, requires_grad=True)
    assert outcome(windfall.compile(run), x) == outcome(run, x)
    with torch.no_grad():
        assert torch.equal(windfall.compile(run)(x), run(x))


UNSEEN: dict[str, Function] = {
    "select": lambda y: y[0],
    "view": lambda y: y.view(-1),
    "t": lambda y: y.t(),
    "slice": lambda y: y[:, 1:],
    "unbind": lambda y: y.unbind(0)[1],
    "detach": lambda y: y.detach(),
}
WAYS: dict[str, Callable[[Function, torch.Tensor], Any]] = {
    "as it is": lambda view, y: view(y),
    "seen again": lambda view, y: view(y).view_as(view(y)),
    "of what was seen": lambda view, y: view(y.view_as(y)),
    "used": lambda view, y: view(y) * 2,
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("view", UNSEEN)
@pytest.mark.parametrize("kind", ["leaf", "result", "part"])
def test_unseen_views(kind: str, view: str, way: str) -> None:
    """Made under `no_grad` of what needs a gradient: they need one, and lead nowhere."""

    def run(y: torch.Tensor) -> Any:
        with torch.no_grad():
            made = WAYS[way](UNSEEN[view], y)
        return made, made.view_as(made), (y * 2).sum()

    compiled, told = windfall.compile(run), []
    torch.manual_seed(0)
    x = torch.randn(4, 3, requires_grad=True)
    for call in (compiled, run, compiled):
        y = {"leaf": x, "result": x * 1, "part": (x * 1)[1:]}[kind]
        one, other, total = call(y)
        seen: list[Any] = [[made.requires_grad, made.is_leaf] for made in (one, other)]
        x.grad = None
        for made in (one, other, total):
            if made.requires_grad:
                made.sum().backward(retain_graph=True)
            seen.append(None if x.grad is None else x.grad.tolist())
        told.append([*seen, _said_of_a_write(one), _said_of_a_write(other)])
    assert told[0] == told[1] == told[2]
    assert windfall.explanation(compiled).eager == {}


def _said_of_a_write(view: torch.Tensor) -> str:
    try:
        view.mul_(2)
    except RuntimeError as error:
        return str(error).partition(" is a view ")[2] or str(error)
    return ""
