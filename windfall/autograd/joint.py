"""Forward and backward as one SSA graph.

Enters: a captured graph of torch functions and the types of its inputs. Leaves: a `Joint`: ATen
overloads without mutation, and the `Signature` that says how its results become what eager would
have returned and written.

    record the forward pass → make it SSA → say what each output is
    → record the gradients of what autograd may be asked about → make them SSA → passes

Invariant: what the user can see (objects, aliases, writes, versions, gradients that are None) is in
the signature; the graph itself is a pure function.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.fx

from windfall import torch_abi
from windfall.autograd.boundaries import boundaries
from windfall.autograd.functional import Functional
from windfall.autograd.handlers import add_steps
from windfall.autograd.memory import Memory, Place
from windfall.autograd.passes import PASSES
from windfall.autograd.record import Recorder, Recording, ambient_autocast
from windfall.errors import Unsupported
from windfall.ir.dtype import TensorType
from windfall.ir.node import NodeInfo, set_info
from windfall.ir.passes import run_passes
from windfall.ir.relation import Assumptions, assumptions
from windfall.ir.stages import InputFact, Joint, OutputFact, Signature
from windfall.ir.symint import Expression
from windfall.ops import fake as fakes
from windfall.ops.symbolic import from_torch


def differentiate(
    graph: torch.fx.Graph,
    inputs: Sequence[TensorType | Expression],
    *,
    grad_enabled: bool | None = None,
    shared: Sequence[Sequence[int]] = (),
    verify: bool = False,
) -> Joint:
    """The joint graph of a captured one. Of its inputs, symbols (sizes that vary, integers) come
    before tensors; they are no inputs of the joint graph, in which expressions stand directly. What
    the thread assumes of them already is among the joint's relations.

    `grad_enabled` None: as the thread is now. `get_attr` nodes name parts of the graph's owning
    module. `shared` lists groups of tensor inputs whose memory overlaps: none of those may be
    written. `verify`: the graph is looked over after each pass."""
    symbols = tuple(one for one in inputs if isinstance(one, Expression))
    tensors = [one for one in inputs if isinstance(one, TensorType)]
    assert tuple(inputs[: len(symbols)]) == symbols, "symbols come before tensors"
    outer = assumptions()
    with Assumptions(outer.relations if outer is not None else ()) as assumed:
        joint = _differentiate(graph, symbols, tensors, grad_enabled, shared)
        joint = run_passes(PASSES, joint, verify=verify)
    return replace(joint, symbols=symbols, relations=tuple(assumed.relations)) if symbols else joint


def _differentiate(
    graph: torch.fx.Graph,
    symbols: tuple[Expression, ...],
    inputs: Sequence[TensorType],
    grad_enabled: bool | None,
    shared: Sequence[Sequence[int]],
) -> Joint:
    enabled = torch.is_grad_enabled() if grad_enabled is None else grad_enabled
    recorder = Recorder(graph)
    build = Functional()
    recording = recorder.run(inputs, symbols, grad_enabled=enabled)
    names = [node.name for node in graph.nodes if node.op == "placeholder"][len(symbols) :]
    places = [
        build.placeholder(names[index], tensor, inputs[index], index)
        for index, tensor in enumerate(recording.inputs)
    ]
    add_steps(build, recording.steps)
    writes = _writes(recording, places, build, shared)
    outputs, results = _outputs(recording, build)
    signature = Signature(
        tuple(_input_fact(recording, index, index in writes) for index in range(len(places))),
        tuple(outputs),
        writes,
        len(results) - sum(one.kind == "fresh" for one in outputs),
    )
    written_nodes = [build.read(places[index]) for index in writes]
    fresh_nodes = [build.read(one.place) for one in results]
    write_tangents = tuple(
        position for position, index in enumerate(writes) if recording.visible[index]
    )
    tangents = tuple(position for position, one in enumerate(results) if one.needs_grad)
    known = [
        *((recording.inputs[writes[position]], position) for position in write_tangents),
        *((results[position].tensor, len(writes) + position) for position in tangents),
    ]
    shown = range(len(writes), len(writes) + len(results) - signature.hidden)
    gradients, gradients_for = _backward(recorder, build, symbols, known, shown)
    output = build.graph.output((*written_nodes, *fresh_nodes, *gradients))
    set_info(output, NodeInfo(None))
    joint = Joint(
        build.graph,
        signature,
        tangents,
        gradients_for,
        write_tangents,
        graph,
        enabled,
        ambient_autocast(),
    )
    if not gradients_for:
        joint = replace(joint, tangents_for=(), write_tangents_for=())
    return joint


@dataclass(frozen=True, slots=True)
class _Result:
    """A fresh result: where it is read, and the fake that autograd knows it by."""

    place: Place
    tensor: torch.Tensor
    needs_grad: bool


def _backward(
    recorder: Recorder,
    build: Functional,
    symbols: Sequence[Expression],
    known: Sequence[tuple[torch.Tensor, int]],
    shown: Sequence[int],
) -> tuple[list[torch.fx.Node | None], tuple[int, ...]]:
    """Nodes of the gradients, and what they belong to. `known` are the results that autograd knows,
    by their positions; those that are `shown` to the user may be boundaries."""
    recording = recorder.recording
    wanted = tuple(index for index, one in enumerate(recording.entered) if one.requires_grad)
    if not known or not wanted:
        return [], ()
    results = [one for one, _ in known]
    candidates = [index for index, (_, position) in enumerate(known) if position in shown]
    stops = boundaries(results, candidates, recording.door) if len(known) > 1 else ()
    recorder.differentiate(results, symbols, stops)
    for index, tangent in enumerate(recording.tangents):
        build.placeholder(f"tangent{index}", tangent, fakes.type_of(tangent))
    build.in_backward = True
    add_steps(build, recording.steps[recording.forward_steps :])
    return [None if one is None else build.read(build.place(one)) for one in recording.gradients], (
        *wanted,
        *(len(recording.inputs) + known[one][1] for one in stops),
    )


def _writes(
    recording: Recording,
    places: Sequence[Place],
    build: Functional,
    shared: Sequence[Sequence[int]],
) -> tuple[int, ...]:
    """The inputs whose contents the graph changed."""
    written = []
    for index, (tensor, place) in enumerate(zip(recording.inputs, places, strict=True)):
        if build.place(tensor) is not place:
            now = build.place(tensor)
            if now.memory is not place.memory or now.type != place.type:
                raise Unsupported(201, f"input {index}: {place.type} became {now.type}")
        if place.memory.generation:
            written.append(index)
    for group in shared:
        if len(group) > 1 and not set(written).isdisjoint(group):
            raise Unsupported(204, f"inputs {list(group)}")
    return tuple(written)


def _input_fact(recording: Recording, index: int, mutated: bool) -> InputFact:
    leaf = recording.entered[index]
    return InputFact(
        fakes.type_of(leaf),
        mutated,
        leaf.requires_grad,
        recording.versions[index],
        recording.visible[index],
    )


# ------------------------------------------------------------------------------------- outputs


def _outputs(recording: Recording, build: Functional) -> tuple[list[OutputFact], list[_Result]]:
    """What each output is, and the fresh results: those of outputs in order, then hidden ones."""
    owners = _owners(recording, build)
    results: list[_Result] = []
    positions: dict[Memory, int] = {}
    for value in recording.outputs:
        if not fakes.is_fake(value):
            continue
        memory = build.place(value).memory
        if owners.get(memory) is value and memory not in positions:
            if value.requires_grad and value.is_leaf:
                raise Unsupported(206, "a leaf that needs a gradient is made and returned")
            positions[memory] = len(results)
            results.append(_Result(build.place(value), value, value.requires_grad))
    for memory, owner in owners.items():
        if owner is None:
            root = memory.root.tensor
            assert root is not None
            positions[memory] = len(results)
            results.append(_Result(memory.root, root, _wanted(recording, build, memory)))
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


def _view_op(place: Place) -> Any:
    """What makes a view again: `detach()` and `.data` were recorded as one op, and differ in whose
    version counts what is written."""
    if place.func is torch.ops.aten.detach.default and place.parent is not None:
        one, other = place.tensor, place.parent.tensor
        if one is not None and other is not None and not torch_abi.shares_version(one, other):
            return torch_abi.data_of
    return place.func


def _owners(recording: Recording, build: Functional) -> dict[Memory, torch.Tensor | None]:
    """For each memory of our own that an output lives in: the output that is its fresh result, or
    None if a hidden base must be. One lone view is as good as fresh: nobody sees its base."""
    seen: dict[Memory, dict[int, torch.Tensor]] = {}
    for value in recording.outputs:
        if fakes.is_fake(value):
            memory = build.place(value).memory
            if memory.input is None:
                seen.setdefault(memory, {})[id(value)] = value
    owners: dict[Memory, torch.Tensor | None] = {}
    for memory, tensors in seen.items():
        lone = next(iter(tensors.values())) if len(tensors) == 1 else None
        roots = [one for one in tensors.values() if build.place(one).parent is None]
        owners[memory] = lone if lone is not None else roots[0] if roots else None
    return owners


def _wanted(recording: Recording, build: Functional, memory: Memory) -> bool:
    """Whether some output that is a view of this hidden base needs a gradient."""
    return any(
        value.requires_grad
        for value in recording.outputs
        if fakes.is_fake(value) and build.place(value).memory is memory
    )


def _output_fact(
    value: Any,
    recording: Recording,
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
        if value is recording.inputs[memory.input]:
            return OutputFact("input", type, memory.input, needs_grad=needs_grad)
        kind, base, above = "view_of_input", memory.input, memory.root
    else:
        owner = owners[memory]
        base = positions[memory]
        if owner is value:
            refused = refused if needs_grad else ""
            return OutputFact("fresh", type, base, needs_grad=needs_grad, refused=refused)
        kind, above = "view_of_output", memory.root
        if owner is not None:
            above = build.place(owner)
    chain = [one for one in place.chain() if one not in above.chain()]
    if needs_grad and any(one.func is torch.ops.aten.detach.default for one in chain):
        raise Unsupported(208, str(type))
    if needs_grad and refused == torch_abi.BY_FUNCTION:
        raise Unsupported(211, str(type))
    views = tuple((_view_op(one), one.args, one.kwargs) for one in chain)
    offset = fakes.offset_of(value)
    return OutputFact(kind, type, base, offset, None, needs_grad, views, refused=refused)  # type: ignore[arg-type]
