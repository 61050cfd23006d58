"""Bodies of higher-order functions: interpreted, then cut out of the graph as graphs of their own.

Enters: what a polyfill does between `begin_body` and `end_body`. Leaves: a graph for each body,
what it reads from outside, and how its result is built; then one node that holds the graphs.
Invariant: a body that did anything but compute new tensors breaks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
import torch.fx

from windfall import torch_abi
from windfall.dataclass import dataclass
from windfall.frontend.breaks import BODY, stop
from windfall.frontend.polyfills import control_flow
from windfall.frontend.values.base import Arguments, Keywords, Value
from windfall.frontend.values.calls import calls
from windfall.frontend.values.constant import Constant
from windfall.frontend.values.mapping import Dict
from windfall.frontend.values.sequence import List, Tuple
from windfall.frontend.values.tensor import Tensor
from windfall.frontend.values.torchapi import result_value
from windfall.frontend.values.unchanged import Condition, changed, condition
from windfall.frontend.values.unseen import look
from windfall.ir.control_flow import Subgraphs, output_of
from windfall.ir.dtype import TensorType
from windfall.ir.generators import generator_at
from windfall.ir.node import copy_into, extracted, info, set_info
from windfall.ir.symint import Expression, reads_of
from windfall.ops.fake import Storage, fake, storage_of
from windfall.ops.symbolic import as_torch

if TYPE_CHECKING:
    from windfall.frontend.services import Machine

Node = torch.fx.Node

# Leaves in order, and what they stand in: equal for results that are built alike.
Structure = tuple[Any, ...]


@dataclass(slots=True)
class CapturedBody:
    """A function that was interpreted and cut out: a graph of what it read from outside (nodes of
    the whole), and how its result is built of what that answers."""

    graph: torch.fx.Graph
    outside: list[Node]
    structure: Structure

    @property
    def results(self) -> tuple[Node, ...]:
        """What it answers."""
        found: Any = output_of(self.graph).args[0]
        return tuple(found)


@dataclass(slots=True)
class LoopOver:
    """What a body is repeated over."""

    init: list[Tensor]
    carried: Structure
    scanned: list[Tensor]  # by their first dimension
    slices: Structure
    dim: int
    reverse: bool
    needs: list[bool]  # of what is carried: whether it needs a gradient
    start: int = 0  # calls of the graph before what stands for values
    standing: tuple[list[Tensor], list[Tensor]] = ([], [])  # for values carried, for slices


class Bodies(Value):
    """The bodies of one call, one after the other."""

    __slots__ = ("before", "dispatched", "firsts", "found", "loop", "name", "start", "written")
    made_of = object
    returns_new = True  # tensors, that share memory with no others

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name
        self.found: list[CapturedBody] = []
        self.loop: LoopOver | None = None
        self.firsts: list[Tensor] = []  # slices that stand before the results
        self.start = 0  # calls of the graph before the present body
        self.before: Condition | None = None
        self.dispatched: list[int] = []  # how many ops checkpoints had noted before it
        self.written: set[Storage] = set()  # memory that was written before it


# --------------------------------------------------------------------------------------- bodies


@calls(control_flow.begin_bodies)
def _begin_bodies(machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
    (name,) = arguments
    return Bodies(name.as_constant(machine))


@calls(control_flow.begin_body)
def _begin_body(machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
    (bodies,) = arguments
    assert isinstance(bodies, Bodies)
    begin(machine, bodies)
    return machine.values.literal(None)


def begin(machine: Machine, bodies: Bodies) -> None:
    """The beginning of a body."""
    graph = machine.graph
    outer = graph.written

    def restore() -> None:
        graph.written = outer

    machine.effects.undo(restore)
    graph.written = set()
    bodies.start = len(graph.calls)
    bodies.dispatched = [len(one) for one in graph.dispatched]
    bodies.before, bodies.written = condition(machine, bodies), outer


@calls(control_flow.end_body)
def _end_body(machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
    bodies, result = arguments
    assert isinstance(bodies, Bodies)
    leaves: list[Tensor] = []
    cut_out(machine, bodies, structure_of(machine, bodies, result, leaves), leaves)
    return machine.values.literal(None)


def cut_out(
    machine: Machine, bodies: Bodies, structure: Structure, leaves: Sequence[Tensor]
) -> None:
    """The end of a body: what was done since its beginning leaves the graph; `leaves` are the
    tensors that it answers."""
    assert bodies.before is not None
    for noted, count in zip(machine.graph.dispatched, bodies.dispatched, strict=True):
        del noted[count:]  # a checkpoint around it knows one operation
    change = changed(machine, bodies.before, bodies)
    if change:
        stop(BODY, f"a body of {bodies.name} {change}")
    graph = machine.graph
    nodes = graph.calls[bodies.start :]
    for node in nodes:
        if info(node).reads or node.target in _REFUSED:
            stop(BODY, f"a body of {bodies.name} reads data, or does what no graph does")
    inside = set(nodes)
    results = [one.node(machine) for one in leaves]
    used = [other for node in nodes for other in node.all_input_nodes]
    outside = list(dict.fromkeys(one for one in (*used, *results) if one not in inside))
    _check_memory(machine, bodies, leaves, outside)
    graph.written = bodies.written
    bodies.found.append(CapturedBody(extracted(nodes, outside, results), outside, structure))
    graph.cut(bodies.start)


_REFUSED = (torch_abi.hooked, torch_abi.enter_inference, torch_abi.leave_inference, generator_at)


def _check_memory(
    machine: Machine, bodies: Bodies, leaves: Sequence[Tensor], outside: Sequence[Node]
) -> None:
    """Nothing from outside is written or returned, and no two results share memory."""
    there = set(outside)
    memories = {
        storage_of(one.fake(machine))
        for one in machine.graph.fakes.values()
        if isinstance(one, Tensor) and one.used and one.node(machine) in there
    }
    if not memories.isdisjoint(machine.graph.written):
        stop(BODY, f"a body of {bodies.name} writes a tensor from outside")
    if not bodies.returns_new:
        return
    own = [storage_of(one.fake(machine)) for one in leaves]
    if not memories.isdisjoint(own) or any(one.node(machine) in there for one in leaves):
        stop(BODY, f"a body of {bodies.name} returns a tensor from outside, or a view of one")
    if len(set(own)) < len(own):
        stop(BODY, f"a body of {bodies.name} returns tensors that share memory")


def structure_of(
    machine: Machine,
    bodies: Bodies,
    value: Value,
    leaves: list[Tensor],
    parameters: bool = False,
) -> Structure:
    """How a value is built of tensors, which go to `leaves`."""
    value = look(value)
    if isinstance(value, Tensor):
        if value.exact_class is not torch.Tensor and not parameters:
            stop(BODY, f"a body of {bodies.name} returns a parameter")
        leaves.append(value)
        return ("tensor",)
    if type(look(value)) in (Tuple, List):
        parts = (
            structure_of(machine, bodies, one, leaves, parameters) for one in value.unpack(machine)
        )
        return ("tuple" if type(look(value)) is Tuple else "list", *parts)
    if type(look(value)) is Dict:
        keys = [one.as_constant(machine) for one in value.iterate(machine).unpack(machine)]
        items = [value.get_item(machine, machine.values.literal(key)) for key in keys]
        parts = (structure_of(machine, bodies, one, leaves, parameters) for one in items)
        return ("dict", tuple(keys), *parts)
    if isinstance(value, Constant) and type(value.value) is int:
        return ("constant", value.value)
    stop(BODY, f"a body of {bodies.name} returns {value.describe()}")


def built(machine: Machine, structure: Structure, leaves: list[Value]) -> Value:
    """The result, of its leaves (which are taken from the front)."""
    kind, *parts = structure
    if kind == "tensor":
        return leaves.pop(0)
    if kind == "constant":
        return machine.values.literal(parts[0])
    if kind == "dict":
        keys, *parts = parts
        items = [built(machine, one, leaves) for one in parts]
        return machine.values.created_dict(dict(zip(keys, items, strict=True)))
    items = [built(machine, one, leaves) for one in parts]
    return Tuple(items) if kind == "tuple" else List(items)


# -------------------------------------------------------------------------------------- operands


def operands_of(machine: Machine, bodies: Bodies, first: Sequence[Node]) -> tuple[list[Node], ...]:
    """What the bodies read: integers that vary, then tensors: those of `first`, then others."""
    sizes: list[Node] = []
    tensors = list(first)
    for node in dict.fromkeys(one for body in bodies.found for one in body.outside):
        type = info(node).type
        if isinstance(type, TensorType):
            if node not in tensors:
                tensors.append(node)
        elif isinstance(type, Expression | int):
            sizes.append(node)
        else:
            stop(BODY, f"a body of {bodies.name} uses part of a result")
    found = [info(one).type for one in (*sizes, *tensors)]
    if any(reads_of(size) for type in found for size in _sizes(type)):
        stop(BODY, f"a body of {bodies.name} has sizes that are read from data")
    return sizes, tensors


def _sizes(type: Any) -> Sequence[Any]:
    return (*type.sizes, *type.strides) if isinstance(type, TensorType) else (type,)


def graph_of(body: CapturedBody, sizes: Sequence[Node], tensors: Sequence[Node]) -> torch.fx.Graph:
    """A body as a graph of these inputs."""
    graph = torch.fx.Graph()
    given: dict[Node, Node] = {}
    for node in (*sizes, *tensors):
        given[node] = set_info(graph.placeholder(node.name), info(node))
    made: dict[Node, Node] = {}
    outside = iter(body.outside)
    for node in body.graph.nodes:
        is_input = node.op == "placeholder"
        made[node] = given[next(outside)] if is_input else copy_into(graph, node, made.__getitem__)
    return graph


def put(
    machine: Machine,
    target: Subgraphs,
    before: Sequence[Node],
    sizes: Sequence[Node],
    tensors: Sequence[Node],
) -> list[Value]:
    """A node of `target`, and the values of its results."""
    from windfall.frontend.graph import value_type

    known = {
        one.node(machine): one.fake(machine)
        for one in machine.graph.fakes.values()
        if isinstance(one, Tensor) and one.used
    }

    def fake_of(node: Node) -> torch.Tensor:
        type = info(node).type
        assert isinstance(type, TensorType)
        return known[node] if node in known else fake(type)

    numbers = tuple(as_torch(info(one).type) for one in sizes)  # type: ignore[arg-type]
    plain = (*map(fake_of, before), numbers, *map(fake_of, tensors))
    result = machine.graph.on_fakes(target, plain, {})
    nodes = (*before, tuple(sizes), *tensors)
    node = machine.graph.call("call_function", target, nodes, {}, value_type(result))
    return result_value(machine, node, result).unpack(machine)
