"""Ops of users' libraries that write their arguments, answer nothing, or are noticed when called:
in the graph, called as often and in the order as in eager."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import windfall

TOLD: list[int] = []


@pytest.fixture(scope="module", autouse=True)
def library() -> Iterator[None]:
    made = torch.library.Library("writing", "FRAGMENT")

    def increase(x: torch.Tensor) -> None:
        TOLD.append(0)
        x.add_(1)

    def both(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x.mul_(2)
        y.mul_(3)
        return x + y

    def say(x: torch.Tensor, number: int) -> None:
        TOLD.append(number)

    def note(x: torch.Tensor, number: int) -> torch.Tensor:
        TOLD.append(number)
        return x.clone()

    rows: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
        "increase(Tensor(a!) x) -> ()": (increase, lambda x: None),
        "both(Tensor(a!) x, Tensor(b!) y) -> Tensor": (both, lambda x, y: torch.empty_like(x)),
        "say(Tensor x, int number) -> ()": (say, lambda x, number: None),
        "note(Tensor x, int number) -> Tensor": (note, lambda x, number: torch.empty_like(x)),
        "tell(Tensor x, int number) -> Tensor": (note, lambda x, number: torch.empty_like(x)),
    }
    for schema, (real, shape) in rows.items():
        name = schema.partition("(")[0]
        made.define(schema)
        made.impl(name, real, "CPU")
        made.impl(name, shape, "Meta")
        getattr(torch.ops.writing, name)  # from here on an attribute of the namespace
    torch.library.register_autograd(
        "writing::tell",
        lambda ctx, g: (torch.ops.writing.note(g, -ctx.number) * 5, None),
        setup_context=lambda ctx, inputs, output: setattr(ctx, "number", inputs[1]),
        lib=made,
    )
    yield
    made._destroy()


def ops() -> Any:
    return torch.ops.writing


def _computed(x: torch.Tensor) -> Any:
    h = x * 2
    ops().increase(h)
    return h * 3


def _input(x: torch.Tensor) -> Any:
    ops().increase(x)
    return x * 3


def _view(x: torch.Tensor) -> Any:
    h = x * 2
    ops().increase(h[1:])
    ops().increase(h)
    return h


def _two(x: torch.Tensor) -> Any:
    h, k = x * 2, x * 3
    return ops().both(h, k) + h * k


def _unread(x: torch.Tensor) -> Any:
    ops().increase(x * 2)
    return x + 1


def _said(x: torch.Tensor) -> Any:
    ops().say(x, 1)
    y = ops().note(x * 2, 2)
    ops().say(y, 3)
    ops().note(y, 4)
    return y


def _in_branches(x: torch.Tensor) -> Any:
    ops().say(x, 1)
    first = torch.cond(
        x.sum() > 0, lambda a: ops().note(a, 2) * 2, lambda a: ops().note(a, 3) * 3, (x,)
    )
    ops().say(first, 4)
    return first


PROGRAMS = [_computed, _input, _view, _two, _unread, _said, _in_branches]


@pytest.mark.parametrize("function", PROGRAMS)
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_they_stand_in_one_graph(function: Any, sign: float) -> None:
    given = torch.full((4, 3), sign)
    found = []
    for call in (windfall.explain(function), function):
        TOLD.clear()
        x = given.clone()
        result = call(x)
        if call is not function:
            assert len(result.graphs) == 1 and not result.breaks and not result.eager
            result = result.result
        found.append((list(TOLD), result, x, x._version))
    assert found[0][0] == found[1][0] and found[0][3] == found[1][3]
    torch.testing.assert_close(found[0][1:3], found[1][1:3])


def test_a_write_is_seen_by_backward() -> None:
    """What a saved tensor is written by raises its version, as in eager."""

    def function(x: torch.Tensor, h: torch.Tensor) -> Any:
        ops().increase(h)
        return x * 2

    for call in (windfall.compile(function), function):
        x, h = torch.ones(3, requires_grad=True), torch.ones(3)
        product = x * h
        call(x, h)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            product.sum().backward()


def _told_in_backward(x: torch.Tensor) -> Any:
    return ops().tell(ops().tell(x * 2, 1).sin(), 2) * ops().tell(x, 3)


def _told_in_branches(x: torch.Tensor) -> Any:
    first = ops().tell(x, 1)
    return torch.cond(
        x.sum() > 0, lambda a: ops().tell(a, 2) * 2, lambda a: ops().tell(a, 3) * 3, (first,)
    )


def _told_behind_if(x: torch.Tensor) -> Any:
    """The same to eager, whose `cond` refuses ops that have a backward and are noticed."""
    first = ops().tell(x, 1)
    return ops().tell(first, 2) * 2 if x.sum() > 0 else ops().tell(first, 3) * 3


PAIRS = {"backward": (_told_in_backward,) * 2, "branches": (_told_in_branches, _told_behind_if)}


@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_31_effects_of_branches_and_of_backward(name: str, sign: float) -> None:
    """As often as in eager, and in its order, forward and backward."""
    found = []
    function, eagers = PAIRS[name]
    for call in (windfall.explain(function), eagers):
        TOLD.clear()
        x = torch.full((4, 3), sign).requires_grad_()
        result = call(x)
        if call is not eagers:
            assert len(result.graphs) == 1 and not result.breaks and not result.eager
            result = result.result
        result.sum().backward()
        found.append((list(TOLD), result.detach(), x.grad))
    assert found[0][0] == found[1][0]
    torch.testing.assert_close(found[0][1:], found[1][1:])
