"""Functions with a gradient of their own, whose gradient is no linear map of tangents.

Enters: the recorded results of a graph, as autograd's history knows them. Leaves: nothing, or a
refusal (then the graph runs op by op). Invariant: where nothing is refused, a backward graph that
is recorded for all tangents serves any of them.

That holds of torch's own derivatives: they are linear, so what depends on absent tangents alone is
zero, and None. What users write is any function. Eager calls it when one of its results has a
gradient, with zeros for the others:

    a, b = F.apply(x, y)        a.sum().backward() asks for F.backward(1, 0), which may have
    return a, b                 a gradient for y too
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch

from windfall import torch_abi
from windfall.errors import Unsupported
from windfall.ir.custom import CustomGradient


def refuse_partial_gradients(results: Sequence[torch.Tensor], door: Any) -> None:
    """Refuse a graph if some function could be given gradients of other results of its own than
    those that it was recorded with, or answers gradients that are made of none."""
    reached: dict[Any, list[frozenset[int]]] = {}
    for one in results:
        for node, slots in _functions(one, door).items():
            reached.setdefault(node, []).append(frozenset(slots))
    for node, found in reached.items():
        custom = getattr(node, "custom", None)
        if not isinstance(custom, CustomGradient):  # of an op that others have registered
            if len({*found}) > 1:
                raise Unsupported(223, node.name())
            continue
        differ = len({*found}) > 1 and not custom.sums_tangents
        if differ or not custom.follows_tangents:
            raise Unsupported(223, custom.__name__)


def refuse_second_gradients(results: Sequence[torch.Tensor], door: Any) -> None:
    """Raise what eager does where gradients of `once_differentiable` functions are differentiated:
    a pass that asks for gradients of inputs goes past the node that says so."""
    for one in results:
        if any(node.name() == torch_abi.DELAYED_ERROR for node, _ in _edges(one, door)):
            raise RuntimeError(
                "trying to differentiate twice a function that was marked with @once_differentiable"
            )


def _functions(result: torch.Tensor, door: Any) -> dict[Any, set[int]]:
    """The nodes of functions that a result leads to, and at which of their results."""
    found: dict[Any, set[int]] = {}
    for node, slot in _edges(result, door):
        if _is_users(node):
            found.setdefault(node, set()).add(slot)
    return found


def _is_users(node: Any) -> bool:
    """Whether a node is of a function that is written in Python, and not by us."""
    if not isinstance(node, torch.autograd.function.BackwardCFunction):
        return False
    ours = torch_abi.function_of(node).__module__.startswith("windfall.")
    return not ours or isinstance(getattr(node, "custom", None), CustomGradient)


def _edges(result: torch.Tensor, door: Any) -> Iterator[tuple[Any, int]]:
    """Each edge of a history once."""
    waiting: list[tuple[Any, int]] = [(result.grad_fn, result.output_nr)]
    seen = {*waiting}
    while waiting:
        node, slot = waiting.pop()
        if node is None or node is door:
            continue
        yield node, slot
        new = [edge for edge in node.next_functions if edge not in seen]
        seen.update(new)
        waiting += new
