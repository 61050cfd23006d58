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

from windfall import torch_abi
from windfall.ir.node import copy_into


class _CustomFunction(torch.autograd.Function):
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
        """The second graph: where its own gradient is wanted too, with the grad modes it has."""
        custom = context.custom
        if custom.once:
            return _once(context, *grads)
        if not torch.is_grad_enabled():
            return (None, *custom.backward_part(*grads, *context.saved_tensors))
        with torch.enable_grad():
            return (None, *custom.backward_in_modes(*grads, *context.saved_tensors))


@torch.autograd.function.once_differentiable
def _once(context: Any, *grads: Any) -> Any:
    return (None, *context.custom.backward_part(*grads, *context.saved_tensors))


class CustomGradient:
    """See the module. `follows_tangents`: each gradient is made of gradients of results, not of
    saved values alone; `sums_tangents`: it is linear in them, and made of all of them."""

    def __init__(
        self,
        name: str,
        forward: torch.fx.Graph,
        backward: torch.fx.Graph,
        count: int,
        inputs_kept: tuple[int, ...],
        constant: tuple[int, ...],
        dirty: tuple[int, ...] = (),
        once: bool = False,
    ) -> None:
        self.forward_part = torch.fx.GraphModule({}, forward).forward
        self.backward_in_modes = torch.fx.GraphModule({}, backward).forward
        self.backward_part = torch.fx.GraphModule({}, _without_modes(backward)).forward
        self.once = once
        self.parts = (name, forward, backward, count, inputs_kept, constant, dirty, once)
        self.count = count
        self.inputs_kept = inputs_kept
        self.constant = constant
        self.dirty = dirty
        tangents = _Tangents(backward, count, constant)
        self.follows_tangents, self.sums_tangents = tangents.are_followed(), tangents.are_summed()
        facts = (
            count,
            inputs_kept,
            constant,
            *([dirty] if dirty else ()),
            *(["once"] if once else ()),
        )
        parts = (str(forward), str(backward), *map(str, facts))
        digest = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]
        word = "".join(c if c.isalnum() else "_" for c in name.replace("<locals>", ""))
        self.__name__ = self.__qualname__ = f"{word}_{digest}"
        self.__module__ = __name__

    def __call__(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Apply it."""
        results: tuple[torch.Tensor, ...] = _CustomFunction.apply(self, *inputs)  # type: ignore[no-untyped-call]
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
        *,
        once: bool = False,
    ) -> CustomGradient:
        """From nodes of another graph: `inputs` stand outside of both parts, `grads` are the
        gradients of `results`, `gradients` those of `inputs`; forward writes the inputs `dirty`;
        `once`: the backward has no derivative."""
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
        facts = tuple(held), tuple(constant), tuple(dirty), once
        return cls(name, made, again, len(results), *facts)


def _without_modes(backward: torch.fx.Graph) -> torch.fx.Graph:
    """A backward as it is where nobody differentiates it."""
    if not any(node.target is torch_abi.set_grad_mode for node in backward.nodes):
        return backward
    made = torch.fx.Graph()
    place: dict[torch.fx.Node, torch.fx.Node] = {}
    for node in backward.nodes:
        if node.target is not torch_abi.set_grad_mode:
            place[node] = copy_into(made, node, place.__getitem__)
    return made


# Of another tensor they take its sizes and type alone. (Zeros are zeros without a tangent too.)
_OF_THE_TYPE_OF = frozenset(
    ("ones_like", "full_like", "empty_like", "rand_like", "randn_like", "randint_like")
) | {"new_ones", "new_full", "new_empty", "new_tensor"}
# What is linear in its operands: all of them together, one of them, the first of them.
_LINEAR_IN_ALL = frozenset(("add", "sub", "cat", "stack"))
_LINEAR_IN_ONE = frozenset(("mul", "matmul", "mm", "bmm"))
_LINEAR_IN_FIRST = frozenset((
    "neg", "div", "truediv", "sum", "mean", "clone", "contiguous", "to", "type_as", "view",
    "view_as", "reshape", "flatten", "t", "transpose", "permute", "unsqueeze", "squeeze", "expand",
))  # fmt: skip


class _Tangents:
    """Of which tangents each node of a backward is made, and whether it is linear in them."""

    def __init__(self, backward: torch.fx.Graph, count: int, constant: Sequence[int]) -> None:
        self._of: dict[torch.fx.Node, frozenset[int]] = {}
        self._linear: set[torch.fx.Node] = set()
        self._every = frozenset(range(count)).difference(constant)
        self._gradients: list[torch.fx.Node] = []
        for index, node in enumerate(backward.nodes):
            if node.op == "output":
                found: Any = node.args[0]
                self._gradients = [one for one in found if one is not None]
            elif index < count:
                self._of[node] = frozenset((index,))
                self._linear.add(node)
            elif _name(node) not in _OF_THE_TYPE_OF:
                self._note(node)

    def _note(self, node: torch.fx.Node) -> None:
        name, operands = _name(node), node.all_input_nodes
        if name.endswith("_as"):  # of a type that is no value
            operands = operands[:1]
        made = [one for one in operands if one in self._of]
        if not made:
            return
        self._of[node] = frozenset().union(*(self._of[one] for one in made))
        alone = made == operands[:1]
        numbers = any(isinstance(one, int | float | complex) for one in node.args)
        if not self._linear.issuperset(made):
            return
        if (
            (name in _LINEAR_IN_ALL and made == operands and not numbers)
            or (name in _LINEAR_IN_ONE and len(made) == 1 and _times(node, made[0]) == 1)
            or (name in _LINEAR_IN_FIRST and alone and node.args[:1] == (made[0],))
        ):
            self._linear.add(node)

    def are_followed(self) -> bool:
        """Whether each gradient is made of some tangent."""
        return all(one in self._of for one in self._gradients)

    def are_summed(self) -> bool:
        """Whether each gradient is a sum of terms, one for each tangent that is no constant's: a
        term may be left out where it has no tangent."""
        return all(
            self._of.get(one) == self._every and one in self._linear for one in self._gradients
        )


def _name(node: torch.fx.Node) -> str:
    return str(getattr(node.target, "__name__", node.target))


def _times(node: torch.fx.Node, operand: torch.fx.Node) -> int:
    return sum(one is operand for one in (*node.args, *node.kwargs.values()))
