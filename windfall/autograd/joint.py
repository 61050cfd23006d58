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

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import partial
from types import MappingProxyType
from typing import Any

import torch
import torch.fx

from windfall.autograd.bases import Base, bases
from windfall.autograd.blocks import BlockEntries, NotRepeating
from windfall.autograd.boundaries import boundaries, ends_elsewhere, reached
from windfall.autograd.control_flow import recorded
from windfall.autograd.functional import Functional, MadeFor
from windfall.autograd.handlers import add_steps
from windfall.autograd.memory import Place
from windfall.autograd.output_facts import (
    outputs_of,
    siblings,
    view_of_view,
    views_with_history,
    without_spent,
)
from windfall.autograd.own_gradients import refuse_partial_gradients, refuse_second_gradients
from windfall.autograd.passes import PASSES
from windfall.autograd.record import Recorder, Recording, Watch, ambient_autocast
from windfall.autograd.repeats import shorten
from windfall.autograd.unroll import unroll
from windfall.autograd.unseen_views import looked_past
from windfall.autograd.written_views import must_be_alone
from windfall.dataclass import dataclass
from windfall.errors import InternalError, Unsupported
from windfall.ir.backward_pass import backward_pass
from windfall.ir.custom import CustomGradient
from windfall.ir.dtype import TensorType
from windfall.ir.graph_text import print_graph
from windfall.ir.node import NodeInfo, set_info
from windfall.ir.passes import run_passes
from windfall.ir.relation import Assumptions, assumptions
from windfall.ir.stages import InputFact, Joint, Signature
from windfall.ir.symint import Expression, Size
from windfall.ops import fake as fakes
from windfall.ops import registry
from windfall.ops.wrapped import Wrap


def differentiate(
    graph: torch.fx.Graph,
    inputs: Sequence[TensorType | Expression],
    *,
    grad_enabled: bool | None = None,
    lying: Mapping[int, tuple[int, int]] = MappingProxyType({}),
    verify: bool = False,
) -> Joint:
    """The joint graph of a captured one. Of its inputs, symbols (sizes that vary, integers) come
    before tensors; they are no inputs of the joint graph, in which expressions stand directly. What
    the thread assumes of them already is among the joint's relations.

    `grad_enabled` None: as the thread is now. `get_attr` nodes name parts of the graph's owning
    module. `lying` says of tensor inputs that they lie in memory behind the start of another one,
    and by how many bytes: they may share it. `verify`: the graph is looked over after each pass."""
    symbols = tuple(one for one in inputs if isinstance(one, Expression))
    tensors = [one for one in inputs if isinstance(one, TensorType)]
    assert tuple(inputs[: len(symbols)]) == symbols, "symbols come before tensors"
    outer = assumptions()
    with Assumptions(outer.relations if outer is not None else ()) as assumed:
        lies = bases(tensors, lying)
        whole = graph, symbols, tensors, grad_enabled, lies, verify
        joint = None if lies or _wraps(graph) else _repeated(*whole)
        if joint is None or verify:
            joint = _agreeing(joint, _passed(*whole)[0])
    return replace(joint, symbols=symbols, relations=tuple(assumed.relations)) if symbols else joint


def _wraps(graph: torch.fx.Graph) -> bool:
    """Whether values between the nodes of a graph are tensors of other classes than torch's."""
    return any(isinstance(node.target, Wrap) for node in graph.nodes)


def _repeated(
    graph: torch.fx.Graph,
    symbols: tuple[Expression, ...],
    inputs: Sequence[TensorType],
    grad_enabled: bool | None,
    shared: Mapping[int, Base],
    verify: bool,
) -> Joint | None:
    """The joint of a graph of equal blocks, of which a few are recorded; None if it has none. (A
    backward pass inside of the graph goes through all of them.)"""
    if any(node.target is backward_pass for node in graph.nodes):
        return None
    short = shorten(graph, (*symbols, *inputs))
    if short is None:
        return None
    kept = [inputs[index - len(symbols)] for index in short.kept[len(symbols) :]]
    given = short.graph, symbols, kept, grad_enabled, shared, verify
    try:
        joint, made_for = _passed(*given, BlockEntries(short).watch)
        return unroll(short, joint, made_for)
    except (NotRepeating, Unsupported, RuntimeError):
        return None  # and if it was an error, the whole graph raises it


def _agreeing(joint: Joint | None, recorded: Joint) -> Joint:
    """What was recorded, which whatever was unrolled has to be."""
    if joint is not None:
        texts = [print_graph(one.graph) for one in (joint, recorded)]
        if texts[0] != texts[1] or replace(joint, graph=recorded.graph) != recorded:
            raise InternalError("equal blocks were unrolled to another graph than they record")
    return joint or recorded


def _passed(
    graph: torch.fx.Graph,
    symbols: tuple[Expression, ...],
    inputs: Sequence[TensorType],
    grad_enabled: bool | None,
    shared: Mapping[int, Base],
    verify: bool,
    watch: Watch | None = None,
) -> tuple[Joint, dict[torch.fx.Node, MadeFor]]:
    """A graph recorded and cleaned up, and what its nodes were made for."""
    given = graph, symbols, inputs, grad_enabled, shared, symbols
    joint, made_for = _differentiate(*given, watch=watch)
    return run_passes(PASSES, joint, verify=verify), made_for


def _differentiate(
    graph: torch.fx.Graph,
    symbols: tuple[Expression, ...],
    inputs: Sequence[TensorType],
    grad_enabled: bool | None,
    shared: Mapping[int, Base],
    outer: tuple[Expression, ...],
    is_body: bool = False,
    watch: Watch | None = None,
) -> tuple[Joint, dict[torch.fx.Node, MadeFor]]:
    """`outer` are the symbols of whoever calls the whole, `symbols` what this graph is given."""
    enabled = torch.is_grad_enabled() if grad_enabled is None else grad_enabled
    # A body is part of one operation: it has no node of its own to end at.
    half = forward_half(graph, symbols, inputs, enabled, shared, outer, watch, ends=not is_body)
    if not is_body and any(map(_has_users_gradient, graph.nodes)):
        roots = [*(one for one, _ in half.known), *half.views.values()]
        refuse_partial_gradients(roots, half.recorder.recording.door)
        try:
            refuse_second_gradients(roots, half.recorder.recording.door)
        except RuntimeError as error:
            raise Unsupported(202, str(error)) from error
    signature = half.signature
    writes = len(signature.writes)
    captured = [node for node in graph.nodes if node.op == "placeholder"][len(symbols) :]
    gradients, gradients_for = _backward(half, symbols, captured)
    output = half.build.graph.output((*half.visible, *gradients))
    set_info(output, NodeInfo(None))
    joint = Joint(
        half.build.graph,
        signature,
        tuple(position - writes for _, position in half.known if position >= writes),
        gradients_for,
        tuple(position for _, position in half.known if position < writes),
        graph,
        enabled,
        ambient_autocast(),
        ungiven=_ungiven(graph, half, gradients, gradients_for),
    )
    if shared and gradients_for:
        raise Unsupported(204, f"inputs {list(shared)}, in a graph with gradients")
    if not gradients_for:
        if half.known and not is_body:
            # All that needs a gradient leads to leaves that the graph itself makes.
            raise Unsupported(206, "a result leads to a leaf that the graph makes")
        alone = replace(signature, between=())
        joint = replace(joint, signature=alone, tangents_for=(), write_tangents_for=())
    return joint, half.build.made_for


def _has_users_gradient(node: torch.fx.Node) -> bool:
    """Whether a captured node may stand for a backward that somebody has written."""
    return isinstance(node.target, CustomGradient) or registry.is_foreign(node.target)


def _ungiven(
    graph: torch.fx.Graph,
    half: ForwardHalf,
    gradients: Sequence[torch.fx.Node | None],
    gradients_for: Sequence[int],
) -> tuple[int, ...]:
    """As of `Joint`; elsewhere, what has no gradient has no history either."""
    if not any(isinstance(node.target, CustomGradient) for node in graph.nodes):
        return ()
    recording = half.recorder.recording
    needing = [index for index, needs in enumerate(recording.needs) if needs]
    found = reached([one for one, _ in half.known], recording.door)
    without = {one for one, node in zip(gradients_for, gradients, strict=True) if node is None}
    return tuple(needing[place] for place in sorted(found) if needing[place] in without)


@dataclass(frozen=True, slots=True)
class ForwardHalf:
    """A recorded forward pass as SSA, before any gradient. `visible` are the nodes of writes and
    fresh results; `known` are those tensors that autograd may be asked about, by their positions
    among these, `stops` those of them (by their positions among `known`) that are boundaries.
    `views` are boundaries that are made of other results: tensors, by their positions among
    `Signature.between`."""

    recorder: Recorder
    build: Functional
    signature: Signature
    visible: tuple[torch.fx.Node, ...]
    known: tuple[tuple[torch.Tensor, int], ...]
    stops: tuple[int, ...] = ()
    views: Mapping[int, torch.Tensor] = field(default_factory=dict)


def forward_half(
    graph: torch.fx.Graph,
    symbols: Sequence[Size],
    inputs: Sequence[TensorType],
    grad_enabled: bool,
    shared: Mapping[int, Base] = MappingProxyType({}),
    outer: tuple[Expression, ...] = (),
    watch: Watch | None = None,
    *,
    ends: bool = True,
) -> ForwardHalf:
    """Record a graph and make it SSA. `symbols` may have values: then no size varies. `outer` are
    the symbols of whoever calls the whole, of which this may be a body. `ends`: results may be
    boundaries."""

    def body(graph: torch.fx.Graph, sizes: Sequence[Any], types: Sequence[TensorType]) -> Joint:
        made, _ = _differentiate(graph, tuple(sizes), types, None, {}, outer, is_body=True)
        return run_passes(PASSES, made)

    recorder = Recorder(graph, partial(recorded, body), watch)
    recorder.symbols = outer
    build = Functional()
    offsets = {index: offset for one in shared.values() for index, offset in one.offsets.items()}
    recording = recorder.run(inputs, symbols, grad_enabled=grad_enabled, offsets=offsets)
    names = [node.name for node in graph.nodes if node.op == "placeholder"][len(symbols) :]
    places = [
        build.placeholder(
            *(names[index], tensor), shared[index].type if index in shared else inputs[index], index
        )
        for index, tensor in enumerate(recording.inputs)
    ]
    for first, base in shared.items():
        root = places[first].memory.root
        for index, offset in base.offsets.items():
            if index != first or base.whole:
                tensor = recording.inputs[index]
                places[index] = build.lies_in(tensor, index, root, offset)
    add_steps(build, recording.steps)
    if shared and any(recording.visible):  # all that lies there would have a history then
        raise Unsupported(204, f"inputs {list(shared)}, where autograd sees it")
    writes = _writes(recording, places, build)
    outputs, results = outputs_of(recording, build)
    if recorder.frees:
        outputs, results = without_spent(recorder, outputs, results)
    signature = Signature(
        tuple(
            _input_fact(recording, index, inputs[index], index in writes, past, shared, build)
            for index, past in enumerate(looked_past(recording, build))
        ),
        tuple(outputs),
        writes,
        len(results) - sum(one.kind == "fresh" for one in outputs),
    )
    written_nodes = [build.read(places[index].memory.root) for index in writes]
    fresh_nodes = [build.read(one.place) for one in results]
    known = [
        *(
            (recording.inputs[index], position)
            for position, index in enumerate(writes)
            if recording.visible[index]
        ),
        *(
            (one.tensor, len(writes) + position)
            for position, one in enumerate(results)
            if one.needs_grad
        ),
    ]
    if any(ends_elsewhere(one, recording.door) for one, _ in known):
        raise Unsupported(206, "a result leads to nothing but leaves that are made inside")
    visible = [*written_nodes, *fresh_nodes]
    half = ForwardHalf(recorder, build, signature, tuple(visible), tuple(known))
    views = views_with_history(recording, outputs) if ends else {}
    if len(known) + len(views) < 2 or not ends:
        return half
    return _bounded(half, views, watch is not None)


def _bounded(half: ForwardHalf, views: Mapping[int, torch.Tensor], is_short: bool) -> ForwardHalf:
    """With the boundaries between its results; where ways that went around one meet again, what
    they meet at is a hidden result."""
    recording, signature = half.recorder.recording, half.signature
    results = [one for one, _ in half.known]
    values = partial(_values, recording)
    found = boundaries(results, [*views.values()], recording.door, values)
    if is_short and (found.met or found.views):
        raise NotRepeating("results are made of each other")
    nodes = [half.build.read(half.build.place(one)) for one in found.met]
    first = len(half.visible)
    known = [*half.known, *((one, first + index) for index, one in enumerate(found.met))]
    places, outputs = [*views], list(signature.outputs)
    for view, above in found.above.items():
        if above >= 0:
            pair = places[view], places[above]
            outputs[pair[0]] = view_of_view(recording, half.build, outputs, *pair)
    needed = dict.fromkeys(places[view] for view in found.views)
    for group in siblings(recording, views, outputs):
        for place, fact in group.items():
            outputs[place] = fact
        if not needed.keys().isdisjoint(group):
            needed |= dict.fromkeys(group)
    stopped = {known[one][1] - len(signature.writes) for one in found.stops}
    refused = (
        place
        for place, one in enumerate(outputs)
        if one.refused and one.kind == "fresh" and one.same_as < 0 and one.base in stopped
    )
    return replace(
        half,
        signature=replace(
            signature,
            outputs=tuple(outputs),
            hidden=signature.hidden + len(nodes),
            between=(*needed, *refused),
        ),
        visible=(*half.visible, *nodes),
        known=tuple(known),
        stops=found.stops,
        views={index: views[place] for index, place in enumerate(needed)},
    )


def _values(recording: Recording) -> Iterator[torch.Tensor]:
    """Each tensor that the forward pass made."""
    for step in recording.steps[: recording.forward_steps]:
        for one in step.result if isinstance(step.result, list | tuple) else [step.result]:
            if fakes.is_fake(one):
                yield one


def _backward(
    half: ForwardHalf, symbols: Sequence[Expression], captured: Sequence[torch.fx.Node]
) -> tuple[list[torch.fx.Node | None], tuple[int, ...]]:
    """Nodes of the gradients, and what they belong to. `captured` are the inputs."""
    recorder, build, known, stops = half.recorder, half.build, half.known, half.stops
    recording = recorder.recording
    wanted = tuple(index for index, needs in enumerate(recording.needs) if needs)
    if not known or not wanted:
        return [], ()
    results = [one for one, _ in known]
    recorder.differentiate(results, symbols, stops, [*half.views.values()])
    for index, tangent in enumerate(recording.tangents):
        build.placeholder(f"tangent{index}", tangent, fakes.type_of(tangent))
    build.in_backward = build.derives = True
    add_steps(build, recording.steps[recording.forward_steps :])
    subjects = (*(captured[index] for index in wanted), *(None for _ in (*stops, *half.views)))
    gradients: list[torch.fx.Node | None] = []
    for build.subject, one in zip(subjects, recording.gradients, strict=True):
        gradients.append(None if one is None else build.read(build.place(one)))
    build.subject = None
    count = len(recording.inputs)
    ends = (count + known[one][1] for one in stops)
    views = (count + len(half.visible) + one for one in half.views)
    return gradients, (*wanted, *ends, *views)


def _writes(
    recording: Recording,
    places: Sequence[Place],
    build: Functional,
) -> tuple[int, ...]:
    """The inputs whose contents the graph changed; of those that share memory, the first."""
    written = []
    for index, (tensor, place) in enumerate(zip(recording.inputs, places, strict=True)):
        if build.place(tensor) is not place:
            now = build.place(tensor)
            if now.memory is not place.memory or not _may_become(recording, index, place, now):
                raise Unsupported(201, f"input {index}: {place.type} became {now.type}")
        if place.memory.generation and place.memory.input == index:
            written.append(index)
    return tuple(written)


def _may_become(recording: Recording, index: int, place: Place, now: Place) -> bool:
    """Whether an input can be given other sizes and strides when all is done: nobody has a history
    of it, and it begins where it did."""
    if now.type == place.type:
        return True
    tensor = recording.inputs[index]
    sizes = (*place.type.sizes, *place.type.strides, *now.type.sizes, *now.type.strides)
    return not (
        recording.needs[index]
        or tensor.requires_grad
        or fakes.offset_of(tensor)
        or any(isinstance(one, Expression) for one in sizes)
    )


def _input_fact(
    recording: Recording,
    index: int,
    type: TensorType,
    mutated: bool,
    past: bool,
    shared: Mapping[int, Base],
    build: Functional,
) -> InputFact:
    base = shared.get(index)
    whole = base is not None and base.whole
    now = build.place(recording.inputs[index]).type
    changed = (now.sizes, now.strides) != (type.sizes, type.strides)
    if changed and any(index in one.offsets for one in shared.values()):
        raise Unsupported(201, f"input {index}, which shares its memory: {type} became {now}")
    if recording.visible[index] and not mutated:
        # Autograd has noted the change, even if it was undone or is none (`squeeze_`): what is made
        # of the input leads to it as it is now, hooks and all.
        raise Unsupported(201, f"input {index}, which has a history: {type} became {now}")
    return InputFact(
        base.type if base is not None and whole else type,
        mutated,
        recording.needs[index],
        recording.versions[index],
        recording.visible[index],
        whole,
        now.without_grad() if changed else None,
        must_be_alone(recording, build, index),
        past,
    )
