"""Inputs that may be views when they are written: then the histories of eager's views matter.

Enters: a `Trace` and the SSA graph made of it. Leaves: for each input, whether eager must run
where the input of a call is a view (`InputFact.alone`). Invariant: where it is not said, results
lead to a written view as eager's do.

What eager does when a view is written that autograd sees: the base gets a history in which the
write stands, and each view of it, the written one too, a new node when it is next asked: it leads
to the base, past all views between. A view that was made before the write is then no longer made of
the input, as it is where the input is a tensor of its own:

    v = x.view_as(x); x.mul_(2); return v.sum()      leads to x; if x is a view: to what x looks at

A write under `no_grad` gives a view a new node too. Whatever is made of it afterwards leads to that
one; our nodes are attached before anything is written.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch

from windfall.autograd.functional import Functional
from windfall.autograd.ssa_memory import Memory
from windfall.autograd.tracing import Trace, written_by
from windfall.identity_map import IdentityMap
from windfall.ops import fake as fakes


def must_be_alone(recording: Trace, build: Functional, index: int) -> bool:
    """Whether only an input that is no view may be written as the graph does it."""
    if not recording.versions[index]:
        return False
    if recording.visible[index] and recording.needs[index]:
        return _outlives_a_write(recording, build, recording.inputs[index])
    return recording.visible[index] or recording.needs[index]


def _outlives_a_write(recording: Trace, build: Functional, whole: torch.Tensor) -> bool:
    """Whether a view of an input is made before a write to its memory, and used after it; or
    something else is made between two writes: the first of them gives the input another history."""
    memory = build.place(whole).memory
    made: IdentityMap[torch.Tensor, int] = IdentityMap()  # how many writes there were before
    writes = 0

    def is_older(one: torch.Tensor) -> bool:
        return one in made and made[one] < writes

    is_read = False  # since the first write
    for step in recording.steps[: recording.forward_steps]:
        operands = [*tensors_in((*step.args, *step.kwargs.values()))]
        if any(map(is_older, operands)):
            return True
        results = [*tensors_in([step.result])]
        for one in results:
            if one is not whole and one not in made and lies_in(build, one, memory):
                made[one] = writes
        if any(lies_in(build, one, memory) for one in tensors_in(written_by(step))):
            if is_read:
                return True
            writes += 1
        elif writes and not all(lies_in(build, one, memory) for one in results):
            is_read = is_read or any(lies_in(build, one, memory) for one in operands)
    return any(map(is_older, tensors_in(recording.outputs)))


def lies_in(build: Functional, tensor: torch.Tensor, memory: Memory) -> bool:
    """Whether a tensor of the recording looks at a memory."""
    return build.is_known(tensor) and build.place(tensor).memory is memory


def tensors_in(values: Sequence[Any]) -> Iterator[torch.Tensor]:
    """The tensors without data among values and lists of them."""
    for one in values:
        if fakes.is_fake(one):
            yield one
        elif isinstance(one, list | tuple):
            yield from tensors_in(one)
