"""A value laid out in memory as a given type says: functional ops that change strides alone.

Enters: a node, a type of the same sizes and dtype. Leaves: a node of that type. Invariant: nothing
is emitted where the layout is already right (sizes of 1 have no layout).
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.fx

from windfall.errors import Specialise
from windfall.ir.dtype import TensorType
from windfall.ir.node import tensor_type
from windfall.ir.symint import hint_of
from windfall.ops.layout import differ, is_dense, is_non_overlapping_and_dense

aten = torch.ops.aten
Emit = Callable[..., torch.fx.Node]


def same_layout(one: TensorType, other: TensorType) -> bool:
    """Whether two types describe the same elements at the same places."""
    if one.dtype != other.dtype or differ(one.sizes, other.sizes):
        return False
    if 0 in one.sizes:  # nobody reads through its strides, but a leaf compares its gradient's
        return one.strides == other.strides
    return is_dense(one.sizes, one.strides, other.strides)


def restride(
    emit: Emit, node: torch.fx.Node, type: TensorType, old: torch.fx.Node | None = None
) -> torch.fx.Node:
    """`node` with the strides of `type`; `old` is some value of that very type, if there is one."""
    if same_layout(tensor_type(node), type):
        return node
    # Whatever the strides of an empty tensor are, it is dense.
    if 0 not in type.sizes and is_non_overlapping_and_dense(type.sizes, type.strides):
        return _dense(emit, node, type)
    return _copied(emit, node, type, old)


def surely_same_layout(one: TensorType, other: TensorType) -> bool:
    """The same as far as it is known: nothing may be assumed any more in a backward pass, which
    runs for whatever sizes its forward pass ran for."""
    try:
        return same_layout(one, other)
    except Specialise:
        return False


def restride_surely(emit: Emit, node: torch.fx.Node, type: TensorType) -> torch.fx.Node:
    """`node` with the strides of `type`, in a backward pass: where it is not known that it has them
    it is copied."""
    try:
        return restride(emit, node, type)
    except Specialise:
        return _copied(emit, node, type, None)


def _copied(
    emit: Emit, node: torch.fx.Node, type: TensorType, old: torch.fx.Node | None
) -> torch.fx.Node:
    """The elements in memory like `old`'s, or else in new memory that lies as `type` says."""
    if old is None:
        old = emit(
            aten.empty_strided.default,
            list(type.sizes),
            list(type.strides),
            dtype=type.dtype,
            device=type.device,
        )
    return emit(aten.copy.default, old, node)


def outermost_first(type: TensorType) -> list[int]:
    """The dimensions of a dense type, as they lie in memory. (Its strides are products of its
    sizes, so that their order is the same whatever the sizes are.)"""
    layout = [
        (hint_of(stride), hint_of(size))
        for stride, size in zip(type.strides, type.sizes, strict=True)
    ]
    return sorted(range(type.rank), key=layout.__getitem__, reverse=True)


def _dense(emit: Emit, node: torch.fx.Node, type: TensorType) -> torch.fx.Node:
    """A row-major copy, seen with its dimensions in the wanted order."""
    order = outermost_first(type)
    if order == list(range(type.rank)):
        return emit(aten.clone.default, node, memory_format=torch.contiguous_format)
    node = emit(aten.permute.default, node, order)
    node = emit(aten.clone.default, node, memory_format=torch.contiguous_format)
    return emit(aten.permute.default, node, [order.index(dim) for dim in range(type.rank)])
