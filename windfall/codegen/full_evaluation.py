"""Which values a program computes wholly, and what must be looked at besides.

Enters: an ATen graph. Leaves: the nodes all of whose elements are computed in any case. Fusion is
substitution, so of `table[i][0]` one element of `i` is read; eager reads them all, and raises if
one is out of bounds. `lower` adds a check for each op that may refuse data and is not computed
wholly (`Op.refuses`, `Op.checks`).

Invariant: a node that is said to be computed wholly is; the other way round costs a check more.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping
from typing import Any

import torch
import torch.fx

from windfall.codegen.builder import LoopBuilder
from windfall.ir.dtype import TensorType
from windfall.ir.loop import Lazy
from windfall.ir.node import info
from windfall.ops.registry import lookup


def may_fail(graph: torch.fx.Graph) -> bool:
    """Whether a graph may raise because of its data."""
    return any(node.op == "call_function" and lookup(node.target).refuses for node in graph.nodes)


def whole(graph: torch.fx.Graph, stored: Iterable[torch.fx.Node]) -> set[torch.fx.Node]:
    """The nodes all of whose elements are computed; `stored` are, as results or their bases."""
    found, decided = set(stored), _decided(graph)
    for node in reversed(graph.nodes):
        if any(_reads_all(user, node, found, decided) for user in node.users):
            found.add(node)
    return found


def _decided(graph: torch.fx.Graph) -> set[torch.fx.Node]:
    """Conditions made of nothing that lowering finds to be constant: of what reads them, it leaves
    out a branch."""
    values: dict[torch.fx.Node, Any] = {}
    for node in graph.nodes:
        if node.op == "call_function" and values.keys() >= set(node.all_input_nodes):
            values[node] = None
    asked = [
        node for node in values if _is_condition(node) and not values.keys() >= set(node.users)
    ]
    builder = LoopBuilder()
    for node in values if asked else ():
        values[node] = _lowered(builder, node, values)
    return {node for node in asked if _is_constant(builder, values[node])}


def _is_condition(node: torch.fx.Node) -> bool:
    type = info(node).type
    return isinstance(type, TensorType) and type.dtype is torch.bool and type.elements != 0


def _lowered(builder: LoopBuilder, node: torch.fx.Node, values: Mapping[torch.fx.Node, Any]) -> Any:
    lower = lookup(node.target).lower
    if lower is None or any(not isinstance(values[one], Lazy) for one in node.all_input_nodes):
        return None
    given: Any = torch.fx.map_arg((node.args, node.kwargs), values.__getitem__)
    try:
        return lower(builder, *given[0], **given[1])
    except (TypeError, NotImplementedError):
        return None  # it needs a number where a size varies, and will ask for it in its turn


def _is_constant(builder: LoopBuilder, value: Any) -> bool:
    return isinstance(value, Lazy) and builder.root(value).op == "constant"


def _reads_all(
    user: torch.fx.Node, node: torch.fx.Node, found: set[torch.fx.Node], decided: set[torch.fx.Node]
) -> bool:
    if user.op == "output":
        return True
    if user.target is operator.getitem:
        return user in found
    record = lookup(user.target)
    if record.lower is None:
        return True  # a call is given its operands in memory
    type = info(user).type
    if isinstance(type, TensorType) and (type.elements == 0 or _may_fold(user, type)):
        return False
    folds = not decided.isdisjoint(user.all_input_nodes)
    if not record.from_memory and (folds or user not in found):
        return False
    return any(
        place in record.reads and (one is node or (isinstance(one, (list, tuple)) and node in one))
        for place, one in enumerate(user.args)
    )


def _may_fold(user: torch.fx.Node, type: TensorType) -> bool:
    """`mask & False` reads no mask."""
    return type.dtype is torch.bool and any(isinstance(one, bool) for one in user.args)
