"""Scans and loops, differentiated.

Enters: a `Scan` or a `While` with bodies of torch functions. Leaves: its `Directions`. The other
direction carries the gradients of what was carried, and the sums of those of other operands.
Invariant: of a scan, what backward needs is kept for each slice; of a loop, whose rounds nobody
counts beforehand, nothing is: the body is done again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
import torch.fx

from windfall.autograd.directions import (
    BodyWriter,
    DifferentiateBody,
    Directions,
    Node,
    ResultTangent,
    SavedOperand,
    ZeroOperand,
    aten,
    constants_of,
    halves_of,
    named,
    result_types_of,
)
from windfall.autograd.passes import draws
from windfall.autograd.tracing import Tracer, dense_like
from windfall.dataclass import dataclass
from windfall.errors import Unsupported
from windfall.ir.control_flow import Scan, Subgraphs, Unwind, While, differentiable, stacked
from windfall.ir.dtype import TensorType
from windfall.ir.node import tensor_type
from windfall.ir.stages import Split
from windfall.ops import fake as fakes
from windfall.ops.symbolic import plain


def _slice(type: TensorType) -> TensorType:
    return replace(type, sizes=type.sizes[1:], strides=type.strides[1:])


def _row_major(type: TensorType) -> TensorType:
    return replace(TensorType.contiguous(type.dtype, type.sizes), device=type.device)


def scan(
    differentiate: DifferentiateBody,
    recorder: Tracer,
    target: Subgraphs,
    arguments: Sequence[Any],
) -> Directions:
    assert isinstance(target, Scan)
    sizes, *operands = arguments
    types = [fakes.type_of(one) for one in operands]
    count, last = target.carried, target.carried + target.scanned
    trained = torch.is_grad_enabled() and any(one.requires_grad for one in types)

    def carried(type: TensorType) -> TensorType:
        """It needs a gradient as soon as anything does: a round may have added it."""
        return replace(type, requires_grad=trained and differentiable(type.dtype))

    given = [
        *map(carried, types[:count]),
        *map(_slice, types[count:last]),
        *types[last:],
    ]
    joint = differentiate(target.graphs[0], plain(tuple(sizes)), given)
    half = halves_of(joint)
    visible = result_types_of(joint)
    visible = [*(one.without_grad() for one in types[:count]), *map(_row_major, visible[count:])]
    constants = constants_of([half.forward])
    writer = BodyWriter(named("operand", given), constants)
    results = writer.inline(half.forward, writer.inputs)
    # Kept of each round: what was carried into it, or out of it, and what the body saves.
    carried_in = [one for one in half.saved_inputs if one < count]
    carried_on = [one for one in half.saved_results if one < count]
    kept = [
        *(writer.inputs[one] for one in carried_in),
        *(results[one] for one in carried_on),
        *results[len(visible) :],
    ]
    kept_types = [_row_major(tensor_type(one)) for one in kept if one is not None]
    graph = writer.finish([*results[: len(visible)], *kept], [*visible, *kept_types])
    made = Directions(
        tuple(operands),
        Scan([graph], recorder.symbols, target.facts),
        (recorder.symbols, *range(len(operands)), *constants),
        len(visible),
    )
    if trained:
        made.wanted = tuple(one for one, type in enumerate(types) if type.requires_grad)
        if half.backward is not None:
            keeps = _Keeps(carried_in, carried_on, len(visible), kept_types)
            _turn_scan(made, recorder, target, half, given, visible, keeps)
    return made


@dataclass(frozen=True, slots=True)
class _Keeps:
    """What a scan stacks besides its results: values carried into rounds and out of them, by their
    numbers, then what the body saves; `first` is the number of the first among the results."""

    carried_in: list[int]
    carried_on: list[int]
    first: int
    types: list[TensorType]


def _turn_scan(
    made: Directions,
    recorder: Tracer,
    target: Scan,
    half: Split,
    types: Sequence[TensorType],
    visible: Sequence[TensorType],
    keeps: _Keeps,
) -> None:
    """The other direction: rounds in the opposite order, which carry the gradients of what was
    carried, and sums of those of other operands."""
    assert half.backward is not None
    count, last = target.carried, target.carried + target.scanned
    turning = [one for one in range(count) if differentiable(types[one].dtype)]
    summed = [one for one in made.wanted if one >= last]
    sliced = [one for one in made.wanted if count <= one < last]
    slices = sorted({one for one in half.saved_inputs if count <= one < last})
    others = sorted({one for one in half.saved_inputs if one >= last})
    shown = sorted({one for one in half.saved_results if one >= count})
    tangents = sorted({one for one in half.tangents_for if one >= count})
    sums = [dense_like(types[one].without_grad()) for one in summed]
    constants = constants_of([half.backward])
    writer = BodyWriter(
        [
            *named("turned", (types[one] for one in turning)),
            *named("sum", sums),
            *named("slice", (types[one] for one in slices)),
            *named("kept", keeps.types),
            *named("result", (visible[one] for one in shown)),
            *named("tangent", (visible[one] for one in tangents)),
            *named("operand", (types[one] for one in others)),
        ],
        constants,
    )
    inputs = iter(writer.inputs)
    of_turned = {one: next(inputs) for one in turning}
    of_sum = {one: next(inputs) for one in summed}
    of_input = {one: next(inputs) for one in slices}
    of_kept = [next(inputs) for _ in keeps.types]
    of_input |= dict(zip(keeps.carried_in, of_kept, strict=False))
    of_result = dict(zip(keeps.carried_on, of_kept[len(keeps.carried_in) :], strict=False))
    of_result |= {one: next(inputs) for one in shown}
    of_tangent = {one: next(inputs) for one in tangents} | of_turned
    of_input |= {one: next(inputs) for one in others}
    saved = of_kept[len(keeps.carried_in) + len(keeps.carried_on) :]
    given = (
        *(of_input[one] for one in half.saved_inputs),
        *(of_result[one] for one in half.saved_results),
        *saved,
        *(of_tangent[one] for one in half.tangents_for),
    )
    found = dict(zip(half.gradients_for, writer.inline_as(half.backward, given), strict=True))

    def gradient(one: int, type: TensorType) -> Node:
        node = found.get(one)
        return writer.zeros(type) if node is None else node

    turned_types = [types[one].without_grad() for one in turning]
    slice_types = [_row_major(types[one]) for one in sliced]
    totals = []
    for one in summed:
        node = found.get(one)
        total = of_sum[one]
        totals.append(total if node is None else writer.emit(aten.add.Tensor, total, node))
    graph = writer.finish(
        [
            *map(gradient, turning, turned_types),
            *totals,
            *map(gradient, sliced, slice_types),
        ],
        [*turned_types, *sums, *slice_types],
    )
    scanned = len(slices) + len(keeps.types) + len(shown) + len(tangents)
    carried = len(turning) + len(summed)
    facts = (carried, scanned, target.length, not target.backward)
    made.backward = Scan([graph], recorder.symbols, facts)
    made.saved_operands = (*slices, *others)
    kept = range(keeps.first, keeps.first + len(keeps.types))
    made.saved_results = (*kept, *shown)
    behind = len(slices) + len(others)
    lengths = {one: stacked(visible[one], target.length) for one in tangents}
    made.backward_arguments = (
        recorder.symbols,
        *(ResultTangent(one, types[one].without_grad()) for one in turning),
        *map(ZeroOperand, sums),
        *(SavedOperand(one) for one in range(len(slices))),
        *(SavedOperand(behind + one) for one in range(len(keeps.types) + len(shown))),
        *(ResultTangent(one, lengths[one]) for one in tangents),
        *(SavedOperand(len(slices) + one) for one in range(len(others))),
        *constants,
    )
    order = [*turning, *summed, *sliced]
    made.gradients = tuple(order.index(one) for one in made.wanted)


# ------------------------------------------------------------------------------------- loops


def while_loop(
    differentiate: DifferentiateBody,
    recorder: Tracer,
    target: Subgraphs,
    arguments: Sequence[Any],
) -> Directions:
    assert isinstance(target, While)
    sizes, *operands = arguments
    types = [fakes.type_of(one) for one in operands]
    count = target.carried
    trained = torch.is_grad_enabled() and any(one.requires_grad for one in types)

    def carried(type: TensorType) -> TensorType:
        return replace(type, requires_grad=trained and differentiable(type.dtype))

    given = [*map(carried, types[:count]), *types[count:]]
    joints = [differentiate(one, plain(tuple(sizes)), given) for one in target.graphs]
    halves = [halves_of(one) for one in joints]
    condition = [TensorType.contiguous(torch.bool, ())]
    visible = [one.without_grad() for one in types[:count]]
    constants = constants_of(one.forward for one in halves)
    graphs = []
    for half, answered in zip(halves, (condition, visible), strict=True):
        writer = BodyWriter(named("operand", given), constants)
        found = writer.inline(half.forward, writer.inputs)
        graphs.append(writer.finish(found[: len(answered)], answered))
    made = Directions(
        tuple(operands),
        While(graphs, recorder.symbols, target.facts),
        (recorder.symbols, *range(len(operands)), *constants),
        count,
    )
    if trained:
        made.wanted = tuple(one for one, type in enumerate(types) if type.requires_grad)
        if halves[1].backward is not None:
            _turn_while(made, recorder, graphs, halves[1], given, constants)
    return made


def _turn_while(
    made: Directions,
    recorder: Tracer,
    graphs: Sequence[torch.fx.Graph],
    half: Split,
    types: Sequence[TensorType],
    given_constants: Sequence[torch.Tensor],
) -> None:
    """The other direction. How many rounds there are nobody knows, so nothing is kept of them: the
    body is done again, round by round, and must do the same again."""
    assert half.backward is not None
    if any(draws(one) for one in graphs):
        raise Unsupported(215, "a while_loop that draws random numbers is differentiated")
    count = made.visible
    turning = [one for one in range(count) if differentiable(types[one].dtype)]
    summed = [one for one in made.wanted if one >= count]
    sums = [dense_like(types[one].without_grad()) for one in summed]
    turned = [types[one].without_grad() for one in turning]
    constants = (*given_constants, *constants_of([half.backward]))
    constants = tuple({id(one): one for one in constants}.values())
    writer = BodyWriter(
        [*named("turned", turned), *named("sum", sums), *named("operand", types)], constants
    )
    of_turned = dict(zip(turning, writer.inputs, strict=False))
    of_sum = dict(zip(summed, writer.inputs[len(turning) :], strict=False))
    operands = writer.inputs[len(turning) + len(summed) :]
    results = writer.inline(half.forward, operands)
    known = [one for one in results if one is not None]
    given = (
        *(operands[one] for one in half.saved_inputs),
        *(known[one] for one in half.saved_results),
        *known[count:],
        *(of_turned[one] for one in half.tangents_for),
    )
    found = dict(zip(half.gradients_for, writer.inline_as(half.backward, given), strict=True))
    answered: list[Node] = []
    for one, type in zip(turning, turned, strict=True):
        node = found.get(one)
        answered.append(writer.zeros(type) if node is None else node)
    for one in summed:
        node, total = found.get(one), of_sum[one]
        answered.append(total if node is None else writer.emit(aten.add.Tensor, total, node))
    turn = writer.finish(answered, [*turned, *sums])
    before = [_with_inputs(one, types, given_constants, constants) for one in graphs]
    facts = (len(turning), len(summed), count)
    made.backward = Unwind([*before, turn], recorder.symbols, facts)
    made.saved_operands = tuple(range(len(types)))
    made.backward_arguments = (
        recorder.symbols,
        *(ResultTangent(one, types[one].without_grad()) for one in turning),
        *map(ZeroOperand, sums),
        *(SavedOperand(one) for one in range(len(types))),
        *constants,
    )
    order = [*turning, *summed]
    made.gradients = tuple(order.index(one) for one in made.wanted)


def _with_inputs(
    graph: torch.fx.Graph,
    types: Sequence[TensorType],
    own: Sequence[torch.Tensor],
    constants: Sequence[torch.Tensor],
) -> torch.fx.Graph:
    """A body that takes more constants than its own."""
    writer = BodyWriter(named("operand", types), constants)
    given = [*writer.inputs, *(writer.constants[id(one)] for one in own)]
    results = writer.inline(graph, given)
    return writer.finish(results, [tensor_type(one) for one in results if one is not None])
