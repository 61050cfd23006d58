"""A joint graph cut in two: what runs in forward, what in backward, and what is kept in between.

Enters: a `Joint`. Leaves: a `Split`. What is saved is a minimum cut: each value costs its bytes,
inputs and results cost next to nothing since they live anyway, and what is cheap and pure (rows of
`ops` with `recompute`, views) may be computed again instead.

Invariants: random ops and everything expensive run once, in forward; views are never saved, their
base is (so that autograd's version check sees writes to it); an input that the graph itself writes
is saved as a copy of what it was.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.fx

from windfall.autograd.mincut import INFINITE, FlowGraph
from windfall.autograd.passes import copied, is_effect, is_random, is_view, memory_root
from windfall.autograd.restride import outermost_first
from windfall.errors import InternalError
from windfall.ir.dtype import TensorType
from windfall.ir.node import NodeInfo, copy_into, info, set_info, tensor_type
from windfall.ir.relation import Assumptions
from windfall.ir.stages import Joint, Split
from windfall.ir.symint import hint_of
from windfall.ops import registry
from windfall.ops.layout import is_non_overlapping_and_dense

Node = torch.fx.Node


def split(joint: Joint) -> Split:
    """Forward and backward of a joint graph; a graph without gradients is all forward."""
    with Assumptions(joint.relations, closed=True):
        return replace(_split(joint), symbols=joint.symbols)


def _split(joint: Joint) -> Split:
    parts = _Parts.of(joint)
    if not joint.gradients_for:
        graph = _extract(joint.graph, parts.primals, parts.visible, parts.forward_path([]))
        return Split(graph, None, joint.signature)
    saved = _choose(parts, joint)
    mutated = {parts.primals[index] for index in joint.signature.writes}
    as_they_are = [node for node in saved if node.op == "placeholder" and node not in mutated]
    stand_ins, shielded = _views_of_saved(saved, parts.visible)
    visible = set(parts.visible)
    results = [stand_ins.get(node, node) for node in saved if node in visible or node in stand_ins]
    elsewhere = {*as_they_are, *visible, *stand_ins}
    others = [node for node in saved if node not in elsewhere]
    forward = _extract(
        joint.graph,
        parts.primals,
        [*parts.visible, *others],
        parts.forward_path(others),
        copy=[*shielded, *(node for node in others if node in mutated)],
    )
    backward = _extract(
        joint.graph,
        [*as_they_are, *results, *others, *parts.tangents],
        parts.gradients,
        parts.backward_path(),
        stand_ins=stand_ins,
    )
    return Split(
        forward,
        backward,
        joint.signature,
        tuple(tensor_type(node) for node in others),
        tuple(parts.primals.index(node) for node in as_they_are),
        joint.tangents_for,
        joint.gradients_for,
        joint.write_tangents_for,
        tuple(parts.visible.index(node) for node in results),
    )


def _views_of_saved(
    saved: Sequence[Node], visible: Sequence[Node]
) -> tuple[dict[Node, Node], list[Node]]:
    """Results that are views of something saved: autograd would not see that a write to the result
    changes what is saved. One that shows all of it is saved in its place; one that shows a part
    is to be copied."""
    stand_ins: dict[Node, Node] = {}
    shielded: list[Node] = []
    for result in visible:
        root = memory_root(result)
        if root is result or root not in saved or root in visible:
            continue
        if root not in stand_ins and _undo(result, root) is not None:
            stand_ins[root] = result
        else:
            shielded.append(result)
    return stand_ins, shielded


def _undo(result: Node, root: Node) -> tuple[Any, ...] | None:
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


@dataclass(frozen=True, slots=True)
class _Parts:
    """The nodes of a joint graph, by their role."""

    primals: list[Node]
    tangents: list[Node]
    visible: list[Node]  # writes and fresh results
    gradients: list[Node | None]
    after_tangents: set[Node]  # whatever depends on a tangent: backward, surely
    graph: torch.fx.Graph

    @classmethod
    def of(cls, joint: Joint) -> _Parts:
        nodes = list(joint.graph.nodes)
        placeholders = [node for node in nodes if node.op == "placeholder"]
        count = len(joint.signature.inputs)
        results: Any = nodes[-1].args[0]
        visible = len(joint.signature.writes) + joint.signature.fresh
        tangents = placeholders[count:]
        after = set(tangents)
        for node in nodes:
            if node.op != "output" and any(one in after for one in node.all_input_nodes):
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


# ------------------------------------------------------------------------------- what to save


def may_recompute(node: Node) -> bool:
    """Whether a node may run a second time, in backward."""
    if node.op == "get_attr" or is_view(node):
        return True
    if node.op != "call_function" or is_random(node):
        return False
    if node.target is operator.getitem:
        return may_recompute(node.args[0])  # type: ignore[arg-type]
    return registry.lookup(node.target).recompute


def _is_stored_for_backward(node: Node, parts: _Parts) -> bool:
    """Whether forward stores a value anyway, for an op of its own that reads memory, and backward
    would have to as well: computing it again would spare memory, but cost time."""
    if is_view(node) or node.op != "call_function":
        return False
    readers = set(_readers(node))
    return any(one in parts.after_tangents for one in readers) and any(
        one not in parts.after_tangents for one in readers
    )


def _readers(node: Node) -> Iterable[Node]:
    """The users that read a value from memory, views of it followed."""
    for user in node.users:
        if is_view(user):
            yield from _readers(user)
        elif registry.lookup(user.target).from_memory:
            yield user


def bytes_of(type: TensorType) -> int:
    """How much memory a value takes."""
    return hint_of(type.elements) * type.dtype.itemsize


def _choose(parts: _Parts, joint: Joint) -> list[Node]:
    """The nodes to save, in graph order: a minimum cut between forward and backward."""
    needed = _needed_by_backward(parts)
    mutated = {parts.primals[index] for index in joint.signature.writes}
    visible = {
        node
        for result in parts.visible
        for node in (result, memory_root(result))
        if node is result or _undo(result, node) is not None
    }
    gradients = set(parts.gradients)
    flow = FlowGraph()
    source, sink = flow.vertex(), flow.vertex()
    into: dict[Node, int] = {}
    for node in parts.graph.nodes:
        if node not in needed:
            continue
        entry, leave = flow.vertex(), flow.vertex()
        into[node] = entry
        flow.edge(entry, leave, _price(node, mutated, visible))
        if not may_recompute(node) or _is_stored_for_backward(node, parts):
            flow.edge(source, entry, INFINITE)
        if node in gradients or any(user in parts.after_tangents for user in node.users):
            flow.edge(leave, sink, INFINITE)
    for node in needed:
        for user in node.users:
            if user in into:
                flow.edge(into[node] + 1, into[user], INFINITE)
    behind = flow.sink_side(source, sink)
    return [node for node, entry in into.items() if entry not in behind and entry + 1 in behind]


def _needed_by_backward(parts: _Parts) -> set[Node]:
    """Nodes of the forward pass on which backward depends."""
    needed: set[Node] = set()
    wanted = {node for node in parts.gradients if node is not None}
    for node in reversed(list(parts.graph.nodes)):
        if node.op == "output" or node in parts.after_tangents:
            continue
        users_need = any(user in needed or user in parts.after_tangents for user in node.users)
        if users_need or node in wanted:
            needed.add(node)
    return needed


def _price(node: Node, mutated: set[Node], visible: set[Node]) -> int:
    """What saving a node costs: bytes, with a little for being one more tensor."""
    type = info(node).type
    if not isinstance(type, TensorType) or is_view(node) or node.op == "get_attr":
        return INFINITE
    if (node.op == "placeholder" and node not in mutated) or node in visible:
        return 1
    return bytes_of(type) + 16


# ------------------------------------------------------------------------------------- extract


def _extract(
    joint: torch.fx.Graph,
    inputs: Sequence[Node],
    results: Sequence[Node | None],
    path: Iterable[Node],
    copy: Sequence[Node] = (),
    stand_ins: Mapping[Node, Node] | None = None,
) -> torch.fx.Graph:
    """The part of `joint` that computes `results` from `inputs`. Nodes on `path` (in order) stand
    where they stood; others are made when first needed, so that what is computed again is computed
    late. `copy` names results to be copied, `stand_ins` inputs that are views of what is needed."""
    graph = torch.fx.Graph()
    graph.owning_module = joint.owning_module
    made: dict[Node, Node] = {}
    for node in inputs:
        made[node] = set_info(graph.placeholder(node.name), info(node))
    for root, result in (stand_ins or {}).items():
        undo = _undo(result, root)
        assert undo is not None
        made[root] = set_info(graph.call_function(undo[0], (made[result], undo[1])), info(root))
    wanted = [node for node in results if node is not None]
    for node in (*path, *wanted):
        copy_node(graph, node, made)
    output = set_info(graph.output(()), NodeInfo(None))
    taken = [
        None if one is None else copied(graph, output, made[one]) if one in copy else made[one]
        for one in results
    ]
    output.args = (tuple(taken),)
    return graph


def copy_node(graph: torch.fx.Graph, node: Node, made: dict[Node, Node]) -> None:
    """Copy a node, and before it whatever it needs."""
    waiting = [node]
    while waiting:
        node = waiting[-1]
        if node in made:
            waiting.pop()
            continue
        missing = [one for one in node.all_input_nodes if one not in made]
        if missing:
            waiting += reversed(missing)
            continue
        if node.op == "placeholder":
            raise InternalError(f"{node} is needed but was not saved")
        made[node] = copy_into(graph, node, made.__getitem__)
        waiting.pop()


__all__ = ["bytes_of", "copy_node", "may_recompute", "split"]
