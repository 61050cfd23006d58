"""Nodes of a `torch.fx.Graph`, made without what `create_node` does for others.

Enters: a graph, and what a node is to be. Leaves: the node, at the graph's insertion point.
`Graph.create_node` looks all arguments through for symbolic integers of torch's (which are never
there: expressions of ours stand in their place), and asks the owning module for hooks: two thirds
of its time. Invariant: the graph cannot be told from one that `create_node` made; a torch in which
that is not so (`makes_nodes_directly` tries) has its nodes made by `create_node`.
"""

from __future__ import annotations

from typing import Any

import torch.fx
import torch.fx.graph

from windfall.torch_abi.probes import NotFound, fact


def new_node(
    graph: torch.fx.Graph,
    op: str,
    target: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    name: str | None = None,
) -> torch.fx.Node:
    """A new node of `graph`; its name is `name`, or else its target's, or the next like it."""
    if makes_nodes_directly():
        return _insert_node(graph, op, target, args, kwargs, name)
    return graph.create_node(op, target, args, kwargs, name)


def _insert_node(
    graph: Any, op: str, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any], name: Any
) -> torch.fx.Node:
    space = graph._graph_namespace
    if name is None:
        name = space.create_name(graph._target_to_str(target), None)
    elif name in space._used_names or not name.isidentifier():
        name = space.create_name(name, None)
    else:  # copies of nodes keep their names where these are free
        base, _, number = name.rpartition("_")
        if base and number.isdecimal():
            space._base_count[base] = int(number)
            space._used_names.add(name)
        elif name in _NEVER_NAMES:
            name = space.create_name(name, None)
        else:
            space._base_count.setdefault(name, 0)
            space._used_names.add(name)
    node = _Node(graph, name, op, target, args, kwargs)
    space._obj_to_name[node] = name
    graph._insert(node)
    key = (op, target) if op == "call_function" else (op, None)
    graph._find_nodes_lookup_table.table[key][node] = None
    graph._len += 1
    return node


_Node = torch.fx.Node


@fact
def makes_nodes_directly() -> bool:
    """Whether a graph whose nodes are inserted one by one is what `create_node` makes."""
    try:
        ours, theirs = _sample(_insert_node), _sample(torch.fx.Graph.create_node)
    except (AttributeError, TypeError) as error:
        raise NotFound(f"graphs are kept otherwise: {error}") from error
    if ours != theirs or set(vars(torch.fx.Graph())) != _KNOWN:
        raise NotFound("graphs are kept otherwise")
    return True


_NEVER_NAMES: Any = getattr(torch.fx.graph, "_illegal_names", None)  # Python's own, above all

# What a graph keeps; another field would want to be told of a new node.
_KNOWN = {
    *("_root", "_used_names", "_insert", "_len", "_graph_namespace", "_owning_module"),
    *("_tracer_cls", "_tracer_extras", "_codegen", "_co_fields", "_find_nodes_lookup_table"),
}


def _sample(create: Any) -> Any:
    """Whatever can be seen of a small graph: order, names, uses, what is found by target."""
    graph = torch.fx.Graph()
    x = create(graph, "placeholder", "x", (), {}, None)
    first = create(graph, "call_function", torch.add, (x, [x, 2]), {"alpha": x}, None)
    second = create(graph, "call_function", torch.add, (x, first), {}, "add")
    with graph.inserting_before(first):
        create(graph, "call_method", "neg", (x,), {}, None)
    for name in (
        "add_2",
        "add_2",
        "add",
        "sum_4",
        "sum",
        "a b_1",
        "x_07",
        "_3",
        "__3",
        "x",
        "sum",
        "mul",
    ):
        create(graph, "call_function", torch.mul, (first, second), {}, name)
    create(graph, "output", "output", ((second,),), {}, None)
    graph.erase_node(graph.find_nodes(op="call_function", target=torch.mul)[0])
    names: Any = graph._graph_namespace
    graph.lint()
    return (
        [(str(node), node.op, node.target, str(node.args)) for node in graph.nodes],
        [(str(node.kwargs), [str(user) for user in node.users]) for node in graph.nodes],
        [str(node) for node in graph.find_nodes(op="call_function", target=torch.add)],
        (len(graph.nodes), sorted(names._used_names), names._base_count),
        [str(node) for node in names._obj_to_name],
    )
