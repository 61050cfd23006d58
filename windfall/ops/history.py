"""Fakes with a history: what stands for a tensor that is no leaf.

Enters: fakes that are leaves. Leaves: as many others, of which those that need a gradient are made
by one autograd node. Invariant: they are neither leaves nor views, whatever their strides: eager
lets them be written, as it does those of users.
"""

from __future__ import annotations

from typing import Any

import torch

from windfall.ops.fake_tensor import fake, type_of


class Enter(torch.autograd.Function):
    """The door through which inputs come in."""

    @staticmethod
    def forward(context: Any, *leaves: torch.Tensor) -> Any:
        """Others of the same types."""
        context.set_materialize_grads(False)
        return tuple(fake(type_of(one), requires_grad=False) for one in leaves)

    @staticmethod
    def backward(context: Any, *grads: Any) -> Any:
        """They go through."""
        return grads


def entered(leaves: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
    """Those that need a gradient, with a history; others as they are."""
    needing = [one for one in leaves if one.requires_grad]
    if not needing:
        return leaves
    with torch.enable_grad():
        made = iter(Enter.apply(*needing))  # type: ignore[no-untyped-call]
    return tuple(next(made) if one.requires_grad else one for one in leaves)
