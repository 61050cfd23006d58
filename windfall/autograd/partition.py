"""A joint graph cut in two: what runs in forward, what in backward, and what is kept in between.

Enters: a `Joint`. Leaves: a `Split`. What is saved `saving.py` chooses; what backward needs besides
is computed again there, late.

Invariants: random ops run once, in forward; views are never saved, their base is (so that
autograd's version check sees writes to it); an input that the graph itself writes is saved as a
copy of what it was. What formulas of backward read can be computed from what is saved: second
derivatives need it (`higher.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

import torch
import torch.fx

from windfall.autograd.bits import pack, packed_type, unpack
from windfall.autograd.parts import Parts, undo
from windfall.autograd.passes import copied, is_effect, memory_root
from windfall.autograd.saving import choose, needed_by_backward
from windfall.autograd.unroll import unrolled
from windfall.errors import InternalError
from windfall.ir.dtype import TensorType
from windfall.ir.node import NodeInfo, add_node, copy_into, info, set_info, tensor_type
from windfall.ir.relation import Assumptions
from windfall.ir.stages import Joint, Split

Node = torch.fx.Node
NONE_PACKED: Mapping[Node, TensorType] = MappingProxyType({})
NO_BITS: Mapping[Node, Node] = MappingProxyType({})


def split(joint: Joint, *, memory_budget: float = 1, partition: str = "min-cut") -> Split:
    """Forward and backward of a joint graph; a graph without gradients is all forward. Of what
    would be saved at least cost, `memory_budget` is the part that may be; `partition` "eager": what
    eager would save is."""
    with Assumptions(joint.relations, closed=True):
        found = _split(joint, memory_budget, partition)
        return replace(found, symbols=joint.symbols, ungiven=joint.ungiven)


def cut(joint: Joint) -> Split:
    """The same at least cost, under what the thread assumes of sizes."""
    return _split(joint, 1, "min-cut")


def _split(joint: Joint, memory_budget: float, partition: str) -> Split:
    parts = Parts.of(joint)
    if not joint.gradients_for:
        graph = _extract(joint.graph, parts.primals, parts.visible, parts.forward_path([]))
        return Split(graph, None, joint.signature)
    saved = _choose_repeated(parts, joint, memory_budget, partition)
    if saved is None:
        saved = choose(parts, joint, memory_budget, partition)
    needed = needed_by_backward(parts)
    mutated = {parts.primals[index] for index in joint.signature.writes}
    as_they_are = [node for node in saved if node.op == "placeholder" and node not in mutated]
    stand_ins, shielded = _views_of_saved(saved, parts.visible)
    visible = set(parts.visible)
    results = [stand_ins.get(node, node) for node in saved if node in visible or node in stand_ins]
    elsewhere = {*as_they_are, *visible, *stand_ins}
    others = [node for node in saved if node not in elsewhere]
    bits = ((node, packed_type(node)) for node in others)
    packed = {node: type for node, type in bits if type is not None}
    forward = _extract(
        joint.graph,
        parts.primals,
        [*parts.visible, *others],
        parts.forward_path(others),
        copy=[*shielded, *(node for node in others if node in mutated)],
        packed=packed,
    )
    backward = _extract(
        joint.graph,
        [*as_they_are, *results, *others, *parts.tangents],
        parts.gradients,
        parts.backward_path(),
        stand_ins=stand_ins,
        packed=packed,
        once=parts.after_tangents,
    )
    return Split(
        forward,
        backward,
        joint.signature,
        tuple(packed.get(node) or tensor_type(node) for node in others),
        tuple(parts.primals.index(node) for node in as_they_are),
        joint.tangents_for,
        joint.gradients_for,
        joint.write_tangents_for,
        tuple(parts.visible.index(node) for node in results),
        remade=tuple(
            position
            for position, node in enumerate(parts.visible)
            if node not in results and node in needed
        ),
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
        if root not in stand_ins and undo(result, root) is not None:
            stand_ins[root] = result
        else:
            shielded.append(result)
    return stand_ins, shielded


def _choose_repeated(
    parts: Parts, joint: Joint, memory_budget: float, partition: str
) -> list[Node] | None:
    """Of a graph that was unrolled: what is chosen of the short one, for each block the same; None
    where it was not, or where blocks choose differently, as they do for a budget."""
    known = unrolled(joint) if memory_budget == 1 else None
    if known is None:
        return None
    chosen = choose(Parts.of(known.short), known.short, memory_budget, partition)
    names = known.names_of(chosen)
    return None if names is None else [node for node in parts.graph.nodes if node.name in names]


# ------------------------------------------------------------------------------------- extract


def _extract(
    joint: torch.fx.Graph,
    inputs: Sequence[Node],
    results: Sequence[Node | None],
    path: Iterable[Node],
    copy: Sequence[Node] = (),
    stand_ins: Mapping[Node, Node] | None = None,
    packed: Mapping[Node, TensorType] = NONE_PACKED,
    once: set[Node] | None = None,
) -> torch.fx.Graph:
    """The part of `joint` that computes `results` from `inputs`. Nodes on `path` (in order) stand
    where they stood; others are made when first needed, so that what is computed again is computed
    late. `copy` names results to be copied, `stand_ins` inputs that are views of what is needed,
    `packed` inputs and results that are kept as bits. `once`: what else is made must be fit to run
    for the second time."""
    graph = torch.fx.Graph()
    graph.owning_module = joint.owning_module
    made: dict[Node, Node] = {}
    bits: dict[Node, Node] = {}
    for node in inputs:
        placeholder = add_node(graph, "placeholder", node.name, (), {}, node.name)
        if node in packed:
            bits[node] = set_info(placeholder, NodeInfo(packed[node]))
        else:
            made[node] = set_info(placeholder, info(node))
    for root, result in (stand_ins or {}).items():
        op = undo(result, root)
        assert op is not None
        made[root] = set_info(graph.call_function(op[0], (made[result], op[1])), info(root))
    given = {*made, *bits}
    wanted = [node for node in results if node is not None]
    packs: dict[Node, Node] = {}
    for node in (*path, *wanted):
        copy_node(graph, node, made, bits)
        if node in packed and node not in packs and node not in bits:
            packs[node] = pack(graph, made[node])  # at once: so the mask itself does not live on
    if once is not None:
        _check_again(node for node in made if node not in once and node not in given)
    output = set_info(graph.output(()), NodeInfo(None))
    taken = [
        None
        if one is None
        else copied(graph, output, made[one])
        if one in copy
        else packs.get(one) or made[one]
        for one in results
    ]
    output.args = (tuple(taken),)
    return graph


def _check_again(nodes: Iterable[Node]) -> None:
    """Random numbers are not drawn again, whoever chose what is saved."""
    for node in nodes:
        if is_effect(node):
            raise InternalError(f"{node} must not be computed again, and was not saved")


def copy_node(
    graph: torch.fx.Graph,
    node: Node,
    made: dict[Node, Node],
    bits: Mapping[Node, Node] = NO_BITS,
) -> None:
    """Copy a node, and before it whatever it needs; what is there as `bits` is unpacked."""
    waiting = [node]
    while waiting:
        node = waiting[-1]
        if node in made:
            waiting.pop()
            continue
        if node in bits:
            made[node] = unpack(graph, bits[node], node)
            continue
        missing = [one for one in node.all_input_nodes if one not in made]
        if missing:
            waiting += reversed(missing)
            continue
        if node.op == "placeholder":
            raise InternalError(f"{node} is needed but was not saved")
        made[node] = copy_into(graph, node, made.__getitem__)
        waiting.pop()


__all__ = ["copy_node", "cut", "split"]
