"""`torch.autograd.grad` in a compiled function, of what was made of the same tensors outside."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from tests.autograd.both import Compile, both, leaf, seen

BREAK = {"a step at a break": 1}

# How the other argument was made of the first one.
MADE: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "computed": lambda x: x**3,
    "a view": lambda x: (x * 2)[:],
    "of another": lambda x: leaf(3) * 2,
    "a leaf": lambda x: leaf(3),
    "plain": lambda x: torch.ones(3, dtype=torch.float64),
}


@pytest.mark.parametrize("create", [False, True])
@pytest.mark.parametrize("name", MADE)
def test_gradients_go_on_outside(name: str, create: bool) -> None:
    def scenario(compile: Compile) -> Any:
        x = leaf(3)
        h = MADE[name](x)

        def run(h: Any, x: Any) -> Any:
            return torch.autograd.grad((h * x).sum(), x, create_graph=create)[0] * 2

        result = compile(run)(h, x)
        if result.requires_grad:
            result.square().sum().backward()
        return seen(result.detach(), x, h.detach())

    both(scenario, None if name in ("a leaf", "plain") else BREAK)


@pytest.mark.parametrize("first", ["leaf", "hooked leaf"])
def test_a_later_call_may_have_another_history(first: str) -> None:
    def scenario(compile: Compile) -> Any:
        x = leaf(3)

        def run(h: Any, x: Any) -> Any:
            return torch.autograd.grad((h * x).sum(), x)[0]

        call, h = compile(run), leaf(3)
        if first == "hooked leaf":
            h.register_hook(lambda g: g * 5)
        return seen(call(h, x), call(h * x, x), call(leaf(3), x), call(x.exp(), x))

    both(scenario, BREAK)


def test_allowed_to_be_unused() -> None:
    def scenario(compile: Compile) -> Any:
        x = leaf(3)

        def run(h: Any, x: Any) -> Any:
            (found,) = torch.autograd.grad(h.sum(), x, allow_unused=True, create_graph=True)
            return x * 0 if found is None else found

        call = compile(run)
        return seen(call(x**3, x), call(leaf(3) ** 3, x))

    both(scenario, BREAK)


def test_parameters_with_hooks_are_no_way_on() -> None:
    """A gradient penalty inside: what it comes to besides, ends there."""

    def scenario(compile: Compile) -> Any:
        model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Tanh()).double()
        model[0].weight.register_hook(lambda g: g * 2)
        x = leaf(2, 3)

        def run(x: Any) -> Any:
            result = model(x)
            (found,) = torch.autograd.grad(result.sum(), x, create_graph=True)
            return (found.norm(dim=1) - 1).square().mean()

        compile(run)(x).backward()
        return seen(x, *model.parameters())

    both(scenario)
