"""What torch's wrappers around optimizers and profiled blocks mean: they are interpreted."""

from __future__ import annotations

from typing import Any

import torch


def step_in_grad_mode(step: Any, *args: Any, **kwargs: Any) -> Any:
    """A step of an optimizer, differentiated only where the optimizer was asked for that."""
    before = torch.is_grad_enabled()
    try:
        torch.set_grad_enabled(args[0].defaults["differentiable"])
        return step(*args, **kwargs)
    finally:
        torch.set_grad_enabled(before)


def step_of_schedule(step: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
    """A step of an optimizer that a schedule of its rate wants to hear of."""
    optimizer._opt_called = True
    return step(optimizer, *args, **kwargs)


def enter_profiled(block: Any) -> Any:
    """While compiled code runs no profiler does, so there is nobody to tell. Where a break leaves
    the block to CPython it is left without a word too: nothing was begun."""
    block.run_callbacks_on_exit = False
    return block


def unscale_gradients(gradients: Any, found_infinite: Any, scale: Any) -> None:
    """What a `GradScaler` asks of one kernel of torch: gradients are looked at before they are
    scaled. That kernel tells no version counter of its writes; neither does this."""
    bad = torch.isfinite(gradients[0]).all().logical_not()
    gradients[0].data.mul_(scale)
    for one in gradients[1:]:
        bad = bad | torch.isfinite(one).all().logical_not()
        one.data.mul_(scale)
    found_infinite.data.masked_fill_(bad, 1.0)
