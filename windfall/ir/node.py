"""Typed metadata of the nodes of a `torch.fx.Graph`, the graph IR of every room.

Enters: a node. Leaves: its `NodeInfo`, kept under one key of `node.meta`. Invariant: every node of
a graph that crosses rooms has one (`placeholder` and `output` too).

A graph from the front end holds torch functions and methods, as the user called them; a graph from
the autograd room holds ATen overloads only, in SSA form.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Union

import torch.fx

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


@dataclass(frozen=True, slots=True)
class NodeInfo:
    """What every room may know of a node."""

    type: ValueType
    origin: SourceLine | None = None
    region: Region | None = None


def info(node: torch.fx.Node) -> NodeInfo:
    """The typed metadata of `node`."""
    found: NodeInfo = node.meta[KEY]
    return found


def set_info(node: torch.fx.Node, value: NodeInfo) -> torch.fx.Node:
    """Attach `value` to `node` and return the node."""
    node.meta[KEY] = value
    return node


def tensor_type(node: torch.fx.Node) -> TensorType:
    """The type of a node that is known to be one tensor."""
    value = info(node).type
    assert isinstance(value, TensorType), f"{node} is not a tensor: {value}"
    return value
