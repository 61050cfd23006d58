"""Histories that a node does not save: what gradients of its gradients are attached to.

Enters: a region, and the tensors of a call. Leaves: for inputs that are not saved, though what is
saved was made of them, a tensor with their history. Invariant: it keeps none of their data alive.
Leaves need none: the node's own edges lead to them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from windfall.ir.stages import BackwardRegion

# What a node is attached to that leads to no input, and yet is one: its result needs a gradient, as
# that of a view made under `no_grad` does in eager, and nobody's hooks are called.
with torch.inference_mode(False):
    NOWHERE = (torch.empty((), requires_grad=True),)


class Edge(torch.autograd.Function):
    """A tensor with the history of another and without its data: what gradients of gradients are
    attached to, where the node does not save that other one."""

    @staticmethod
    def forward(context: Any, tensor: torch.Tensor) -> Any:
        """One element, seen with all sizes of the tensor."""
        context.set_materialize_grads(False)
        return tensor.new_empty(()).expand(tensor.shape)

    @staticmethod
    def backward(context: Any, tangent: Any) -> Any:
        """It goes through."""
        return tangent


# `apply` without its look for functorch and `setup_context`, as in `compiled_graph.py`.
_edge: Callable[..., Any] = super(torch.autograd.Function, Edge).apply


def unsaved(region: BackwardRegion, of_gradients: bool) -> tuple[int, ...]:
    """Inputs (then results) that the node is attached to and does not save, though what it saves is
    made of them: gradients of gradients may go there."""
    split, saves = region.split, region.saves
    count = len(split.signature.inputs)
    if of_gradients:  # it takes histories apart from values
        return tuple(one for one in region.component.inputs if one not in saves.inputs)
    (output,) = split.forward.find_nodes(op="output")
    results: Any = output.args[0]
    last = count + split.visible
    foreign = [one - count for one in region.component.inputs if count <= one < last]
    waiting = [results[one] for one in saves.results if one not in foreign]
    seen = {*waiting, *(results[one] for one in foreign)}
    while waiting:
        new = [one for one in waiting.pop().all_input_nodes if one not in seen]
        seen.update(new)
        waiting += new
    made_of = {
        index
        for index, node in enumerate(split.forward.find_nodes(op="placeholder"))
        if node in seen or not node.users  # what forward never reads carries gradients alone
    }
    made_of.update(count + one for one in foreign if one not in saves.results)
    made_of.update(one for one in region.component.inputs if one >= last)  # views
    return tuple(
        one for one in region.component.inputs if one in made_of and one not in saves.inputs
    )


def edges_of(tensors: Any, wanted: Sequence[int]) -> dict[int, Any]:
    """Something with the history of each tensor that is wanted; leaves are found by the node's."""
    found: dict[int, Any] = {}
    for index in wanted:
        one = tensors[index]
        if one.grad_fn is not None:
            with torch.enable_grad():
                found[index] = _edge(one)
    return found
