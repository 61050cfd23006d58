"""Results that share steps for which nothing is saved: each can be back-propagated without the
others, none keeps another's graph, and hooks of what a pass does not reach are not called."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.autograd.both import Compile, both, leaf, raised

TRUNKS: dict[str, Callable[[Tensor, Tensor], Any]] = {
    "transposed": lambda x, w: x.t(),
    "flattened": lambda x, w: x.flatten()[2:],
    "mean": lambda x, w: x.mean(0),
    "repeated": lambda x, w: x[0].expand(3, 4),
    "joined": lambda x, w: torch.cat([x, w]),
    "stacked": lambda x, w: torch.stack([x, w]).sum(1),
    "negative": lambda x, w: -x,
    "sum of two": lambda x, w: x + w.t(),
    "parts": lambda x, w: (x + w).chunk(2),
    "views of views": lambda x, w: x.view(2, 8).t()[1:5].unsqueeze(0),
}


def _heads(made: Any) -> tuple[Tensor, Tensor, Tensor]:
    one, other = made if isinstance(made, tuple) else (made, made)
    return one.sin(), other.exp(), one * 3


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1,), (1, 1)])
@pytest.mark.parametrize("trunk", TRUNKS)
def test_one_after_the_other(trunk: str, order: tuple[int, ...]) -> None:
    def scenario(compile: Compile) -> Any:
        x, w = leaf(4, 4), leaf(4, 4)
        results = compile(lambda x, w: _heads(TRUNKS[trunk](x, w)))(x, w)
        told: list[Any] = []
        for place in order:
            told.append(raised(lambda one=results[place]: one.sum().backward()))  # type: ignore[misc]
            told += [None if one.grad is None else one.grad.clone() for one in (x, w)]
        return told

    both(scenario)


@pytest.mark.parametrize("trunk", [*TRUNKS, "scaled"])
def test_hooks_of_what_is_not_reached_are_not_called(trunk: str) -> None:
    """A weight of one head alone, and another head is back-propagated."""
    make = TRUNKS.get(trunk, lambda x, w: x * 2)

    def scenario(compile: Compile) -> Any:
        def run(x: Tensor, w: Tensor, v: Tensor) -> Any:
            one, other, _ = _heads(make(x, w))
            return one, other * v.sum()

        x, w, v = leaf(4, 4), leaf(4, 4), leaf(4)
        results = compile(run)(x, w, v)
        called: list[Any] = []
        for name, one in zip("xwv", (x, w, v), strict=True):
            one.register_hook(lambda gradient, name=name: called.append((name, gradient is None)))
        results[0].sum().backward()
        return sorted(called), [None if one.grad is None else one.grad for one in (x, w, v)]

    both(scenario)
