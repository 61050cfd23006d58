"""What each output of a recorded graph is: fresh, an input, a view of one of these or of a view.

Enters: a `Trace` and the SSA graph made of it. Leaves: an `OutputFact` for each output, and the
fresh `Result`s that the graph computes, hidden bases of views among them. Invariant: a view is made
again, of what eager's is a view of, by the ops that made eager's; its history leads where eager's
does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from windfall import torch_abi
from windfall.autograd.functional import Functional
from windfall.autograd.spent import spent_inputs
from windfall.autograd.ssa_memory import Memory, Place
from windfall.autograd.tracing import Trace, Tracer
from windfall.dataclass import dataclass
from windfall.errors import Unsupported
from windfall.ir.stages import OutputFact
from windfall.ops import fake as fakes
from windfall.ops import registry
from windfall.ops.symbolic import from_torch


@dataclass(frozen=True, slots=True)
class Result:
    """A fresh result: where it is read, and the fake that autograd knows it by."""

    place: Place
    tensor: torch.Tensor
    needs_grad: bool


def without_spent(
    recorder: Tracer, outputs: Sequence[OutputFact], results: Sequence[Result]
) -> tuple[list[OutputFact], list[Result]]:
    """The same, where a pass inside of the graph has freed histories: such results have none that
    could be differentiated, and say so when they are asked."""
    recording = recorder.recording
    left, gone = list(results), dict[int, tuple[int, ...]]()
    for index, one in enumerate(results):
        inputs = spent_inputs(recorder, one.tensor) if one.needs_grad else ()
        if inputs:
            left[index], gone[index] = replace(one, needs_grad=False), inputs
    written = [one for one, seen in zip(recording.inputs, recording.visible, strict=True) if seen]
    views = (one for one in outputs if one.kind == "view_of_output" and one.base in gone)
    if any(spent_inputs(recorder, one) for one in written) or any(
        one.needs_grad and one.same_as < 0 for one in views
    ):
        raise Unsupported(216, "views, or inputs")
    return [
        replace(one, spent=gone[one.base], refused="")
        if one.kind == "fresh" and one.base in gone
        else one
        for one in outputs
    ], left


def outputs_of(recording: Trace, build: Functional) -> tuple[list[OutputFact], list[Result]]:
    """What each output is, and the fresh results: those of outputs in order, then hidden ones."""
    owners = _owners(recording, build)
    results: list[Result] = []
    positions: dict[Memory, int] = {}
    for value in recording.outputs:
        if not fakes.is_fake(value):
            continue
        _check_history(value)
        memory = build.place(value).memory
        if value.requires_grad and memory.input is None and _is_leaf(value, memory.root.tensor):
            raise Unsupported(206, "a leaf that needs a gradient is made and returned")
        if owners.get(memory) is value and memory not in positions:
            positions[memory] = len(results)
            results.append(Result(build.place(value), value, value.requires_grad))
    for memory, owner in owners.items():
        if owner is None:
            base = memory.root.tensor
            assert base is not None
            positions[memory] = len(results)
            wanted = _wanted(recording, build, memory)
            results.append(Result(build.place(base), base, wanted))
    facts: list[OutputFact] = []
    seen: dict[int, int] = {}
    for value in recording.outputs:
        first = seen.setdefault(id(value), len(facts)) if fakes.is_fake(value) else len(facts)
        if first < len(facts):
            kind = "view_of_output" if facts[first].kind == "fresh" else facts[first].kind
            facts.append(replace(facts[first], kind=kind, same_as=first))
        else:
            facts.append(_output_fact(value, recording, build, owners, positions))
    return facts, results


def _check_history(output: torch.Tensor) -> None:
    """Of a view whose base was written as it may not be, eager says so when it is asked. One that
    was left behind, eager lets nobody write until it is asked; ours would have been asked."""
    try:
        left_behind = torch_abi.was_left_behind(output)
        output.grad_fn  # noqa: B018
    except RuntimeError as error:
        raise Unsupported(202, str(error).splitlines()[0]) from error
    if left_behind:
        raise Unsupported(220, str(fakes.type_of(output)))


def _is_leaf(value: torch.Tensor, base: torch.Tensor | None) -> bool:
    """Whether a result that needs a gradient is a leaf, or a view of one."""
    return value.is_leaf or (base is not None and base.is_leaf and base.requires_grad)


_AS_THEY_LIE = (torch.ops.aten.view_as_real.default, torch.ops.aten.view.dtype)


def _check_marks(chain: Sequence[Place]) -> None:
    """A lazy conjugate (or sign) is no view of its memory as other numbers; eager goes another way
    there."""
    marks: set[Any] = set()
    for one in chain:
        if one.func in _AS_THEY_LIE and marks:
            raise Unsupported(219, str(one.func))
        if registry.lookup(one.func).marks:
            marks ^= {one.func}


def _view(place: Place) -> tuple[Any, tuple[Any, ...], Mapping[str, Any]]:
    """What makes a view again; where autograd was off, so it is then."""
    func = _view_op(place)
    if place.tensor is not None and torch_abi.was_unseen(place.tensor):
        return torch_abi.unseen, (func, *place.args), place.kwargs
    return func, place.args, place.kwargs


def _view_op(place: Place) -> Any:
    """`detach()` and `.data` were recorded as one op, and differ in whose version counts what is
    written."""
    if place.func is torch.ops.aten.detach.default and place.parent is not None:
        one, other = place.tensor, place.parent.tensor
        if one is not None and other is not None and not torch_abi.shares_version(one, other):
            return torch_abi.data_of
    return place.func


def _owners(recording: Trace, build: Functional) -> dict[Memory, torch.Tensor | None]:
    """For each memory of our own that an output lives in: the output that is its fresh result, or
    None if a hidden base must be. One lone view is as good as fresh, as nobody sees its base, if it
    is not marked as a lazy conjugate: what graphs compute is not."""
    seen: dict[Memory, dict[int, torch.Tensor]] = {}
    for value in recording.outputs:
        if fakes.is_fake(value):
            memory = build.place(value).memory
            if memory.input is None:
                seen.setdefault(memory, {})[id(value)] = value
    owners: dict[Memory, torch.Tensor | None] = {}
    for memory, tensors in seen.items():
        lone = next(iter(tensors.values())) if len(tensors) == 1 else None
        lone = None if lone is not None and (lone.is_conj() or lone.is_neg()) else lone
        owners[memory] = lone if lone is not None else _base(build, memory, tensors)
    return owners


def _base(
    build: Functional, memory: Memory, tensors: Mapping[int, torch.Tensor]
) -> torch.Tensor | None:
    """Of several outputs in one memory, the one that the others are views of; None if it is hidden.
    What it looks at is its sizes of now: it may have been changed in place (`t_`), as a vector's
    product with a matrix is. A view from before is made of sizes that nobody has any more."""
    base = memory.root.tensor
    assert base is not None
    now = build.place(base)
    for one in tensors.values():
        place = build.place(one)
        if now.parent is not None and place is not now and now not in place.chain():
            raise Unsupported(221, str(place.type))
    if id(base) in tensors:
        return base
    roots = (one for one in tensors.values() if build.place(one) is now)
    return next(roots, None)


def _wanted(recording: Trace, build: Functional, memory: Memory) -> bool:
    """Whether some output that is a view of this hidden base needs a gradient."""
    return any(
        value.requires_grad
        for value in recording.outputs
        if fakes.is_fake(value) and build.place(value).memory is memory
    )


def _output_fact(
    value: Any,
    recording: Trace,
    build: Functional,
    owners: Mapping[Memory, torch.Tensor | None],
    positions: Mapping[Memory, int],
) -> OutputFact:
    if not fakes.is_fake(value):
        return OutputFact("constant", value=from_torch(value))
    place = build.place(value)
    type, needs_grad = fakes.type_of(value), value.requires_grad
    refused = torch_abi.refused_view(value)
    memory = place.memory
    if memory.input is not None:
        for index, one in enumerate(recording.inputs):
            if value is one:
                return OutputFact("input", type, index, needs_grad=needs_grad)
        above = next(one for one in (*place.chain()[::-1], memory.root) if one in build.inputs)
        kind, base = "view_of_input", build.inputs[above]
    else:
        owner = owners[memory]
        base = positions[memory]
        if owner is value:
            refused = refused if needs_grad else ""
            return OutputFact("fresh", type, base, needs_grad=needs_grad, refused=refused)
        root = memory.root.tensor
        assert root is not None
        kind, above = "view_of_output", build.place(root if owner is None else owner)
    higher = above.chain()
    chain = [one for one in place.chain() if one not in higher]
    if needs_grad and any(one.func is torch.ops.aten.detach.default for one in chain):
        raise Unsupported(208, str(type))
    if needs_grad and refused == torch_abi.BY_FUNCTION:
        raise Unsupported(211, str(type))
    _check_marks(chain)
    views = tuple(_view(one) for one in chain)
    offset = fakes.offset_of(value)
    return OutputFact(kind, type, base, offset, None, needs_grad, views, refused=refused)  # type: ignore[arg-type]


# ----------------------------------------------------------------------- views and their histories


def views_with_history(recording: Trace, facts: Sequence[OutputFact]) -> dict[int, torch.Tensor]:
    """The outputs that are views, and whose gradients can be asked for, by their positions."""
    outputs: Any = zip(facts, recording.outputs, strict=True)
    return {
        index: tensor
        for index, (fact, tensor) in enumerate(outputs)
        if fact.kind in ("view_of_input", "view_of_output")
        and fact.needs_grad
        and fact.same_as < 0
        and tensor.grad_fn is not None
    }


def view_of_view(
    recording: Trace, build: Functional, facts: Sequence[OutputFact], view: int, above: int
) -> OutputFact:
    """A view whose history leads to another output that is a view: it is made of that one."""
    place, base = (build.place(recording.outputs[one]) for one in (view, above))
    chain = place.chain()
    if base not in chain:
        raise Unsupported(218, f"a view of output {above} looks past it")
    made = tuple(_view(one) for one in chain[chain.index(base) + 1 :])
    return replace(facts[view], kind="view_of_view", base=above, views=made)


def siblings(
    recording: Trace, views: Mapping[int, torch.Tensor], facts: Sequence[OutputFact]
) -> list[dict[int, OutputFact]]:
    """Of views that one op has made together (`unbind`), what they are: they have one node, which
    tells the hooks of all of them when it runs, so it is one when they are made again."""
    nodes: dict[Any, list[int]] = {}
    for index, tensor in views.items():
        nodes.setdefault(tensor.grad_fn, []).append(index)
    groups = [members for members in nodes.values() if len(members) > 1]
    found: list[dict[int, OutputFact]] = []
    for number, members in enumerate(groups):
        first = views[members[0]]
        step = next(
            step
            for step in recording.steps
            if isinstance(step.result, list | tuple) and any(one is first for one in step.result)
        )
        made = step.func, tuple(step.args[1:]), dict(step.kwargs)
        facts_of: dict[int, OutputFact] = {}
        for index in members:
            place = next(at for at, one in enumerate(step.result) if one is views[index])
            chain = (*facts[index].views[:-1], made)
            facts_of[index] = replace(facts[index], views=chain, piece=(number, place))
        found.append(facts_of)
    return found
