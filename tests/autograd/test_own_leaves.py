"""Leaves that need gradients and are made inside of a graph: what is made of them needs one too.

Every way to make one × what is done with it × whether an input needs a gradient. A result that
leads to such leaves alone runs op by op (W0206), one that leads to an input as well natively.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import windfall

Made = Callable[[torch.Tensor], torch.Tensor]


def _enabled(x: torch.Tensor) -> torch.Tensor:
    with torch.enable_grad():
        return torch.ones(3, requires_grad=True)


MAKERS: dict[str, Made] = {
    "ones": lambda x: torch.ones(3, requires_grad=True),
    "tensor": lambda x: torch.tensor([1.0, 2.0, 3.0], requires_grad=True),
    "rand": lambda x: torch.rand(3, requires_grad=True),
    "full": lambda x: torch.full((3,), 2.0, requires_grad=True),
    "arange": lambda x: torch.arange(3.0, requires_grad=True),
    "zeros_like": lambda x: torch.zeros_like(x, requires_grad=True),
    "new_ones": lambda x: x.new_ones(3, requires_grad=True),
    "eye": lambda x: torch.eye(3, requires_grad=True),
    "where gradients are on": _enabled,
    "requires_grad_": lambda x: torch.ones(3).requires_grad_(),
}

Used = Callable[[torch.Tensor, torch.Tensor], tuple[Any, ...]]

# Those of "alone" lead to the leaf and to no input.
USES: dict[str, Used] = {
    "with the input": lambda w, x: (w * x,),
    "summed": lambda w, x: ((w * x).sum(),),
    "twice": lambda w, x: (w * x, w + x),
    "beside another": lambda w, x: (w * x, x + 1),
    "alone": lambda w, x: (w * 2,),
    "a view alone": lambda w, x: (w.view(-1),),
    "two views alone": lambda w, x: (w.view(-1), w.unsqueeze(0)),
    "alone, beside another": lambda w, x: (w * 2, x * 3),
    "alone, and made of": lambda w, x: (lambda h: (h, h * x))(w * 2),
    "alone, detached": lambda w, x: ((w * x).detach(),),
    "alone, in place": lambda w, x: ((torch.zeros(3) + w[:3]).mul_(w),),
    "asked": lambda w, x: (w * x, (w * x).requires_grad, w.is_leaf),
    "differentiated": lambda w, x: torch.autograd.grad((w * x).sum(), w),
    "differentiated again": lambda w, x: torch.autograd.grad(
        (w * w * x).sum(), w, create_graph=True
    ),
}


def _told(found: tuple[Any, ...], x: torch.Tensor) -> list[Any]:
    told: list[Any] = []
    for one in found:
        if not isinstance(one, torch.Tensor):
            told.append(one)
            continue
        told += [one.tolist(), one.shape, one.requires_grad, one.is_leaf, one.grad_fn is None]
    needing = [one for one in found if isinstance(one, torch.Tensor) and one.requires_grad]
    for one in needing:
        one.sum().backward(retain_graph=True)
    told.append(None if x.grad is None else x.grad.tolist())
    return told


@pytest.mark.parametrize("needs", [False, True], ids=["plain", "needs"])
@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("maker", MAKERS)
def test_what_is_made_of_a_leaf_of_the_graphs_own(maker: str, use: str, needs: bool) -> None:
    def function(x: torch.Tensor) -> tuple[Any, ...]:
        return USES[use](MAKERS[maker](x), x)

    compiled = windfall.compile(function)
    for _ in range(2):
        answers = []
        for call in (function, compiled):
            torch.manual_seed(3)
            x = torch.arange(1.0, 4.0).requires_grad_(needs)
            answers.append(_told(call(x), x))
        assert answers[0] == answers[1]
    fallbacks = windfall.explanation(compiled).fallbacks
    if use in ("alone, detached", "differentiated"):
        assert not fallbacks
    elif use == "differentiated again":
        assert len(fallbacks) <= 1
    elif "alone" in use or not needs:
        assert len(fallbacks) == 1
        two_views = use == "two views alone" and maker == "zeros_like"  # refused for another reason
        assert ("W0208" if two_views else "W0206") in str(fallbacks[0])
    else:
        assert not fallbacks
