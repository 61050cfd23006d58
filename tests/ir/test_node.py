"""Nodes of graphs: a copy is what torch's own copy is."""

from __future__ import annotations

from typing import Any

import torch
import torch.fx
from torch.fx.immutable_collections import immutable_dict, immutable_list

from windfall.errors import SourceLine
from windfall.ir.node import NodeInfo, copy_into, info, set_info
from windfall.ir.symint import size_symbol

aten = torch.ops.aten


class _Owner(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(3))


def _sample(owner: torch.nn.Module) -> torch.fx.Graph:
    graph = torch.fx.Graph(owning_module=owner)
    x, again = graph.placeholder("x"), graph.placeholder("x")
    weight = graph.get_attr("weight")
    size = size_symbol("s0", 4)
    total = graph.call_function(aten.cat.default, ([x, (again, weight)], -1))
    shaped = graph.call_method("reshape", (total, [size, 2 * size]), {"out": {"a": slice(x, None)}})
    named = graph.create_node("call_function", aten.add.Tensor, (shaped, x), {"alpha": 2}, "whole")
    graph.output((named, None, [shaped]))
    for place, node in enumerate(graph.nodes):
        set_info(node, NodeInfo(None, SourceLine("file.py", place, "f")))
    named.meta["another's"] = [1, 2]
    return graph


def _forms(value: Any) -> Any:
    """What arguments are, containers included: fx makes them immutable."""
    if isinstance(value, immutable_list | tuple):
        return type(value), [_forms(each) for each in value]
    if isinstance(value, immutable_dict):
        return type(value), {name: _forms(each) for name, each in value.items()}
    if isinstance(value, slice):
        return slice, _forms((value.start, value.stop, value.step))
    return value.name if isinstance(value, torch.fx.Node) else value


def _described(graph: torch.fx.Graph) -> list[Any]:
    return [
        (
            *(node.op, node.target, node.name, _forms(node.args), _forms(node.kwargs)),
            *(dict(node.meta), node.type, [one.name for one in node.users]),
        )
        for node in graph.nodes
    ]


def test_a_copy_is_what_torchs_own_is() -> None:
    owner = _Owner()
    graph = _sample(owner)
    copies = []
    for copy in (copy_into, torch.fx.Graph.node_copy):
        made = torch.fx.Graph(owning_module=owner)
        made.placeholder("whole")  # a name that is taken
        known: dict[torch.fx.Node, torch.fx.Node] = {}
        for node in graph.nodes:
            known[node] = copy(made, node, known.__getitem__)
        made.lint()
        copies.append(_described(made))
    assert copies[0] == copies[1]
    assert any(name == "whole_1" for _, _, name, *_ in copies[0])


def test_metadata_of_a_copy_are_its_own() -> None:
    graph = _sample(_Owner())
    node = next(one for one in graph.nodes if one.name == "whole")
    made = copy_into(torch.fx.Graph(), node, lambda one: 7)
    set_info(made, NodeInfo(3))
    assert info(node).type is None
    assert made.meta["another's"] is node.meta["another's"]
    assert made.args == (7, 7)
