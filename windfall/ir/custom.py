"""A function with a gradient of its own, as two graphs: the target of one node.

Enters: nodes of a graph under construction that are its forward and its backward. Leaves: a
callable of tensors that autograd differentiates by the second graph. Invariant: neither graph has
effects but on inputs that are marked as written (`dirty`); both are made of torch functions only,
so the callable may be run on tensors without data.

    y, = custom(x)        forward(x) → (y, what backward needs); backward(dy, …) → (dx,)
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import torch
import torch.fx

from windfall.ir.node import copy_into


class _Function(torch.autograd.Function):
    """The door to autograd."""

    @staticmethod
    def forward(context: Any, custom: CustomGradient, *inputs: torch.Tensor) -> Any:
        """What forward gives; what backward needs is saved."""
        found = custom.forward_part(*inputs)
        results, kept = found[: custom.count], found[custom.count :]
        context.custom = custom
        context.mark_dirty(*(inputs[index] for index in custom.dirty))
        context.save_for_backward(*(inputs[index] for index in custom.inputs_kept), *kept)
        context.mark_non_differentiable(*(results[index] for index in custom.constant))
        return tuple(results)

    @staticmethod
    def backward(context: Any, *grads: Any) -> Any:
        """The second graph."""
        return (None, *context.custom.backward_part(*grads, *context.saved_tensors))


class CustomGradient:
    """See the module."""

    def __init__(
        self,
        name: str,
        forward: torch.fx.Graph,
        backward: torch.fx.Graph,
        count: int,
        inputs_kept: tuple[int, ...],
        constant: tuple[int, ...],
        dirty: tuple[int, ...] = (),
    ) -> None:
        self.forward_part = torch.fx.GraphModule({}, forward).forward
        self.backward_part = torch.fx.GraphModule({}, backward).forward
        self.parts = (name, forward, backward, count, inputs_kept, constant, dirty)
        self.count = count
        self.inputs_kept = inputs_kept
        self.constant = constant
        self.dirty = dirty
        facts = (count, inputs_kept, constant, *([dirty] if dirty else ()))
        parts = (str(forward), str(backward), *map(str, facts))
        digest = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]
        word = "".join(c if c.isalnum() else "_" for c in name.replace("<locals>", ""))
        self.__name__ = self.__qualname__ = f"{word}_{digest}"
        self.__module__ = __name__

    def __call__(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Apply it."""
        results: tuple[torch.Tensor, ...] = _Function.apply(self, *inputs)  # type: ignore[no-untyped-call]
        return results

    @classmethod
    def cut(
        cls,
        name: str,
        inputs: Sequence[torch.fx.Node],
        forward: Sequence[torch.fx.Node],
        backward: Sequence[torch.fx.Node],
        results: Sequence[torch.fx.Node],
        grads: Sequence[torch.fx.Node],
        gradients: Sequence[torch.fx.Node | None],
        constant: Sequence[int],
        dirty: Sequence[int] = (),
    ) -> CustomGradient:
        """From nodes of another graph: `inputs` stand outside of both parts, `grads` are the
        gradients of `results`, `gradients` those of `inputs`; forward writes the inputs `dirty`."""
        first = set(forward)
        used = {one for node in backward for one in node.all_input_nodes}
        used |= {one for one in gradients if one is not None}
        kept = [node for node in forward if node in used]
        held = [index for index, node in enumerate(inputs) if node in used]
        made = torch.fx.Graph()
        place: dict[torch.fx.Node, torch.fx.Node] = {}
        for index, node in enumerate(inputs):  # one may be given twice
            place.setdefault(node, made.placeholder(f"input{index}"))
        for node in forward:
            place[node] = copy_into(made, node, place.__getitem__)
        made.output(tuple(place[node] for node in (*results, *kept)))
        again = torch.fx.Graph()
        place = {node: again.placeholder(f"grad{index}") for index, node in enumerate(grads)}
        for index in held:
            place.setdefault(inputs[index], again.placeholder(f"input{index}"))
        for index, node in enumerate(kept):
            place[node] = again.placeholder(f"kept{index}")
        for node in backward:
            place[node] = copy_into(again, node, place.__getitem__)
        again.output(tuple(place[one] if one is not None else None for one in gradients))
        assert all(node in first or node in inputs for node in results), "results are made inside"
        return cls(name, made, again, len(results), tuple(held), tuple(constant), tuple(dirty))
