"""Branches, differentiated.

Enters: a `Branch` with bodies of torch functions. Leaves: its `Directions`. Invariant: bodies share
places for what they save, as one of them runs; all operands that need a gradient get one, zeros
from the body that did not use them.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
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
    constants_of,
    halves_of,
    named,
    result_types_of,
)
from windfall.autograd.passes import draws
from windfall.autograd.tracing import Tracer, dense_like
from windfall.errors import Unsupported
from windfall.ir.control_flow import Branch, Subgraphs
from windfall.ir.dtype import TensorType
from windfall.ir.stages import Split
from windfall.ops import fake as fakes
from windfall.ops.symbolic import plain


def branch(
    differentiate: DifferentiateBody,
    recorder: Tracer,
    target: Subgraphs,
    arguments: Sequence[Any],
) -> Directions:
    flag, sizes, *operands = arguments
    types = [fakes.type_of(one) for one in operands]
    joints = [differentiate(one, plain(tuple(sizes)), types) for one in target.graphs]
    halves = [halves_of(one) for one in joints]
    visible = result_types_of(joints[0])
    slots, places = _slots(halves)
    forward = [one.forward for one in halves]
    constants = constants_of(forward)
    graphs = []
    for half, taken in zip(halves, places, strict=True):
        writer = BodyWriter(named("operand", types), constants)
        results = writer.inline(half.forward, writer.inputs)
        saved: list[Node | None] = [None] * len(slots)
        for place, node in zip(taken, results[len(visible) :], strict=True):
            saved[place] = node
        graphs.append(writer.finish([*results[: len(visible)], *saved], [*visible, *slots]))
    numbers = range(1, len(operands) + 1)
    made = Directions(
        (flag, *operands),
        Branch(graphs, recorder.symbols),
        (0, recorder.symbols, *numbers, *constants),
        len(visible),
    )
    wanted = [one for one, type in enumerate(types) if type.requires_grad]
    if not torch.is_grad_enabled() or not wanted:
        return made
    made.wanted = tuple(1 + one for one in wanted)
    if any(half.backward is not None for half in halves):
        _turn_branch(made, recorder, halves, places, types, [*visible, *slots], wanted)
        made.from_operands = partial(_from_operands, recorder, halves, types, visible, wanted)
    return made


def _slots(halves: Sequence[Split]) -> tuple[list[TensorType], list[list[int]]]:
    """Places for what bodies save, which those share that never run together; and which of them
    each body takes."""
    slots: list[TensorType] = []
    places: list[list[int]] = []
    for half in halves:
        free = list(range(len(slots)))
        taken: list[int] = []
        for type in map(dense_like, half.saved):
            found = next((one for one in free if slots[one] == type), None)
            if found is None:
                found = len(slots)
                slots.append(type)
            else:
                free.remove(found)
            taken.append(found)
        places.append(taken)
    return slots, places


def _turn_branch(
    made: Directions,
    recorder: Tracer,
    halves: Sequence[Split],
    places: Sequence[Sequence[int]],
    types: Sequence[TensorType],
    results: Sequence[TensorType],
    wanted: Sequence[int],
) -> None:
    """The other direction of a branch."""
    shown = made.visible
    operands = sorted({one for half in halves for one in half.saved_inputs})
    kept = sorted({one for half in halves for one in half.saved_results})
    kept += range(shown, len(results))
    tangents = sorted({one for half in halves for one in half.tangents_for})
    backward = [half.backward for half in halves if half.backward is not None]
    constants = constants_of(backward)
    gradient_types = [dense_like(types[one]) for one in wanted]
    inputs = [
        *named("operand", (types[one] for one in operands)),
        *named("saved", (results[one] for one in kept)),
        *named("tangent", (dense_like(results[one]) for one in tangents)),
    ]
    graphs = []
    for half, taken in zip(halves, places, strict=True):
        writer = BodyWriter(inputs, constants)
        given = iter(writer.inputs)
        of_operand = {one: next(given) for one in operands}
        of_result = {one: next(given) for one in kept}
        of_tangent = {one: next(given) for one in tangents}
        nodes = (
            *(of_operand[one] for one in half.saved_inputs),
            *(of_result[one] for one in half.saved_results),
            *(of_result[shown + one] for one in taken),
            *(of_tangent[one] for one in half.tangents_for),
        )
        graphs.append(_gradients(writer, half, nodes, wanted, gradient_types))
    made.backward = Branch(graphs, recorder.symbols)
    made.saved_operands = (0, *(1 + one for one in operands))
    made.saved_results = tuple(kept)
    made.backward_arguments = (
        SavedOperand(0),
        recorder.symbols,
        *(SavedOperand(1 + one) for one in range(len(operands) + len(kept))),
        *(ResultTangent(one, dense_like(results[one])) for one in tangents),
        *constants,
    )
    made.gradients = tuple(range(len(wanted)))


def _gradients(
    writer: BodyWriter,
    half: Split,
    given: Sequence[Node],
    wanted: Sequence[int],
    types: Sequence[TensorType],
) -> torch.fx.Graph:
    """The body that answers the gradients of one body's operands; zeros of those without."""
    found: dict[int, Node | None] = {}
    if half.backward is not None:
        gradients = writer.inline_as(half.backward, given)
        found = dict(zip(half.gradients_for, gradients, strict=True))
    pairs = zip(wanted, types, strict=True)
    answered = [writer.zeros(type) if found.get(one) is None else found[one] for one, type in pairs]
    return writer.finish(answered, types)


def _from_operands(
    recorder: Tracer,
    halves: Sequence[Split],
    types: Sequence[TensorType],
    visible: Sequence[TensorType],
    wanted: Sequence[int],
) -> tuple[Subgraphs, tuple[Any, ...]]:
    """The other direction, of which bodies begin by doing the first one again."""
    if any(draws(half.forward) for half in halves):
        raise Unsupported(215, "gradients of gradients of a branch that draws random numbers")
    tangents = sorted({one for half in halves for one in half.tangents_for})
    both = [one for half in halves for one in (half.forward, half.backward) if one is not None]
    constants = constants_of(both)
    expected = [dense_like(visible[one]) for one in tangents]
    inputs = [*named("operand", types), *named("tangent", expected)]
    gradient_types = [dense_like(types[one]) for one in wanted]
    graphs = []
    for half in halves:
        writer = BodyWriter(inputs, constants)
        operands = writer.inputs[: len(types)]
        of_tangent = dict(zip(tangents, writer.inputs[len(types) :], strict=True))
        results = [one for one in writer.inline(half.forward, operands) if one is not None]
        given = (
            *(operands[one] for one in half.saved_inputs),
            *(results[one] for one in half.saved_results),
            *results[len(visible) :],
            *(of_tangent[one] for one in half.tangents_for),
        )
        graphs.append(_gradients(writer, half, given, wanted, gradient_types))
    numbers = range(1, len(types) + 1)
    pairs = zip(tangents, expected, strict=True)
    given_tangents = (ResultTangent(one, type) for one, type in pairs)
    target = Branch(graphs, recorder.symbols)
    return target, (0, recorder.symbols, *numbers, *given_tangents, *constants)
