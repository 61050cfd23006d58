"""A graph as text: one line a node, with its type and the user's line.

Enters: a `torch.fx.Graph` whose nodes have `NodeInfo`. Leaves: text for explain, logs and goldens,
which `graph_parse.py` reads again. Invariant: the text depends on the graph alone (no address, no
machine path: files are base names).

    graph(x: f32[2, 3], y: f32[2, 3])
      mul: f32[2, 3] = operator.mul(x, y)                      # model.py:12
      return (mul,)

Graphs in the target of a node stand below it, further in, with the names that they have there.
"""

from __future__ import annotations

import enum
import os
from collections.abc import Iterator
from typing import Any

import torch.fx

from windfall.errors import SourceLine
from windfall.ir.control_flow import Subgraphs
from windfall.ir.dtype import TensorType
from windfall.ir.node import KEY, NodeInfo
from windfall.ir.symint import Expression

_COLUMN = 72


def short_line(line: SourceLine | None) -> str:
    """`file.py:12`, the folder left out."""
    return f"{os.path.basename(line.file)}:{line.line}" if line else ""


def print_graph(graph: torch.fx.Graph) -> str:
    """The graph as text."""
    parameters = [_declared(node) for node in graph.nodes if node.op == "placeholder"]
    lines = [f"graph({', '.join(parameters)})"]
    region = checkpoint = None
    for node in graph.nodes:
        if node.op == "placeholder":
            continue
        found = _info(node)
        if found is not None and found.region != region and node.op != "output":
            region = found.region
            lines.append(f"  # in {region}" if region else "  # in the function itself")
        if found is not None and found.checkpoint != checkpoint and node.op != "output":
            checkpoint = found.checkpoint
            lines.append(f"  # {checkpoint}" if checkpoint else "  # in no checkpoint")
        lines.append(_line(node, found))
        if isinstance(node.target, Subgraphs):
            lines += _bodies(node.target)
    return "\n".join(lines)


def _info(node: torch.fx.Node) -> NodeInfo | None:
    return node.meta.get(KEY)


def _declared(node: torch.fx.Node) -> str:
    found = _info(node)
    return f"{node.name}: {_type(found.type)}" if found is not None else node.name


def _type(value: Any) -> str:
    if isinstance(value, tuple):
        return f"({', '.join(map(_type, value))})"
    if isinstance(value, Expression):
        return f"int {value}"
    return str(value) if isinstance(value, TensorType) else type(value).__name__


def _line(node: torch.fx.Node, found: NodeInfo | None) -> str:
    if node.op == "output":
        return f"  return {_argument(node.args[0])}"
    arguments = [_argument(value) for value in node.args]
    arguments += [f"{name}={_argument(value)}" for name, value in node.kwargs.items()]
    called = f"{_target(node)}({', '.join(arguments)})"
    text = f"  {_declared(node)} = {f'self.{node.target}' if node.op == 'get_attr' else called}"
    where = short_line(found.origin) if found is not None else ""
    return f"{text:<{_COLUMN}} # {where}" if where else text


def _bodies(target: Subgraphs) -> Iterator[str]:
    """The graphs that stand in a target, each further in than its node."""
    for name, graph in zip(target.parts, target.graphs, strict=True):
        first, *rest = print_graph(graph).splitlines()
        yield f"    {name}: {first}"
        yield from (f"    {line}" for line in rest)


def _target(node: torch.fx.Node) -> str:
    target = node.target
    if isinstance(target, Subgraphs):
        return f"{target.kind}{list(target.facts) or ''}"
    if node.op == "call_method":
        return f".{target}"
    module = getattr(target, "__module__", "") or ""
    if isinstance(target, str) or not isinstance(module, str) or "_ops" in module:
        return str(target)  # an ATen overload names itself: aten.add.Tensor
    name = getattr(target, "__name__", str(target))
    return f"{module.removeprefix('_')}.{name}" if module not in ("", "builtins") else name


def _argument(value: Any) -> str:
    if isinstance(value, torch.fx.Node):
        return value.name
    if isinstance(value, (tuple, list)):
        inside = ", ".join(map(_argument, value))
        if isinstance(value, list):
            return f"[{inside}]"
        return f"({inside},)" if len(value) == 1 else f"({inside})"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{k!r}: {_argument(v)}" for k, v in value.items()) + "}"
    if isinstance(value, enum.Enum):  # of numbers, which is what it counts as
        return repr(value.value)
    return repr(value)
