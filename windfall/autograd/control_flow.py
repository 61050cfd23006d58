"""Operations with bodies, differentiated: each becomes two of its kind, one for each direction.

Enters: a target of `ir/control_flow.py` with bodies of torch functions, met while a graph is
recorded. Leaves: steps whose targets have bodies of ATen overloads: the forward one answers the
results and what its bodies save, the backward one takes that and the tangents and answers the
gradients of the operands.

    branch(flag, x, w)           → y, saved of one body or of the other
    branch(flag, saved, dy)      → dx, dw: zeros where the body that ran did not use them

Gradients with a history of their own: of a branch, from its operands; of a scan, as the operations
of all its slices; of a loop, whose rounds nobody counts beforehand, there are none.

Invariant: bodies go through `joint.py` and `partition.py` as whole graphs do, so that what is saved
is a minimum cut and random numbers are drawn once. Constants of bodies are operands.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import torch
import torch.fx

from windfall import torch_abi
from windfall.autograd.branches import branch
from windfall.autograd.directions import (
    DifferentiateBody,
    Directions,
    ResultTangent,
    SavedOperand,
    ZeroOperand,
)
from windfall.autograd.loops import scan, while_loop
from windfall.autograd.passes import draws
from windfall.autograd.restride import same_layout
from windfall.autograd.tracing import Tracer, dense_like
from windfall.errors import Unsupported
from windfall.ir.control_flow import Branch, Scan, Subgraphs, While, differentiable
from windfall.ir.dtype import TensorType
from windfall.ops import fake as fakes
from windfall.ops.overrides import standing_for
from windfall.ops.symbolic import as_torch


def recorded(
    differentiate: DifferentiateBody,
    recorder: Tracer,
    target: Subgraphs,
    arguments: Sequence[Any],
) -> tuple[torch.Tensor, ...]:
    """What an operation answers on the fakes of a recording, which has noted it. `differentiate`
    makes the joint graph of a body."""
    if target.symbols:
        raise Unsupported(215, "an operation with bodies is differentiated again, and sizes vary")
    if type(target) not in _KINDS:
        raise Unsupported(215, f"gradients of gradients of {target}")
    prepare, plan = _KINDS[type(target)]
    arguments = prepare(target, arguments)
    with recorder.paused():
        made = plan(differentiate, recorder, target, arguments)
    again = partial(_unrolled, target, arguments[0]) if isinstance(target, Scan) else None
    results: tuple[torch.Tensor, ...] = _Differentiated.apply(  # type: ignore[no-untyped-call]
        recorder, made, differentiate, again, *made.operands
    )
    return results


class _Differentiated(torch.autograd.Function):
    """The door to autograd, on fakes."""

    @staticmethod
    def forward(
        context: Any,
        recorder: Tracer,
        made: Directions,
        differentiate: DifferentiateBody,
        unrolled: Unrolled | None,
        *operands: torch.Tensor,
    ) -> Any:
        given = [operands[one] if isinstance(one, int) else one for one in made.forward_arguments]
        results = recorder.note(made.forward, given)
        context.recorder, context.made, context.differentiate = recorder, made, differentiate
        context.unrolled = unrolled
        context.versions = torch_abi.versions_of(operands)
        context.set_materialize_grads(False)
        context.save_for_backward(
            *(operands[one] for one in made.saved_operands),
            *(results[one] for one in made.saved_results),
        )
        shown = results[: made.visible]
        context.mark_non_differentiable(*(one for one in shown if not differentiable(one.dtype)))
        return shown

    @staticmethod
    def backward(context: Any, *tangents: Any) -> Any:
        recorder, made = context.recorder, context.made
        gradients: list[Any] = [None] * len(made.operands)
        if made.backward is None:
            for index in made.wanted:
                gradients[index] = _zeros(fakes.type_of(made.operands[index]))
            return (None, None, None, None, *gradients)
        if torch.is_grad_enabled() and context.unrolled is not None:
            _refuse_written(context)
            for index, one in zip(made.wanted, context.unrolled(made, tangents), strict=True):
                gradients[index] = one
            return (None, None, None, None, *gradients)
        if torch.is_grad_enabled():  # gradients have a history too
            target, given = _with_history(context, tangents)
            found = recorded(context.differentiate, recorder, target, given)
        else:
            saved, arguments = context.saved_tensors, made.backward_arguments
            given = [_given(one, saved, tangents) for one in arguments]
            found = recorder.note(made.backward, given)
        for index, place in zip(made.wanted, made.gradients, strict=True):
            gradients[index] = found[place]
        return (None, None, None, None, *gradients)


# Gradients of what a scan is given, from the tangents of its results.
Unrolled = Callable[[Directions, Sequence[Any]], Sequence[torch.Tensor]]
MOST_UNROLLED = 4096  # operations


def _unrolled(
    target: Scan, sizes: Sequence[int], made: Directions, tangents: Sequence[Any]
) -> list[torch.Tensor]:
    """What was kept of each slice has no history: the scan is done again from what it was given, as
    the operations of its bodies, and these are differentiated."""
    (body,) = target.graphs
    if draws(body):
        raise Unsupported(215, f"gradients of gradients of {target}, which draws random numbers")
    if any(isinstance(node.target, Subgraphs) for node in body.nodes):
        raise Unsupported(215, f"gradients of gradients of {target}, with operations with bodies")
    if not isinstance(target.length, int) or target.length * len(body.nodes) > MOST_UNROLLED:
        raise Unsupported(215, f"gradients of gradients of {target}, of many slices")
    # Of one operand that is given twice, each place has a gradient of its own.
    operands = [one.view_as(one) for one in made.operands]
    results = target.unrolled(standing_for, sizes, *operands)
    reached = [
        (one, tangent)
        for one, tangent in zip(results, tangents, strict=True)
        if tangent is not None and one.requires_grad
    ]
    wanted = [operands[index] for index in made.wanted]
    if not reached:
        return [_zeros(fakes.type_of(one)) for one in wanted]
    roots, given = zip(*reached, strict=True)
    found = torch_abi.gradients(roots, wanted, given, again=True)
    return [
        _zeros(fakes.type_of(one)) if gradient is None else gradient
        for one, gradient in zip(wanted, found, strict=True)
    ]


def _refuse_written(context: Any) -> None:
    if torch_abi.versions_of(context.made.operands) != context.versions:
        raise Unsupported(215, "an operand is written before gradients are asked for")


def _with_history(context: Any, tangents: Sequence[Any]) -> tuple[Subgraphs, list[Any]]:
    """The other direction, of values that all have their history."""
    made: Directions = context.made
    assert made.backward is not None
    types = made.forward.result_types
    besides = [one for one in made.saved_results if one >= made.visible]
    if not any(differentiable(types[one].dtype) for one in besides):
        saved = context.saved_tensors
        return made.backward, [_given(one, saved, tangents) for one in made.backward_arguments]
    if made.from_operands is None:
        raise Unsupported(215, f"gradients of gradients of {made.forward}")
    _refuse_written(context)
    with context.recorder.paused():
        target, arguments = made.from_operands()
    operands = made.operands
    given = [operands[one] if isinstance(one, int) else one for one in arguments]
    return target, [_given(one, (), tangents) for one in given]


def _given(argument: Any, saved: Sequence[torch.Tensor], tangents: Sequence[Any]) -> Any:
    if isinstance(argument, SavedOperand):
        return saved[argument.index]
    if isinstance(argument, ResultTangent):
        return _laid_out(tangents[argument.result], argument.type)
    return _zeros(argument.type) if isinstance(argument, ZeroOperand) else argument


def _zeros(type: TensorType) -> torch.Tensor:
    return torch.zeros(_sizes(type.sizes), dtype=type.dtype, device=type.device)


def _sizes(sizes: Iterable[Any]) -> list[Any]:
    return [as_torch(one) for one in sizes]


def _laid_out(tangent: torch.Tensor | None, type: TensorType) -> torch.Tensor:
    """A tangent as bodies expect it."""
    if tangent is None:
        return _zeros(type)
    if same_layout(fakes.type_of(tangent).without_grad(), type):
        return tangent
    sizes, strides = _sizes(type.sizes), _sizes(type.strides)
    made = torch.empty_strided(sizes, strides, dtype=type.dtype, device=type.device)
    return made.copy_(tangent)


def _dense_start(target: Subgraphs, arguments: Sequence[Any]) -> Sequence[Any]:
    """What is carried lies in memory without gaps from the start."""
    assert isinstance(target, Scan | While)
    sizes, *operands = arguments
    for place, one in enumerate(operands[: target.carried]):
        operands[place] = _laid_out(one, dense_like(fakes.type_of(one).without_grad()))
    return (sizes, *operands)


def _unprepared(target: Subgraphs, arguments: Sequence[Any]) -> Sequence[Any]:
    return arguments


# How the arguments of each kind are made ready, while the recording notes it; its two directions.
_KINDS: dict[type[Subgraphs], tuple[Callable[..., Sequence[Any]], Callable[..., Directions]]] = {
    Branch: (_unprepared, branch),
    Scan: (_dense_start, scan),
    While: (_dense_start, while_loop),
}
