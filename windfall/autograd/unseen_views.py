"""Views that a graph makes of its inputs where autograd does not look.

Enters: a `Trace` and the SSA graph made of it. Leaves: for each input, whether eager must run
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
from windfall.autograd.tracing import Trace
from windfall.autograd.written_views import lies_in, tensors_in


def looked_past(trace: Trace, build: Functional) -> frozenset[int]:
    """The inputs of whose views something with a history is made, where a view was made so. (A view
    that is answered is made again, of the input of the call.)"""
    if not any(trace.needs):
        return frozenset()
    unseen = [
        one
        for step in trace.steps[: trace.forward_steps]
        if any(one.requires_grad and not _was_unseen(one) for one in tensors_in([step.result]))
        for one in tensors_in((*step.args, *step.kwargs.values()))
        if _was_unseen(one)
    ]
    return frozenset(
        index
        for index, needs in enumerate(trace.needs if unseen else ())
        if needs and _lies_in_any(build, unseen, trace.inputs[index])
    )


def _lies_in_any(build: Functional, views: list[torch.Tensor], tensor: torch.Tensor) -> bool:
    memory = build.place(tensor).memory
    return any(lies_in(build, one, memory) for one in views)


def _was_unseen(tensor: torch.Tensor) -> bool:
    try:
        return torch_abi.was_unseen(tensor)
    except RuntimeError:  # it was, and what it looks at has been written where autograd looks
        return True
