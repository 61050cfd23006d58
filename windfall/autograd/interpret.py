"""Graphs run by eager, op by op: the oracle of this room, and backward where no code fits.

Enters: a graph of ATen overloads (`interpreter`) or a captured one (`replayer`). Leaves: a callable
on real tensors that answers the tuple of the graph's results. Invariant: values are dropped after
their last use, so that peak memory is that of the graph.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.fx

from windfall import torch_abi
from windfall.autograd.tracing import call, substitute
from windfall.ir import node as node_info
from windfall.ir.node import constant
from windfall.ir.symint import Expression
from windfall.ops.symbolic import at

Callee = Callable[..., tuple[Any, ...]]


def interpreter(graph: torch.fx.Graph, symbols: Sequence[Expression] = ()) -> Callee:
    """A callable that runs an ATen graph below autograd: no history, no view tracking. The values
    of `symbols` are passed before all tensors."""
    run = _with_sizes(graph, symbols) if symbols else replayer(graph)

    def interpret(*args: Any) -> tuple[Any, ...]:
        with torch_abi.below_autograd():
            return run(*args)

    return interpret


def _with_sizes(graph: torch.fx.Graph, symbols: Sequence[Expression]) -> Callee:
    names = [str(one) for one in symbols]

    def run(*args: Any) -> tuple[Any, ...]:
        values = dict(zip(names, args, strict=False))
        return replayer(at_sizes(graph, values))(*args[len(names) :])

    return run


def at_sizes(graph: torch.fx.Graph, values: Mapping[str, int]) -> torch.fx.Graph:
    """A copy of an ATen graph with integers in place of the sizes that vary."""
    result = torch.fx.Graph()
    result.owning_module = graph.owning_module
    made: dict[torch.fx.Node, torch.fx.Node] = {}
    for node in graph.nodes:
        copy = made[node] = node_info.copy_into(result, node, made.__getitem__)
        copy.args = at(copy.args, values)
        copy.kwargs = {name: at(one, values) for name, one in copy.kwargs.items()}
        known = node.meta.get(node_info.KEY)
        if known is not None:
            node_info.set_info(copy, dataclasses.replace(known, type=at(known.type, values)))
    return result


def replayer(graph: torch.fx.Graph) -> Callee:
    """A callable that runs a graph as it stands, in the thread's present modes."""
    nodes = list(graph.nodes)
    last_uses = _last_uses(nodes)

    def replay(*args: Any) -> tuple[Any, ...]:
        values: dict[torch.fx.Node, Any] = {}
        given = iter(args)
        for node in nodes:
            if node.op == "placeholder":
                values[node] = next(given)
            elif node.op == "get_attr":
                values[node] = constant(node)
            elif node.op == "output":
                return _as_tuple(substitute(node.args[0], values))
            else:
                values[node] = call(node, values)
            for dead in last_uses.get(node, ()):
                values.pop(dead, None)
        raise AssertionError("the graph has no output node")

    return replay


def _as_tuple(result: Any) -> tuple[Any, ...]:
    return tuple(result) if isinstance(result, list | tuple) else (result,)


def _last_uses(nodes: list[torch.fx.Node]) -> dict[torch.fx.Node, list[torch.fx.Node]]:
    seen: set[torch.fx.Node] = set()
    dying: dict[torch.fx.Node, list[torch.fx.Node]] = {}
    for node in reversed(nodes):
        for used in node.all_input_nodes:
            if used not in seen:
                seen.add(used)
                dying.setdefault(node, []).append(used)
    return dying
