"""Functions inside of a transform of `torch.func`: interpreted on what stands for their arguments.

Enters: a `TransformCall`, the function, its arguments with tensors that stand for others. Leaves:
one node with the captured graph, and what the call makes of its answers. Invariant: a function that
does anything but compute tensors breaks (W0049); modes and counts of levels are as before behind
it, and where it breaks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any

import torch
import torch.fx

from windfall import torch_abi
from windfall.dataclass import dataclass
from windfall.errors import Specialise, Unsupported
from windfall.frontend.breaks import BODY, OPERATION_FAILS, stop
from windfall.frontend.polyfills import transforms
from windfall.frontend.values.base import Arguments, Keywords, Value
from windfall.frontend.values.bodies import (
    Bodies,
    begin,
    cut_out,
    graph_of,
    operands_of,
    put,
)
from windfall.frontend.values.calls import calls
from windfall.frontend.values.pytrees import Tree, taken_apart
from windfall.frontend.values.tensor import Tensor
from windfall.frontend.values.torchapi import result_value
from windfall.ir.dtype import TensorType
from windfall.ir.node import info
from windfall.ir.symint import Expression
from windfall.ir.transform import Transform
from windfall.ops.fake import fake, is_fake, type_of

if TYPE_CHECKING:
    from windfall.frontend.graph import Dispatched
    from windfall.frontend.services import Machine

Node = torch.fx.Node


@dataclass(slots=True)
class TransformCall:
    """A transform that is being captured. `given`: the tensors that the node is given first;
    `standing`: for each that the function is given, what stands for it in the meantime."""

    name: str
    given: list[Tensor] = field(default_factory=list)
    standing: list[Tensor] = field(default_factory=list)
    start: int = 0  # calls of the graph before what stands for values

    row = ""  # of `ir/transform.py`
    enables_grad = False  # while the function is called

    def settings(self, result: Tree) -> tuple[Any, ...]:
        """Those of the row, for a function that answers such a result; refuses what torch would."""
        raise NotImplementedError

    def answer(
        self, machine: Machine, result: Tree, leaves: list[Value], made: CapturedFunction
    ) -> Value:
        """The value of all, of what the node answers."""
        raise NotImplementedError


@dataclass(slots=True)
class CapturedFunction:
    """What became of a function: its graph, and the operands of the node."""

    graph: torch.fx.Graph
    sizes: list[Node]
    others: list[Node]  # tensors that it reads from outside
    draws: bool  # random numbers


class _Body(Bodies):
    """The function that a transform is of."""

    __slots__ = ("call_", "dispatched_here", "grad_before")
    returns_new = False

    def __init__(self, call: TransformCall) -> None:
        super().__init__(call.name)
        self.call_ = call
        self.grad_before = torch.is_grad_enabled()
        self.dispatched_here: list[Dispatched] = []  # ops that the function came to


# ------------------------------------------------------------------------- beginning and ending


def stand_for(
    machine: Machine, call: TransformCall, tensor: Tensor, type: TensorType, needs: bool
) -> Any:
    """A tensor of its own that the function is given; its node goes when all is captured."""
    made = fake(type, requires_grad=needs)
    nodes = (tensor.node(machine),)
    node = machine.graph.call("call_function", torch.clone, nodes, {}, type_of(made))
    value = result_value(machine, node, made)
    assert isinstance(value, Tensor)
    call.standing.append(value)
    return value


def type_inside(machine: Machine, tensor: Tensor) -> TensorType:
    """That of a tensor inside of a transform: what it needs outside, it does not need there."""
    found = tensor.graph_argument(machine)[1]
    if not is_fake(found):
        stop(BODY, f"{tensor.describe()} is made of tensors")
    return type_of(found).without_grad()


def start(
    machine: Machine, call: TransformCall, function: Value, arguments: Value, keywords: Value
) -> Value:
    """Interpret the function; `_finish` follows."""
    body, graph = _Body(call), machine.graph

    def restore() -> None:
        torch_abi.set_mode("grad", body.grad_before)
        graph.levels -= 1
        graph.dispatched.pop()

    machine.effects.undo(restore)
    torch_abi.set_mode("grad", body.grad_before or call.enables_grad)
    graph.levels += 1
    graph.dispatched.append(body.dispatched_here)
    begin(machine, body)
    return machine.values.polyfill("transformed", [body, function, arguments, keywords])


@calls(transforms.refuse_body)
def _refuse(machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
    body, error = arguments
    assert isinstance(body, _Body)
    stop(BODY, f"the function of {body.name} raises {error.describe()}")


@calls(transforms.finish_transform)
def _finish(machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
    body, result = arguments
    assert isinstance(body, _Body)
    call, graph = body.call_, machine.graph
    leaves: list[Value] = []
    tree = taken_apart(machine, result, leaves)
    tensors = tensors_of(leaves)
    if len(tensors) < len(leaves) or not leaves:
        stop(BODY, f"the function of {body.name} returns something else than tensors")
    settings = call.settings(tree)
    noted = body.dispatched_here
    draws = any(torch.Tag.nondeterministic_seeded in one.operation.tags for one in noted)
    cut_out(machine, body, (), tensors)
    _leave(machine, body)
    standing = [one.node(machine) for one in call.standing]
    sizes, operands = operands_of(machine, body, standing)
    (captured,) = body.found
    made = CapturedFunction(
        graph_of(captured, sizes, operands), sizes, operands[len(standing) :], draws
    )
    graph.cut(call.start)
    given = [one.node(machine) for one in call.given]
    answers = put_transform(machine, call.row, settings, given, made)
    value = call.answer(machine, tree, answers, made)
    machine.frames.let_go()
    return value


def put_transform(
    machine: Machine, row: str, settings: tuple[Any, ...], given: list[Node], made: CapturedFunction
) -> list[Value]:
    target = Transform([made.graph], (), (row, len(given), settings))
    operands = [*given, *made.others]
    try:
        return put(machine, target, [], made.sizes, operands)
    except Unsupported as refused:
        varying = _symbols_of([*made.sizes, *operands])
        if refused.number != OPERATION_FAILS.number or not varying:
            raise
        # Levels of torch.func ask some sizes past all dispatch: known ones they may take.
        raise Specialise(varying, f"{row}: {refused.detail}", machine.frames.where()) from refused


def _symbols_of(nodes: Sequence[Node]) -> frozenset[str]:
    """The symbols in the types of these."""
    names: frozenset[str] = frozenset()
    for one in nodes:
        type = info(one).type
        sizes = (*type.sizes, *type.strides) if isinstance(type, TensorType) else (type,)
        for size in sizes:
            names |= size.names if isinstance(size, Expression) else frozenset()
    return names


def _leave(machine: Machine, body: _Body) -> None:
    """The modes of the level go with it."""
    graph, mode = machine.graph, torch.is_grad_enabled()

    def restore() -> None:
        torch_abi.set_mode("grad", mode)
        graph.levels += 1
        graph.dispatched.append(body.dispatched_here)

    machine.effects.undo(restore)
    torch_abi.set_mode("grad", body.grad_before)
    graph.levels -= 1
    graph.dispatched.pop()


def tensors_of(values: Sequence[Value]) -> list[Tensor]:
    return [one for one in values if isinstance(one, Tensor)]
