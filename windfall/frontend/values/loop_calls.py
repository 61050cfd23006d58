"""`scan`, `map`, `associative_scan` and `while_loop`: a body that is captured once.

Enters: calls of torch's higher-order operations. Leaves: a node with the graphs, as targets of
`ir/control_flow.py`, and the values of its results. Invariant: what is carried has one type, and
needs a gradient in the body if it does in any round: the body is captured again until that is so.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING

import torch
import torch.fx

from windfall import torch_abi
from windfall.frontend.breaks import ARGUMENTS, BODY, stop
from windfall.frontend.polyfills import control_flow
from windfall.frontend.values.base import Arguments, Keywords, Value
from windfall.frontend.values.bodies import (
    Bodies,
    LoopOver,
    built,
    graph_of,
    operands_of,
    put,
    structure_of,
)
from windfall.frontend.values.calls import calls
from windfall.frontend.values.sequence import List, Tuple
from windfall.frontend.values.tensor import Tensor
from windfall.frontend.values.torchapi import result_value
from windfall.frontend.values.unseen import look
from windfall.ir.control_flow import Scan, While
from windfall.ir.dtype import TensorType
from windfall.ir.node import info
from windfall.ops.fake import fake, type_of
from windfall.ops.layout import differ, smaller
from windfall.ops.symbolic import from_torch

if TYPE_CHECKING:
    from windfall.frontend.services import Machine


@calls(torch_abi.scan)
def _scan(machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
    values = machine.values
    given = dict(zip(("combine_fn", "init", "xs"), arguments, strict=False)) | keywords
    dim, reverse = given.get("dim"), given.get("reverse")
    parts = [
        *(given[name] for name in ("combine_fn", "init", "xs")),
        values.literal(0) if dim is None else dim,
        values.literal(False) if reverse is None else reverse,
    ]
    machine.frames.hold_together()
    return values.polyfill("scan", parts)


@calls(torch_abi.map_over)
def _map(machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
    given = [*arguments]
    function = keywords["f"] if "f" in keywords else given.pop(0)
    xs = keywords["xs"] if "xs" in keywords else given.pop(0)
    machine.frames.hold_together()
    return machine.values.polyfill("map_over", [function, xs, machine.values.tuple(given)])


@calls(control_flow.begin_loop)
def _begin_loop(machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
    bodies, init, xs, dim, reverse = arguments
    assert isinstance(bodies, Bodies)
    started: list[Tensor] = []
    scanned: list[Tensor] = []
    carried = structure_of(machine, bodies, init, started, parameters=True)
    slices = structure_of(machine, bodies, xs, scanned, parameters=True)
    place, back = dim.as_constant(machine), reverse.as_constant(machine)
    if type(place) is not int or type(back) is not bool:
        stop(ARGUMENTS, bodies.name)
    is_empty = not started and bodies.name not in _FROM_NOTHING
    if is_empty or (not scanned and bodies.name != "while_loop"):
        stop(ARGUMENTS, f"{bodies.name} of nothing")
    rank = scanned[0].fake(machine).dim() if scanned else 0
    place += rank if place < 0 else 0
    if not all(0 <= place < one.fake(machine).dim() for one in scanned):
        stop(ARGUMENTS, f"{bodies.name}: dim {place}")
    if place:
        scanned = [_moved(machine, one, place, 0) for one in scanned]
    lengths = [from_torch(one.fake(machine).shape[0]) for one in scanned]
    if any(differ(one, lengths[0]) or not smaller(0, one) for one in lengths):
        stop(ARGUMENTS, f"{bodies.name} of lengths {lengths}")
    if bodies.name == "associative_scan":
        if not smaller(1, lengths[0]):
            stop(ARGUMENTS, "associative_scan of one slice")
        first, rest = (-1, slice(None, -1)) if back else (0, slice(1, None))
        started, carried = [_item(machine, one, first) for one in scanned], slices
        bodies.firsts = [_item(machine, one, _next_to(first)) for one in scanned]
        scanned = [_item(machine, one, rest) for one in scanned]
    needs = [bool(one.fake(machine).requires_grad) for one in started]
    bodies.loop = LoopOver(started, carried, scanned, slices, place, back, needs)
    return machine.values.literal(None)


_FROM_NOTHING = ("map", "associative_scan")  # no value is given that is carried first


def _next_to(first: int) -> slice:
    """The first slice, as a tensor of one."""
    return slice(None, 1) if first == 0 else slice(-1, None)


def _item(machine: Machine, tensor: Value, key: int | slice) -> Tensor:
    place = machine.values.literal(key)
    made = machine.values.torch_call("call_function", operator.getitem, [tensor, place], {})
    assert isinstance(made, Tensor)
    return made


@calls(control_flow.copied)
def _copied_result(machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
    bodies, result = arguments
    assert isinstance(bodies, Bodies)
    leaves: list[Tensor] = []
    structure = structure_of(machine, bodies, result, leaves)
    copies = [machine.values.torch_call("call_method", "clone", [one], {}) for one in leaves]
    return built(machine, structure, copies)


def _moved(machine: Machine, tensor: Value, source: int, place: int) -> Tensor:
    dims = [machine.values.literal(one) for one in (source, place)]
    made = machine.values.torch_call("call_function", torch.movedim, [tensor, *dims], {})
    assert isinstance(made, Tensor)
    return made


@calls(control_flow.begin_round)
def _begin_round(machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
    """Nodes that stand for what the body is given; they go when it is captured."""
    (bodies,) = arguments
    assert isinstance(bodies, Bodies) and bodies.loop is not None
    loop, values = bodies.loop, machine.values
    loop.start = len(machine.graph.calls)
    pairs = zip(loop.init, loop.needs, strict=True)
    carried = [_standing_for(machine, one, needs) for one, needs in pairs]
    zero = values.literal(0)
    slices = [
        values.torch_call("call_method", "select", [one, zero, zero], {}) for one in loop.scanned
    ]
    loop.standing = carried, [one for one in slices if isinstance(one, Tensor)]
    parts = (built(machine, loop.carried, [*carried]), built(machine, loop.slices, slices))
    return machine.values.tuple(parts)


def _standing_for(machine: Machine, tensor: Tensor, needs: bool) -> Tensor:
    """A new tensor like another one, which needs a gradient or not."""
    given = tensor.fake(machine)
    if needs and not given.requires_grad:
        given = fake(type_of(given), requires_grad=True)
    made = machine.graph.on_fakes(torch.clone, (given,), {})
    nodes = (tensor.node(machine),)
    node = machine.graph.call("call_function", torch.clone, nodes, {}, type_of(made))
    value = result_value(machine, node, made)
    assert isinstance(value, Tensor)
    return value


@calls(control_flow.end_round)
def _end_round(machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
    """Once more, if what is carried on needs a gradient though what was carried in did not."""
    (bodies,) = arguments
    assert isinstance(bodies, Bodies) and bodies.loop is not None
    loop, body = bodies.loop, bodies.found[-1]
    kind, *parts = body.structure
    if kind != "tuple" or len(parts) != 2 or parts[0] != loop.carried:
        stop(BODY, f"the body of {bodies.name} returns another structure than it is given")
    found = [info(one).type for one in body.results[: len(loop.init)]]
    for one, given in zip(found, loop.standing[0], strict=True):
        known = info(given.node(machine)).type
        assert isinstance(known, TensorType)
        if not isinstance(one, TensorType) or (one.dtype, one.sizes) != (known.dtype, known.sizes):
            stop(BODY, f"the body of {bodies.name} carries {known}, then {one}")
    needs = [isinstance(one, TensorType) and one.requires_grad for one in found]
    if any(now and not before for now, before in zip(needs, loop.needs, strict=True)):
        loop.needs = [now or before for now, before in zip(needs, loop.needs, strict=True)]
        bodies.found.clear()
        machine.graph.cut(loop.start)
        return machine.values.literal(False)
    return machine.values.literal(True)


@calls(control_flow.finish_scan)
def _finish_scan(machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
    (bodies,) = arguments
    assert isinstance(bodies, Bodies) and bodies.loop is not None
    loop, body = bodies.loop, bodies.found[0]
    carried, slices = loop.standing
    standing = [one.node(machine) for one in (*carried, *slices)]
    sizes, tensors = operands_of(machine, bodies, standing)
    graph = graph_of(body, sizes, tensors)
    length = from_torch(loop.scanned[0].fake(machine).shape[0])
    facts = (len(loop.init), len(loop.scanned), length, loop.reverse)
    given = [one.node(machine) for one in (*loop.init, *loop.scanned)]
    machine.graph.cut(loop.start)
    leaves = put(machine, Scan([graph], (), facts), [], sizes, [*given, *tensors[len(standing) :]])
    machine.frames.let_go()
    last, stacked = leaves[: len(loop.init)], leaves[len(loop.init) :]
    if bodies.firsts:
        stacked = [
            _joined(machine, [one, other] if loop.reverse else [other, one])
            for one, other in zip(stacked, bodies.firsts, strict=True)
        ]
    if loop.dim:
        stacked = [
            _moved(machine, one, 0, loop.dim) if loop.dim < one.fake(machine).dim() else one
            for one in stacked
            if isinstance(one, Tensor)
        ]
    structure = body.structure[2]
    return machine.values.tuple(
        (built(machine, loop.carried, last), built(machine, structure, stacked))
    )


def _joined(machine: Machine, parts: list[Value]) -> Value:
    return machine.values.torch_call("call_function", torch.cat, [machine.values.tuple(parts)], {})


@calls(torch_abi.associative_scan)
def _associative_scan(machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
    """On a CPU, torch has the general way alone; slices are combined from the first to the last."""
    values = machine.values
    names = ("combine_fn", "xs", "dim", "reverse", "combine_mode")
    given = dict(zip(names, arguments, strict=False)) | keywords
    mode = given.get("combine_mode")
    if mode is None or mode.as_constant(machine) != "generic":
        stop(ARGUMENTS, "associative_scan that is pointwise")
    back = given.get("reverse") or values.literal(False)
    parts = [given["combine_fn"], given["xs"], given["dim"], back]
    machine.frames.hold_together()
    return values.polyfill("associative_scan", parts)


# ------------------------------------------------------------------------------------ while_loop


@calls(torch_abi.while_loop)
def _while_loop(machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
    names = ("cond_fn", "body_fn", "carried_inputs")
    given = dict(zip(names, arguments, strict=False)) | keywords
    if type(look(given["carried_inputs"])) not in (Tuple, List):
        stop(ARGUMENTS, "while_loop")
    machine.frames.hold_together()
    return machine.values.polyfill("while_loop", [given[name] for name in names])


@calls(control_flow.finish_while)
def _finish_while(machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
    (bodies,) = arguments
    assert isinstance(bodies, Bodies) and bodies.loop is not None
    loop = bodies.loop
    condition, body = bodies.found
    flag = info(condition.results[0]).type if condition.structure == ("tensor",) else None
    if not isinstance(flag, TensorType) or flag.dtype is not torch.bool or flag.rank:
        stop(BODY, "the condition of while_loop is no bool without dimensions")
    standing = [one.node(machine) for one in loop.standing[0]]
    sizes, tensors = operands_of(machine, bodies, standing)
    graphs = [graph_of(one, sizes, tensors) for one in (condition, body)]
    given = [one.node(machine) for one in loop.init]
    machine.graph.cut(loop.start)
    target = While(graphs, (), (len(loop.init),))
    leaves = put(machine, target, [], sizes, [*given, *tensors[len(standing) :]])
    machine.frames.let_go()
    return built(machine, ("tuple", *loop.carried[1:]), leaves)
