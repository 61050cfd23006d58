"""Operations with bodies, on fake tensors: the types of what they answer.

Enters: a target of `ir/control_flow.py`, fakes. Leaves: fresh fakes.
Invariant: results need a gradient where any operand does and grad mode is on, as eager has it: it
looks at no body to tell.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from windfall.ir.control_flow import Subgraphs, differentiable
from windfall.ops.fake_tensor import fake


class _FakeHistory(torch.autograd.Function):
    """What makes fakes that have a history."""

    @staticmethod
    def forward(context: Any, target: Subgraphs, *operands: torch.Tensor) -> Any:
        made = tuple(fake(one, requires_grad=False) for one in target.result_types)
        context.mark_non_differentiable(*(one for one in made if not differentiable(one.dtype)))
        return made

    @staticmethod
    def backward(context: Any, *gradients: Any) -> Any:
        raise AssertionError("a fake of the front end is not differentiated")


def answer(target: Subgraphs) -> Callable[..., tuple[torch.Tensor, ...]]:
    """What to call on fake tensors in place of a target."""
    return partial(_answer, target)


def _answer(target: Subgraphs, *arguments: Any) -> tuple[torch.Tensor, ...]:
    tensors = [one for one in arguments if isinstance(one, torch.Tensor)]
    results: tuple[torch.Tensor, ...] = _FakeHistory.apply(target, *tensors)  # type: ignore[no-untyped-call]
    return results
