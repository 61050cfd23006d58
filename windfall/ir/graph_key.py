"""What makes two graphs the same work: a hashable that equal graphs share.

Enters: a `torch.fx.Graph` with `NodeInfo`s. Leaves: a tuple, or None where a graph holds something
that cannot be compared (then it is compiled for itself). Invariant: graphs with equal keys compute
the same of inputs of the same types; names, user lines and regions do not count.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Any

import torch
import torch.fx

from windfall.ir.node import constant, info
from windfall.ir.symint import Expression

_PLAIN = (
    *(int, float, str, bool, type(None), complex, Expression),
    *(torch.dtype, torch.device, torch.layout, torch.memory_format),
)


class NoKey(Exception):
    """Something in the graph has no key."""


def graph_key(graph: torch.fx.Graph) -> Hashable | None:
    """The key of a graph without symbols."""
    places: dict[torch.fx.Node, int] = {}
    rows: list[Hashable] = []
    try:
        for node in graph.nodes:
            rows.append(_row(node, places))
            places[node] = len(places)
    except NoKey:
        return None
    return tuple(rows)


def _row(node: torch.fx.Node, places: Mapping[torch.fx.Node, int]) -> Hashable:
    target: Any = node.target
    if node.op == "placeholder":
        target = None
    elif node.op == "get_attr":
        # The graph that was compiled keeps its constants, so no address is used again.
        target = id(constant(node))
    return (
        node.op,
        target,
        value_key(node.args, places.__getitem__),
        value_key(node.kwargs, places.__getitem__),
        info(node).type if node.op == "placeholder" else None,
        info(node).checkpoint if node.op != "output" else None,  # what is kept for the gradients
    )


def value_key(value: Any, reference: Callable[[torch.fx.Node], Hashable]) -> Hashable:
    """The key of an argument; `reference` gives that of a node."""
    if isinstance(value, torch.fx.Node):
        return ("node", reference(value))
    if isinstance(value, list | tuple):
        return (type(value), *(value_key(one, reference) for one in value))
    if isinstance(value, Mapping):
        return tuple((name, value_key(one, reference)) for name, one in value.items())
    if isinstance(value, slice):
        parts = (value.start, value.stop, value.step)
        return ("slice", *(value_key(one, reference) for one in parts))
    if isinstance(value, float):
        return (float, value.hex())  # NaN is not equal to itself, 0.0 is equal to -0.0
    if isinstance(value, _PLAIN) or value is Ellipsis:
        return (type(value), value)
    raise NoKey
