"""Typed metadata of the nodes of a `torch.fx.Graph`, the graph IR of every room.

Enters: a node. Leaves: its `NodeInfo`, kept under one key of `node.meta`. Invariant: every node of
a graph that crosses rooms has one (`placeholder` and `output` too).

A graph from the front end holds torch functions and methods, as the user called them; a graph from
the autograd room holds ATen overloads only, in SSA form.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Union

import torch.fx

from windfall import torch_abi
from windfall.dataclass import dataclass
from windfall.errors import SourceLine
from windfall.ir.dtype import TensorType
from windfall.ir.symint import Size

KEY = "windfall"

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


class Policy(enum.Enum):
    """What the user said of an op inside of a checkpoint; their names are torch's."""

    MUST_SAVE = "must save"
    PREFER_SAVE = "prefer save"
    MUST_RECOMPUTE = "must recompute"
    PREFER_RECOMPUTE = "prefer recompute"


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """One call of `torch.utils.checkpoint`, by its number within the captured graph, and the call
    around it: what is computed inside is computed again for the gradients. `policies`: what was
    said of the ATen ops that the node comes to, in their order (of a node of a joint graph: of that
    op); empty if nothing was."""

    number: int
    parent: Checkpoint | None = None
    policies: tuple[tuple[str, Policy], ...] = ()

    @property
    def outermost(self) -> int:
        """The number of the outermost call around."""
        found = self
        while found.parent is not None:
            found = found.parent
        return found.number

    def __str__(self) -> str:
        said = ", ".join(f"{policy.value} {op}" for op, policy in self.policies)
        return f"checkpoint {self.path}" + (f": {said}" if said else "")

    @property
    def path(self) -> str:
        """Its number and those of the calls around it, the outermost last."""
        return f"{self.number}" + (f" in {self.parent.path}" if self.parent is not None else "")


@dataclass(frozen=True, slots=True)
class NodeInfo:
    """What every room may know of a node."""

    type: ValueType
    origin: SourceLine | None = None
    region: Region | None = None
    reads: bool = False  # of a captured graph: only running it tells what (or how much) it answers
    checkpoint: Checkpoint | None = None
    derived: bool = False  # of a joint graph: a formula of a derivative made it, no forward pass


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
    """A new node of `graph`, at the place where it inserts."""
    return torch_abi.new_node(graph, op, target, args, dict(kwargs) if kwargs else {}, name)


def copy_into(
    graph: torch.fx.Graph, node: torch.fx.Node, argument: Callable[[torch.fx.Node], Any]
) -> torch.fx.Node:
    """A node of another graph in `graph`, as `graph.node_copy` makes it (in a third of the time);
    `argument` tells what a node among its arguments is there."""
    args: Any = torch.fx.map_arg(node.args, argument)
    kwargs: Any = node.kwargs and torch.fx.map_arg(node.kwargs, argument)
    made = torch_abi.new_node(graph, node.op, node.target, args, kwargs, node.name)
    made.meta.update(node.meta)
    return made


def extracted(
    nodes: Iterable[torch.fx.Node],
    inputs: Iterable[torch.fx.Node],
    results: Sequence[torch.fx.Node],
) -> torch.fx.Graph:
    """Some nodes of a graph as a graph of their own; what they read from outside are its inputs."""
    graph = torch.fx.Graph()
    made: dict[torch.fx.Node, torch.fx.Node] = {}
    for node in inputs:
        made[node] = set_info(graph.placeholder(node.name), info(node))
    for node in nodes:
        made[node] = copy_into(graph, node, made.__getitem__)
    output = graph.output(tuple(made[node] for node in results))
    set_info(output, NodeInfo(tuple(info(node).type for node in results)))
    return graph


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
