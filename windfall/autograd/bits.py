"""Masks kept as bits: eight elements that are 0 or 1 in a byte.

Enters: a saved node all of whose elements are 0 or 1 (dropout's mask). Leaves: in forward the nodes
that pack it, in backward those that unpack it: ordinary ATen ops, fused with whatever stands around
them. Invariant: unpacked, it is what was packed, element by element, of the same type.

    f32[4, 16]  →  u8[8]  →  f32[4, 16]
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
import torch.fx

from windfall.ir.dtype import TensorType
from windfall.ir.node import NodeInfo, add_node, info, set_info, tensor_type
from windfall.ops import fake as fakes
from windfall.ops import registry

aten = torch.ops.aten
Node = torch.fx.Node

_FEW = 1024  # elements: below it packing would cost more than it spares


def packed_type(node: Node) -> TensorType | None:
    """The type of a node's bits; None: it is kept as it is."""
    type = info(node).type
    if node.op != "call_function" or not registry.lookup(node.target).zero_or_one:
        return None
    if not isinstance(type, TensorType) or not type.is_contiguous:
        return None
    count = type.elements
    if not isinstance(count, int) or count < _FEW or count % 8 or not type.dtype.is_floating_point:
        return None
    return TensorType.contiguous(torch.uint8, (count // 8,))


def pack(graph: torch.fx.Graph, node: Node) -> Node:
    """The bits of a node of `graph`."""
    bits, call = packed_type(node), _Calls(graph, info(node))
    assert bits is not None
    rows = call(aten.view.default, node, [*bits.sizes, 8])
    weights = call(aten.exp2.default, call(aten.arange.default, 8, dtype=torch.float32, **_CPU))
    weighed = call(aten.mul.Tensor, rows, weights)
    sums = call(aten.sum.dim_IntList, weighed, [1], dtype=torch.float32)
    return call(aten._to_copy.default, sums, dtype=torch.uint8)


def unpack(graph: torch.fx.Graph, bits: Node, node: Node) -> Node:
    """What was packed: `bits` is a node of `graph`, `node` the one that they are of."""
    type, call = tensor_type(node), _Calls(graph, info(node))
    places = call(aten.arange.default, 8, dtype=torch.uint8, **_CPU)
    column = call(aten.unsqueeze.default, bits, 1)
    ones = call(aten.bitwise_and.Scalar, call(aten.bitwise_right_shift.Tensor, column, places), 1)
    numbers = call(aten._to_copy.default, ones, dtype=type.dtype)
    return call(aten.view.default, numbers, list(type.sizes))


_CPU = {"device": torch.device("cpu")}


class _Calls:
    """Adds nodes to a graph that belong where `known` belongs."""

    def __init__(self, graph: torch.fx.Graph, known: NodeInfo) -> None:
        self._graph = graph
        self._known = known

    def __call__(self, func: Any, *args: Any, **kwargs: Any) -> Node:
        types = [tensor_type(one) if isinstance(one, Node) else one for one in args]
        name = func.overloadpacket.__name__
        made = add_node(self._graph, "call_function", func, args, kwargs, name)
        type = fakes.infer(func, types, kwargs)
        return set_info(made, replace(self._known, type=type))
