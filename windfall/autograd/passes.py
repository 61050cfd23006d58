"""Clean-up of a joint graph: one function a pass, one row of `PASSES` a pass.

Enters and leaves: a `Joint`. Invariant: each pass keeps the graph SSA, its results and their types;
random ops keep their number and order (the generator's stream is visible); two results never share
memory, nor does a result share memory with an input, unless the signature says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
import torch.fx

from windfall import torch_abi
from windfall.ir.control_flow import Subgraphs
from windfall.ir.dtype import TensorType
from windfall.ir.node import NodeInfo, info, set_info
from windfall.ir.passes import Row, Table
from windfall.ir.stages import Joint
from windfall.ops import fake as fakes
from windfall.ops import registry
from windfall.ops.schema import argument

aten = torch.ops.aten


# ------------------------------------------------------------------------------- facts of nodes


def is_random(node: torch.fx.Node) -> bool:
    """Whether a node draws from a generator."""
    target: Any = node.target
    if not torch_abi.is_overload(target):
        return node.op == "call_function" and _functionalized_random(target)
    return registry.lookup(target).random or torch.Tag.nondeterministic_seeded in target.tags


def _functionalized_random(target: Any) -> bool:
    if isinstance(target, Subgraphs):
        return any(draws(one) for one in target.graphs)
    func = getattr(target, "func", None)
    return func is not None and torch.Tag.nondeterministic_seeded in func.tags


def draws(graph: torch.fx.Graph) -> bool:
    """Whether a graph draws random numbers."""
    return any(is_random(node) for node in graph.nodes)


def is_effect(node: torch.fx.Node) -> bool:
    """Whether a node must stay although nobody reads it."""
    if node.op in ("placeholder", "output"):
        return True
    target: Any = node.target
    if torch_abi.is_overload(target) and not target._schema.returns:
        return True
    return is_random(node)


def is_view(node: torch.fx.Node) -> bool:
    """Whether a node's value shares the memory of its first argument."""
    target: Any = node.target
    if not torch_abi.is_overload(target):
        return False
    return any(one.view for one in fakes.returns_of(target))


def memory_root(node: torch.fx.Node) -> torch.fx.Node:
    """The node whose memory a node's value lives in."""
    while is_view(node) and isinstance(node.args[0], torch.fx.Node):
        node = node.args[0]
    return node


# --------------------------------------------------------------------------------------- passes


def remove_dead(graph: torch.fx.Graph, joint: Joint) -> None:
    """Drop what nobody reads and what has no effect: an exception is one."""
    for node in reversed(list(graph.nodes)):
        if not node.users and not is_effect(node) and not registry.lookup(node.target).refuses:
            graph.erase_node(node)


def remove_no_ops(graph: torch.fx.Graph, joint: Joint) -> None:
    """Drop ops that answer their first argument again: same elements in the same layout. Value
    semantics makes copies no-ops; `keep_results_distinct` adds back those that can be seen."""
    for node in graph.nodes:
        if registry.lookup(node.target).no_op and _same_value(node, node.args[0]):
            node.replace_all_uses_with(node.args[0])


def merge_views(graph: torch.fx.Graph, joint: Joint) -> None:
    """A view of a view is one view, and what turns a tensor back is nothing at all."""
    for node in graph.nodes:
        inner = node.args[0] if node.args else None
        merge = _MERGES.get(registry.lookup(node.target).inverse)
        if merge is not None and isinstance(inner, torch.fx.Node):
            merged = merge(graph, node, inner)
            if merged is not None:
                node.replace_all_uses_with(merged)


def _undone(graph: torch.fx.Graph, node: torch.fx.Node, inner: torch.fx.Node) -> Any:
    """The same swap of dimensions twice."""
    source = inner.args[0] if inner.args else None
    if inner.target is not node.target or inner.args[1:] != node.args[1:]:
        return None
    return source if _same_value(node, source) else None


def _viewed_directly(graph: torch.fx.Graph, node: torch.fx.Node, inner: torch.fx.Node) -> Any:
    source = inner.args[0] if inner.args else None
    views = inner.target is node.target is aten.view.default
    if not views or not isinstance(source, torch.fx.Node):
        return None
    if _same_value(node, source):
        return source
    type = info(source).type
    if not isinstance(type, TensorType) or not type.is_contiguous:
        return None
    node.args = (source, *node.args[1:])
    return None


def _permuted_once(graph: torch.fx.Graph, node: torch.fx.Node, inner: torch.fx.Node) -> Any:
    if inner.target is not node.target:
        return None
    source: Any = inner.args[0]
    first, second = _dims(inner), _dims(node)
    node.args = (source, [first[dim] for dim in second])
    return source if _same_value(node, source) and _dims(node) == sorted(first) else None


def _dims(node: torch.fx.Node) -> list[int]:
    dims: Any = node.args[1]
    return [dim % len(dims) for dim in dims]


# By how a view is undone.
_MERGES: dict[str | None, Callable[[torch.fx.Graph, torch.fx.Node, torch.fx.Node], Any]] = {
    "itself": _undone,
    "reshape": _viewed_directly,
    "permute": _permuted_once,
}


def remove_ones(graph: torch.fx.Graph, joint: Joint) -> None:
    """`x * 1` and `x / 1` are `x`, where the one is a number or a uniform tensor."""
    for node in graph.nodes:
        unit = registry.lookup(node.target).unit
        if not unit or len(node.args) != 2 or node.kwargs:
            continue
        for place in unit:
            other: Any = node.args[1 - place]
            if _uniform(node.args[place]) == 1 and _same_value(node, other):
                node.replace_all_uses_with(other)
                break


def _same_value(node: torch.fx.Node, other: Any) -> bool:
    return isinstance(other, torch.fx.Node) and info(other).type == info(node).type


def _uniform(value: Any) -> Any:
    """The number that every element of `value` is, if that is known; else None."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value
    if not isinstance(value, torch.fx.Node):
        return None
    record = registry.lookup(value.target)
    if record.moves:
        return _uniform(value.args[0])
    if isinstance(record.uniform, str):
        return _uniform(argument(value.target, record.uniform, value.args, value.kwargs))
    return record.uniform


def share_equal(graph: torch.fx.Graph, joint: Joint) -> None:
    """Compute equal expressions once; random ops are never equal, and of those of somebody else's
    nobody knows what they do besides. What the user gets stays apart from an equal value that
    backward reads: the user may write it, which must not be taken for a write to what was saved."""
    known: dict[Any, torch.fx.Node] = {}
    shown = _shown(graph, joint)
    for node in graph.nodes:
        if node.op != "call_function" or is_effect(node) or registry.is_foreign(node.target):
            continue
        # What a checkpoint computes again must not become what is kept outside of it.
        checkpoint = info(node).checkpoint
        where = checkpoint.number if checkpoint is not None else None
        key = (node.target, _frozen(node.args), _frozen(node.kwargs), where)
        first = known.setdefault(key, node)
        if first is node:
            continue
        pair = {first, node}
        if pair & shown and any(is_read_by(one, _is_derived) for one in pair - shown):
            known[key] = (pair - shown).pop()  # further ones are merged with what nobody sees
            continue
        if node in shown:
            shown.add(first)  # it is the user's from here on
        node.replace_all_uses_with(first)
        graph.erase_node(node)


def _shown(graph: torch.fx.Graph, joint: Joint) -> set[torch.fx.Node]:
    """What the user gets, and what that is a view of."""
    results: Any = next(iter(reversed(graph.nodes))).args[0]
    visible = results[: len(joint.signature.writes) + joint.signature.fresh]
    nodes = [one for one in visible if isinstance(one, torch.fx.Node)]
    return {*nodes, *map(memory_root, nodes)}


def is_read_by(node: torch.fx.Node, reads: Callable[[torch.fx.Node], bool]) -> bool:
    """Whether a node of which `reads` says so takes the value itself, or a view of it."""
    return any(
        reads(user) or (is_view(user) and is_read_by(user, reads))
        for user in node.users
        if user.op != "output"
    )


def _is_derived(node: torch.fx.Node) -> bool:
    """A formula of a derivative made it: eager saves what it reads."""
    return info(node).derived


def _frozen(value: Any) -> Any:
    """A hashable stand-in for arguments that tells 1, 1.0, True and -0.0 apart."""
    if isinstance(value, torch.fx.Node):
        return value
    if isinstance(value, list | tuple):
        return tuple(_frozen(one) for one in value)
    if isinstance(value, Mapping):
        return tuple((name, _frozen(one)) for name, one in sorted(value.items()))
    return type(value), repr(value)


def keep_results_distinct(graph: torch.fx.Graph, joint: Joint) -> None:
    """Copy results that would share memory with an input, a constant or another result. Gradients
    are looked at later, when it is known which are asked for."""
    output = next(iter(reversed(graph.nodes)))
    results: Any = output.args[0]
    visible = len(joint.signature.writes) + joint.signature.fresh
    output.args = ((*distinct(graph, output, results[:visible]), *results[visible:]),)


def distinct(
    graph: torch.fx.Graph, output: torch.fx.Node, results: tuple[Any, ...]
) -> Iterator[Any]:
    """`results`, copied (before `output`) where they share memory with what is not theirs."""
    taken: set[torch.fx.Node] = set()
    for result in results:
        if not isinstance(result, torch.fx.Node):
            yield result
            continue
        root = memory_root(result)
        if root.op in ("placeholder", "get_attr") or root in taken:
            yield copied(graph, output, result)
        else:
            taken.add(root)
            yield result


def copied(graph: torch.fx.Graph, before: torch.fx.Node, node: torch.fx.Node) -> torch.fx.Node:
    """A copy of a node's value in new memory; of a view, the same view of a copy of its base, so
    that it lies in memory as it did."""
    if is_view(node) and isinstance(node.args[0], torch.fx.Node):
        base = copied(graph, before, node.args[0])
        arguments, keywords = (base, *node.args[1:]), node.kwargs
        func: Any = node.target
    else:
        func, arguments, keywords = aten.clone.default, (node,), {}
    with graph.inserting_before(before):
        copy = graph.call_function(func, arguments, dict(keywords))
    types = [info(one).type if isinstance(one, torch.fx.Node) else one for one in arguments]
    known = info(node)
    type = fakes.infer(func, types, keywords)
    return set_info(copy, NodeInfo(type, known.origin, known.region, checkpoint=known.checkpoint))


def _on_graph(change: Callable[[torch.fx.Graph, Joint], None]) -> Callable[[Joint], Joint]:
    """A pass that changes the joint's graph in place."""

    def run(joint: Joint) -> Joint:
        change(joint.graph, joint)
        return joint

    return run


PASSES: Table[Callable[[Joint], Joint]] = Table(
    Row("remove_no_ops", _on_graph(remove_no_ops)),
    Row(
        "merge_views",
        _on_graph(merge_views),
        after=("remove_no_ops",),
        reason="no-ops stand between views",
    ),
    Row(
        "remove_ones",
        _on_graph(remove_ones),
        after=("remove_no_ops",),
        reason="casts hide uniform tensors",
    ),
    Row(
        "share_equal",
        _on_graph(share_equal),
        after=("remove_no_ops", "merge_views"),
        reason="equal through different no-ops and views",
    ),
    Row(
        "remove_dead",
        _on_graph(remove_dead),
        after=("share_equal",),
        reason="sharing leaves duplicates unread",
    ),
    Row(
        "keep_results_distinct",
        _on_graph(keep_results_distinct),
        after=("share_equal", "remove_no_ops"),
        reason="both take away copies that can be seen",
    ),
)
