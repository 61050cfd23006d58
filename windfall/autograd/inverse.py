"""How a write through a view changes what the view looks at: one rule for each way to undo it.

Enters: a place that is a view, the new value of the view, and the node of its parent. Leaves: the
new value of the parent. Invariant: rules are pure; they emit functional ops only.

    v = slice(x, 0, 1, 9); v.mul_(3)   =>   x' = slice_scatter(x, mul(v, 3), 0, 1, 9)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import torch
import torch.fx

from windfall.autograd.ssa_memory import Place
from windfall.errors import Unsupported
from windfall.ir.dtype import TensorType
from windfall.ir.node import tensor_type
from windfall.ir.symint import Size, hint_of
from windfall.ops.layout import differ, smaller
from windfall.ops.registry import lookup
from windfall.ops.schema import overload

aten = torch.ops.aten


class Emitter(Protocol):
    """What the rules need of the SSA builder."""

    def emit(self, func: Any, *args: Any, **kwargs: Any) -> torch.fx.Node:
        """A node whose type is inferred."""

    def reshape(self, node: torch.fx.Node, sizes: tuple[Any, ...]) -> torch.fx.Node:
        """The same elements in other sizes."""

    def own_memory(self, node: torch.fx.Node) -> torch.fx.Node:
        """The same value, at offset 0 of memory of its own."""


Rule = Callable[[Emitter, Place, torch.fx.Node, torch.fx.Node], torch.fx.Node]


def _parent_type(place: Place) -> TensorType:
    assert place.parent is not None
    return place.parent.type


def _reshape_back(emitter: Emitter, place: Place, base: Any, new: Any) -> torch.fx.Node:
    return emitter.reshape(new, _parent_type(place).sizes)


def _same_again(emitter: Emitter, place: Place, base: Any, new: Any) -> torch.fx.Node:
    """Views that are their own inverse."""
    return emitter.emit(place.func, new, *place.args, **place.kwargs)


def _permute_back(emitter: Emitter, place: Place, base: Any, new: Any) -> torch.fx.Node:
    rank = len(place.args[0])
    order = [dim % rank for dim in place.args[0]]
    return emitter.emit(aten.permute.default, new, [order.index(dim) for dim in range(rank)])


def _unexpand(emitter: Emitter, place: Place, base: Any, new: Any) -> torch.fx.Node:
    if differ(place.type.elements, _parent_type(place).elements):
        raise Unsupported(200, "an expanded tensor is written")
    return emitter.reshape(new, _parent_type(place).sizes)


def _undo_dtype(emitter: Emitter, place: Place, base: Any, new: Any) -> torch.fx.Node:
    return emitter.emit(aten.view.dtype, new, _parent_type(place).dtype)


def _by_strides(emitter: Emitter, place: Place, base: Any, new: Any) -> torch.fx.Node:
    """Any view that does not overlap itself, as it lies in memory."""
    type = place.type
    if type.dtype != _parent_type(place).dtype or overlaps_itself(type):
        raise Unsupported(200, f"write through {place.func}")
    offset = place.kwargs.get("storage_offset", place.args[2] if len(place.args) > 2 else None)
    return emitter.emit(
        aten.as_strided_scatter.default,
        emitter.own_memory(base),
        new,
        list(type.sizes),
        list(type.strides),
        offset,
    )


def overlaps_itself(type: TensorType) -> bool:
    """Whether two elements of a tensor may lie at the same place (never wrongly denied)."""
    reach: Size = 0
    layout = [pair for pair in zip(type.strides, type.sizes, strict=True) if pair[1] != 1]
    for stride, size in sorted(layout, key=lambda pair: (hint_of(pair[0]), hint_of(pair[1]))):
        if not smaller(reach, stride):
            return True
        reach = reach + stride * (size - 1)
    return False


# By the `inverse` of the view's record.
RULES: dict[str, Rule] = {
    "reshape": _reshape_back,
    "itself": _same_again,
    "permute": _permute_back,
    "expand": _unexpand,
    "dtype": _undo_dtype,
    "strides": _by_strides,
}


def invert(
    emitter: Emitter, place: Place, base: torch.fx.Node, new: torch.fx.Node
) -> torch.fx.Node:
    """The parent's new value, once `place` holds `new`."""
    record = lookup(place.func)
    if record.scatter is not None:
        result = emitter.emit(overload(record.scatter), base, new, *place.args, **place.kwargs)
    elif record.inverse in RULES:
        result = RULES[record.inverse](emitter, place, base, new)
    elif record.inverse is not None:
        result = emitter.emit(overload(record.inverse), new)
    else:
        raise Unsupported(200, f"write through {place.func}")
    assert not differ(tensor_type(result).sizes, _parent_type(place).sizes)
    return result
