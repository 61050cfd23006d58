"""The nodes of a joint graph by their role: what forward and backward are made of.

Enters: a `Joint`. Leaves: its `Parts`. Invariant: whatever depends on a tangent is backward's; what
else a node is (run once, run again, saved) is decided in `saving.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.fx

from windfall.autograd.passes import is_effect
from windfall.autograd.restride import outermost_first
from windfall.dataclass import dataclass
from windfall.ir.node import tensor_type
from windfall.ir.stages import Joint
from windfall.ops import registry
from windfall.ops.layout import is_non_overlapping_and_dense

Node = torch.fx.Node


@dataclass(frozen=True, slots=True)
class Parts:
    """The nodes of a joint graph, by their role."""

    primals: list[Node]
    tangents: list[Node]
    visible: list[Node]  # writes and fresh results
    gradients: list[Node | None]
    after_tangents: set[Node]  # whatever depends on a tangent: backward, surely
    graph: torch.fx.Graph

    @classmethod
    def of(cls, joint: Joint) -> Parts:
        nodes = list(joint.graph.nodes)
        placeholders = [node for node in nodes if node.op == "placeholder"]
        count = len(joint.signature.inputs)
        results: Any = nodes[-1].args[0]
        visible = len(joint.signature.writes) + joint.signature.fresh
        tangents = placeholders[count:]
        after = set(tangents)
        for node in nodes:
            if node.op != "output" and not after.isdisjoint(node.all_input_nodes):
                after.add(node)
        return cls(
            placeholders[:count],
            tangents,
            list(results[:visible]),
            list(results[visible:]),
            after,
            joint.graph,
        )

    def forward_path(self, saved: Sequence[Node]) -> list[Node]:
        """What forward runs, in order: what it returns and what must run although nobody reads it
        (random ops keep their place in the stream)."""
        needed = {*self.visible, *saved}
        path = []
        for node in reversed(self.graph.nodes):
            if node.op in ("placeholder", "output") or node in self.after_tangents:
                continue
            refuses = not node.users and registry.lookup(node.target).refuses
            if node in needed or refuses or is_effect(node):
                needed.update(node.all_input_nodes)
                path.append(node)
        return path[::-1]

    def backward_path(self) -> list[Node]:
        """What depends on tangents, in order."""
        return [
            node
            for node in self.graph.nodes
            if node in self.after_tangents and node.op == "call_function"
        ]


def undo(result: Node, root: Node) -> tuple[Any, ...] | None:
    """The one view op that makes `root` of its view `result`, if there is one."""
    seen, whole = tensor_type(result), tensor_type(root)
    if seen.elements != whole.elements or seen.dtype != whole.dtype:
        return None
    if seen.is_contiguous and whole.is_contiguous:
        return torch.ops.aten.view.default, list(whole.sizes)
    if whole.is_contiguous and is_non_overlapping_and_dense(seen.sizes, seen.strides):
        order = outermost_first(seen)
        if tuple(seen.sizes[dim] for dim in order) == whole.sizes:
            return torch.ops.aten.permute.default, order
    return None
