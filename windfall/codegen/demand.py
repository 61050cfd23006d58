"""Which values a program computes wholly, and what must be looked at besides.

Enters: an ATen graph. Leaves: the nodes all of whose elements are computed in any case. Fusion is
substitution, so of `table[i][0]` one element of `i` is read; eager reads them all, and raises if
one is out of bounds. `lower` adds a check for each op that may refuse data and is not computed
wholly (`Op.refuses`, `Op.checks`).

Invariant: a node that is said to be computed wholly is; the other way round costs a check more.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable

import torch
import torch.fx

from windfall.ir.dtype import TensorType
from windfall.ir.node import info
from windfall.ops.registry import lookup


def may_fail(graph: torch.fx.Graph) -> bool:
    """Whether a graph may raise because of its data."""
    return any(node.op == "call_function" and lookup(node.target).refuses for node in graph.nodes)


def whole(graph: torch.fx.Graph, stored: Iterable[torch.fx.Node]) -> set[torch.fx.Node]:
    """The nodes all of whose elements are computed; `stored` are, as results or their bases."""
    found, known = set(stored), _known(graph)
    for node in reversed(graph.nodes):
        if any(_reads_all(user, node, found, known) for user in node.users):
            found.add(node)
    return found


def _known(graph: torch.fx.Graph) -> set[torch.fx.Node]:
    """The nodes made of nothing: where a condition is one, lowering leaves out a branch."""
    found: set[torch.fx.Node] = set()
    for node in graph.nodes:
        if node.op == "call_function" and found.issuperset(node.all_input_nodes):
            found.add(node)
    return found


def _reads_all(
    user: torch.fx.Node, node: torch.fx.Node, found: set[torch.fx.Node], known: set[torch.fx.Node]
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
    if not record.from_memory and (user not in found or not known.isdisjoint(user.all_input_nodes)):
        return False
    return any(
        place in record.reads and (one is node or (isinstance(one, (list, tuple)) and node in one))
        for place, one in enumerate(user.args)
    )


def _may_fold(user: torch.fx.Node, type: TensorType) -> bool:
    """`mask & False` reads no mask."""
    return type.dtype is torch.bool and any(isinstance(one, bool) for one in user.args)
