"""Which values a program computes wholly, and what must be looked at besides.

Enters: an ATen graph. Leaves: the nodes all of whose elements are computed in any case. Fusion is
substitution, so of `table[i][0]` one element of `i` is read; eager reads them all, and raises if
one is out of bounds. `lower` adds a check for each op that may refuse data and is not computed
wholly (`ops/failing.py`).

Invariant: a node that is said to be computed wholly is; the other way round costs a check more.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable

import torch
import torch.fx

from windfall.codegen import extern
from windfall.ir.dtype import TensorType
from windfall.ir.node import info
from windfall.ops.failing import may_refuse
from windfall.ops.registry import lookup

# Ops that become loops and do not read all that they are given.
PARTIAL = frozenset(
    f"aten.{name}"
    for name in (
        *("as_strided", "diagonal", "narrow", "select", "slice", "split", "split_with_sizes"),
        *("unbind", "unfold", "trace", "constant_pad_nd"),
        *("as_strided_copy", "diagonal_copy", "narrow_copy", "select_copy", "slice_copy"),
        *("split_copy", "split_with_sizes_copy", "unbind_copy", "unfold_copy"),
        *("avg_pool2d", "avg_pool3d", "max_pool2d_with_indices", "max_pool3d_with_indices"),
        *("copy", "fill", "zero", "diagonal_scatter", "select_scatter", "slice_scatter"),
        *("nll_loss_backward", "diagonal_backward", "select_backward", "slice_backward"),
        *("empty_like", "full_like", "ones_like", "zeros_like", "new_empty", "new_full"),
        *("new_ones", "new_zeros"),
    )
)
# Those that read all positions, and of their first operand what stands there.
LOOK_UPS = frozenset(
    f"aten.{name}"
    for name in (
        *("_unsafe_index", "embedding", "gather", "index", "index_select", "nll_loss_forward"),
        "take",
    )
)


def may_fail(graph: torch.fx.Graph) -> bool:
    """Whether a graph may raise because of its data."""
    return any(node.op == "call_function" and may_refuse(node.target) for node in graph.nodes)


def whole(graph: torch.fx.Graph, stored: Iterable[torch.fx.Node]) -> set[torch.fx.Node]:
    """The nodes all of whose elements are computed; `stored` are, as results or their bases."""
    found = set(stored)
    for node in reversed(graph.nodes):
        if any(_reads_all(user, node, found) for user in node.users):
            found.add(node)
    return found


def _reads_all(user: torch.fx.Node, node: torch.fx.Node, found: set[torch.fx.Node]) -> bool:
    if user.op == "output":
        return True
    if user.target is operator.getitem:
        return user in found
    record = lookup(user.target)
    if record is None or record.lower is None or record.name in extern.CALLING:
        return True  # a call is given its operands in memory
    type = info(user).type
    if user not in found or (isinstance(type, TensorType) and type.elements == 0):
        return False
    name = record.name.rpartition(".")[0]
    return name not in PARTIAL and not (name in LOOK_UPS and user.args[0] is node)
