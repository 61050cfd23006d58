"""Typed metadata of the nodes of a `torch.fx.Graph`, the graph IR of every room.

Enters: a node. Leaves: its `NodeInfo`, kept under one key of `node.meta`. Invariant: every node of
a graph that crosses rooms has one (`placeholder` and `output` too).

A graph from the front end holds torch functions and methods, as the user called them; a graph from
the autograd room holds ATen overloads only, in SSA form.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Union

import torch.fx
from torch.fx.immutable_collections import immutable_dict

from windfall.errors import SourceLine
from windfall.ir.dtype import TensorType
from windfall.ir.symint import Size

KEY = "windfall"
NO_KEYWORDS: immutable_dict[str, Any] = immutable_dict()  # one for all nodes, not one each

# What a node's value is: a tensor, a symbolic or plain integer, nothing, or a tuple of such.
ValueType = Union[TensorType, Size, None, tuple["ValueType", ...]]  # noqa: UP007  (recursive)


@dataclass(frozen=True, slots=True)
class Region:
    """One call of a module: `path` from the root (`encoder.layer.3`), its class, and which call of
    that module it is. Equal regions are differentiated, lowered and built once."""

    path: str
    class_name: str
    call: int = 0
    parent: Region | None = None

    def __str__(self) -> str:
        return f"{self.path or '(root)'}:{self.class_name}" + (f"#{self.call}" if self.call else "")


@dataclass(frozen=True, slots=True)
class NodeInfo:
    """What every room may know of a node."""

    type: ValueType
    origin: SourceLine | None = None
    region: Region | None = None
    reads: bool = False  # of a captured graph: only running it tells what (or how much) it answers


def info(node: torch.fx.Node) -> NodeInfo:
    """The typed metadata of `node`."""
    found: NodeInfo = node.meta[KEY]
    return found


def set_info(node: torch.fx.Node, value: NodeInfo) -> torch.fx.Node:
    """Attach `value` to `node` and return the node."""
    node.meta[KEY] = value
    return node


def add_node(
    graph: torch.fx.Graph,
    op: str,
    target: Any,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    name: str | None = None,
) -> torch.fx.Node:
    """A new node of `graph`. Its arguments are given afterwards: `create_node` would look all of
    them through for symbolic integers of torch's, which are never there, in half of its time."""
    node = graph.create_node(op, target, name=name)
    node.args = args
    node.kwargs = dict(kwargs) if kwargs else NO_KEYWORDS
    return node


def copy_into(
    graph: torch.fx.Graph, node: torch.fx.Node, argument: Callable[[torch.fx.Node], Any]
) -> torch.fx.Node:
    """A node of another graph in `graph`, as `graph.node_copy` makes it (in a third of the time);
    `argument` tells what a node among its arguments is there."""
    args: Any = torch.fx.map_arg(node.args, argument)
    kwargs: Any = torch.fx.map_arg(node.kwargs, argument) if node.kwargs else {}
    made = add_node(graph, node.op, node.target, args, kwargs, node.name)
    made.meta.update(node.meta)
    return made


def constant(node: torch.fx.Node) -> Any:
    """The constant that a `get_attr` node stands for: an attribute of the graph's owner."""
    found: Any = node.graph.owning_module
    for name in str(node.target).split("."):
        found = getattr(found, name)
    return found


def tensor_type(node: torch.fx.Node) -> TensorType:
    """The type of a node that is known to be one tensor."""
    value = info(node).type
    assert isinstance(value, TensorType), f"{node} is not a tensor: {value}"
    return value
