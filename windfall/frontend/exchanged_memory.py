"""Tensors whose memory a program exchanges (`x.data = y`) while it builds a history: left to eager.

Enters: a capture whose graph has ended. Leaves: nothing, or `Unsupported`. In eager the operations
that saved `x` itself read its new memory in backward, and those that saved a view or an alias of it
the old one; a node that stands for many operations keeps an input once, and computes from it again.
Invariant: where a result has a history that may still be differentiated, no tensor is given other
memory in the same frame, before or after a break; `x` need not be an input of that history's graph.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from types import CodeType
from typing import TYPE_CHECKING, Any

import torch.fx

from windfall.errors import Unsupported
from windfall.frontend.breaks import ATTRIBUTE_WRITE
from windfall.frontend.bytecode import decode
from windfall.ir.backward_pass import backward_pass
from windfall.ir.dtype import TensorType
from windfall.ir.node import info

if TYPE_CHECKING:
    from windfall.frontend.services import Machine


def refuse_exchanges(machine: Machine, waiting: Sequence[CodeType]) -> None:
    """Refuse histories beside an exchange that was done, or that may follow in the frames that wait
    at a break, of which this is the code."""
    found = [one.describe() for one in machine.effects.replaced]
    found += [one.co_qualname for one in waiting if exchanges_memory(one)]
    if found and _makes_history(machine.graph.graph):
        detail = f"{found[0]}: `.data = ` beside results with a history"
        raise Unsupported(ATTRIBUTE_WRITE.number, detail)


@cache
def exchanges_memory(code: CodeType) -> bool:
    """Whether a frame of this code may write `.data`."""
    if "data" not in code.co_names:
        return False
    stores = (one for one in decode(code).instructions if one.name == "STORE_ATTR")
    return any(one.value == "data" for one in stores)


def _makes_history(graph: torch.fx.Graph) -> bool:
    """Whether a result has a history that no pass inside of the graph has freed."""
    (output,) = graph.find_nodes(op="output")
    results: Any = output.args[0]
    having = {one for one in results if _needs_gradient(one)}
    return bool(having and having - _freed(graph))


def _needs_gradient(node: torch.fx.Node) -> bool:
    type = info(node).type
    return isinstance(type, TensorType) and type.requires_grad


def _freed(graph: torch.fx.Graph) -> set[torch.fx.Node]:
    """What passes that keep nothing went through."""
    passes = [one for one in graph.nodes if one.target is backward_pass and not one.args[3]]
    waiting: list[Any] = []
    for one in passes:
        roots: Any = one.args[0]
        waiting += roots
    found = set(waiting)
    while waiting:
        new = [one for one in waiting.pop().all_input_nodes if one not in found]
        found.update(new)
        waiting += new
    return found
