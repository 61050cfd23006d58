"""Views that a graph makes of its inputs where autograd does not look.

Enters: a `Recording` and the SSA graph made of it. Leaves: for each input, whether eager must run
where the input of a call is a view of what needs no gradient (`InputFact.looked_past`).

To autograd, a view made under `no_grad` needs a gradient if what it is a view of does, and that is
never a view itself: of `data[:5].requires_grad_()` it is `data`, which needs none.

    with torch.no_grad(): v = x[1:]
    return v.exp()      needs a gradient where x is a tensor of its own, as it is when we record
"""

from __future__ import annotations

import torch

from windfall import torch_abi
from windfall.autograd.functional import Functional
from windfall.autograd.record import Recording
from windfall.autograd.written_views import tensors_in


def looked_past(recording: Recording, build: Functional) -> tuple[bool, ...]:
    """Of each input, whether something with a history is made of a view of it that was made so. (A
    view that is answered is made again, of the input of the call.)"""
    if not any(recording.needs):
        return (False,) * len(recording.inputs)
    memories = {
        id(build.place(one).memory)
        for step in recording.steps[: recording.forward_steps]
        if any(one.requires_grad and not _was_unseen(one) for one in tensors_in([step.result]))
        for one in tensors_in((*step.args, *step.kwargs.values()))
        if _was_unseen(one) and build.is_known(one)
    }
    return tuple(
        needs and id(build.place(one).memory) in memories
        for one, needs in zip(recording.inputs, recording.needs, strict=True)
    )


def _was_unseen(tensor: torch.Tensor) -> bool:
    try:
        return torch_abi.was_unseen(tensor)
    except RuntimeError:  # it was, and what it looks at has been written where autograd looks
        return True
