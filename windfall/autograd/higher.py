"""Backward passes that the split graph knows nothing of: gradients of gradients, other autocasts.

Enters: what a compiled node saved, as values of the graph that was captured (`Lineage`), and a
backward pass that somebody asks for. Leaves: its gradients as a graph of what was saved and of the
tangents, and with `again` a `Joint` of these: a function that can be differentiated, in the same
way, as often as anybody likes.

    record the forward pass → record each backward pass that there was, with a history
    → make all of it SSA → take as inputs what was saved → prune

Autograd's own engine goes over the captured graph on tensors without data, pass after pass, so it
is torch that says what has a derivative (`detach`, grad modes, functions with a backward of their
own). Nothing of the forward pass is run again: what a pass needs of it was saved for the first one.

Invariant: a value is taken for one that was saved only if both are made by the same ops of the
same values (`Numbers`). What would have to be drawn, called or read a second time is refused.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
import torch.fx

from windfall import torch_abi
from windfall.autograd.bits import pack, packed_type, unpack
from windfall.autograd.handlers import add_steps
from windfall.autograd.interpret import at_sizes
from windfall.autograd.joint import ForwardHalf, forward_half
from windfall.autograd.own_gradients import refuse_second_gradients
from windfall.autograd.parts import undo
from windfall.autograd.passes import PASSES, is_effect, keep_results_distinct, memory_root
from windfall.autograd.tracing import autocast, dense_like
from windfall.dataclass import dataclass
from windfall.errors import Unsupported
from windfall.ir.control_flow import Subgraphs
from windfall.ir.dtype import TensorType
from windfall.ir.node import NodeInfo, constant, copy_into, info, set_info, tensor_type
from windfall.ir.passes import run_passes
from windfall.ir.relation import Assumptions
from windfall.ir.stages import BackwardRegion, InputFact, Joint, OutputFact, Signature
from windfall.ops import fake as fakes
from windfall.ops import registry
from windfall.ops.symbolic import at

Node = torch.fx.Node
# Of what a gradient can be asked: ("input", i), ("result", i) of the captured graph's, ("view", i)
# of its outputs, and ("tangent", pass, i).
Leaf = tuple[Any, ...]
_STOPS = ("result", "view")


@dataclass(frozen=True, slots=True)
class GivenValue:
    """One input of a node's graph: the number of its value, if that is read, and what its gradient
    is asked for as, if it is."""

    value: int | None
    leaf: Leaf | None


@dataclass(frozen=True, slots=True)
class Pass:
    """A backward pass: which results of the one before it (first: of the captured graph, among
    those that have tangents) are given a tangent, and what gradients are asked for. `needs`: which
    tangents need a gradient themselves, where the pass is one with a history."""

    tangents: tuple[int, ...]
    wanted: tuple[Leaf, ...]
    autocast: torch.dtype | None = None
    needs: tuple[bool, ...] = ()


@dataclass(frozen=True, slots=True)
class Gradients:
    """What a pass gives. `slots` has for each wanted leaf None, the number of a result, or `~k`:
    the tangent `k` itself. `joint` takes what was saved, the tangents, then (`again`) what the
    gradients are to have a history of; without gradients of its own, `refusal` may say why."""

    joint: Joint
    slots: tuple[int | None, ...]
    lineage: Lineage
    refusal: str = ""


@dataclass(frozen=True, slots=True)
class ValueOfNode:
    """A value that a node saved: its number and type; if it is a view of all of another value, the
    number of that (`root`), which is `undone[0](saved, undone[1])`, of type `root_type`."""

    number: int
    type: TensorType
    root: int | None = None
    undone: tuple[Any, ...] = ()
    root_type: TensorType | None = None


class Numbers:
    """Value numbers: equal ones are of values that the same ops make of the same values."""

    def __init__(self) -> None:
        self._known: dict[Any, int] = {}
        self._same: dict[int, int] = {}

    def of(self, key: Any) -> int:
        """The number of a key, the same for the same key."""
        return self._known.setdefault(key, len(self._known))

    def identify(self, number: int, other: int) -> None:
        """Let what has this number from now on have the other: it is the same value."""
        self._same[number] = other

    def of_graph(self, graph: torch.fx.Graph, inputs: Sequence[int]) -> dict[Node, int]:
        """The number of each node, given those of the placeholders."""
        found: dict[Node, int] = {}
        given = iter(inputs)
        met: dict[Any, int] = {}
        for node in graph.nodes:
            if node.op == "placeholder":
                found[node] = next(given)
            elif node.op == "get_attr":
                found[node] = self.of(("constant", *_contents(constant(node))))
            elif node.op == "call_function":
                found[node] = self._of_call(node, found, met)
        return found

    def _of_call(self, node: Node, found: Mapping[Node, int], met: dict[Any, int]) -> int:
        first: Any = node.args[0] if node.args else None
        copies = registry.lookup(node.target).no_op and isinstance(first, Node)
        if copies and info(first).type == info(node).type:
            return found[first]
        target = getattr(node.target, "func", node.target)
        frozen = _frozen(node.args, found), _frozen(node.kwargs, found)
        named = target if isinstance(target, Subgraphs) else str(target)  # by its bodies
        key: tuple[Any, ...] = (named, *frozen, str(info(node).type))
        if is_effect(node) or registry.is_foreign(node.target):
            met[key] = met.get(key, 0) + 1  # it answers something else each time
            key = (*key, met[key])
        number = self.of(key)
        return self._same.get(number, number)


def _frozen(value: Any, found: Mapping[Node, int]) -> Any:
    if isinstance(value, Node):
        return Node, found[value]
    if isinstance(value, list | tuple):
        return tuple(_frozen(one, found) for one in value)
    if isinstance(value, Mapping):
        return tuple((name, _frozen(one, found)) for name, one in sorted(value.items()))
    return type(value), repr(value)


_SMALL = 1024  # elements


def _contents(value: Any) -> tuple[Any, ...]:
    """What tells constants apart: a recording may make equal ones anew."""
    if isinstance(value, torch.Tensor) and value.numel() <= _SMALL and value.device.type == "cpu":
        return str(TensorType.of(value)), str(value.tolist())
    return id(value), ""


@dataclass(frozen=True, slots=True)
class Lineage:
    """Where the graph of a node comes from: a captured graph, with its inputs of fixed sizes, and
    the backward passes over it so far. `slots` are the inputs of the node's graph; `late` are
    inputs of the captured one that need a gradient since the forward pass is over."""

    captured: torch.fx.Graph
    sizes: tuple[int, ...]  # the values of the symbols, which the captured graph takes first
    inputs: tuple[TensorType, ...]
    grad_enabled: bool
    autocast: torch.dtype | None
    default_dtype: torch.dtype
    numbers: Numbers
    slots: tuple[GivenValue, ...]
    passes: tuple[Pass, ...] = ()
    late: tuple[int, ...] = ()

    @classmethod
    def of(cls, region: BackwardRegion, sizes: tuple[int, ...], default: torch.dtype) -> Lineage:
        """The lineage of a graph as it was captured."""
        split, numbers = region.split, Numbers()
        values = dict(zip(map(str, split.symbols), sizes, strict=True))
        types = tuple(at(one.type, values) for one in split.signature.inputs)
        slots = tuple(
            GivenValue(numbers.of(("input", index)), ("input", index))
            for index in range(len(types))
        )
        results = (
            *(GivenValue(None, ("result", index)) for index in range(split.visible)),
            *(GivenValue(None, ("view", index)) for index in split.signature.between),
        )
        cast, enabled = region.autocast, region.grad_enabled
        return cls(region.captured, sizes, types, enabled, cast, default, numbers, slots + results)

    def saved(self, region: BackwardRegion) -> list[ValueOfNode]:
        """What a node of this graph saves."""
        forward = region.split.forward
        if region.split.symbols:  # a graph of gradients has none: it was recorded at these sizes
            values = dict(zip(map(str, region.split.symbols), self.sizes, strict=True))
            forward = at_sizes(forward, values)
        placeholders = forward.find_nodes(op="placeholder")
        given = [
            self.numbers.of(("unread", index)) if slot.value is None else slot.value
            for index, slot in enumerate(self.slots[: len(placeholders)])
        ]
        found = self.numbers.of_graph(forward, given)
        (output,) = forward.find_nodes(op="output")
        results: Any = output.args[0]
        nodes = (
            *(placeholders[index] for index in region.saves.inputs),
            *(results[index] for index in region.saves.results),
        )
        return [ValueOfNode(found[one], tensor_type(one), *_looked_at(one, found)) for one in nodes]


def _looked_at(node: Node, numbers: Mapping[Node, int]) -> tuple[Any, ...]:
    """Of a value that shows all of another in another way: the number of that, the op that makes it
    again, and its type."""
    root = memory_root(node)
    op = undo(node, root) if root is not node else None
    return () if op is None else (numbers[root], op, tensor_type(root))


@contextmanager
def _as_then(lineage: Lineage) -> Iterator[None]:
    """As when the graph was first recorded."""
    now = torch.get_default_dtype()
    torch.set_default_dtype(lineage.default_dtype)
    try:
        with (
            torch_abi.fence(),
            Assumptions((), closed=True),
            torch_abi.without_saved_tensor_hooks(),
        ):
            yield
    finally:
        torch.set_default_dtype(now)


def gradients(
    lineage: Lineage,
    saved: Sequence[ValueOfNode],
    asked: Pass,
    *,
    again: bool,
    handles: tuple[Leaf, ...] = (),
) -> Gradients:
    """The gradients of a node's results. Values that were `saved`, by their numbers, are inputs of
    the graph, then the tangents; `again`, then those of the `handles` to which the gradients of the
    gradients go. `Unsupported`: the graph needs what was not saved."""
    with _as_then(lineage):
        tower = _Tower(lineage)
        for one in lineage.passes:
            tower.add(one, again=True)
        found = tower.add(asked, again=again)
        results, slots = _distinct(found, tower.tangents[-1])
        request = _Request(lineage, saved, asked, results, slots, handles)
        if not again or not tower.roots:
            return request.answered(tower, ())
        try:
            refuse_second_gradients(tower.roots, tower.recorder.recording.door)
            everything = tuple(range(len(tower.roots)))
            tower.half.build.derives = True
            wanted = (*request.needing, *request.handles)
            further = tower.add(Pass(everything, wanted), again=False)
            return request.answered(tower, further)
        except (RuntimeError, Unsupported) as error:  # which is for whoever differentiates again
            return request.answered(tower, (), str(error))


class _Tower:
    """A captured graph, recorded, and backward passes upon it."""

    def __init__(self, lineage: Lineage) -> None:
        with autocast(lineage.autocast):
            self.half: ForwardHalf = forward_half(
                lineage.captured,
                lineage.sizes,
                lineage.inputs,
                lineage.grad_enabled,
            )
        self.recorder = self.half.recorder
        for index in lineage.late:  # what has saved it itself, and no view of it, leads there now
            self.recorder.recording.entered[index].requires_grad_()
        self.roots: Sequence[torch.Tensor] = [one for one, _ in self.half.known]
        self.tangents: list[list[torch.Tensor]] = []
        self.half.build.in_backward = True

    def add(self, one: Pass, *, again: bool) -> tuple[torch.Tensor | None, ...]:
        """Record a pass: the wanted gradients, each of which the next one may begin at."""
        build, steps = self.half.build, self.recorder.recording.steps
        roots = [self.roots[index] for index in one.tangents]
        types = [dense_like(fakes.type_of(root)) for root in roots]
        needs = one.needs if again else [False] * len(types)
        tangents = [
            fakes.fake(type, requires_grad=need) for type, need in zip(types, needs, strict=True)
        ]
        for index, (tangent, type) in enumerate(zip(tangents, types, strict=True)):
            build.placeholder(f"tangent{len(self.tangents)}_{index}", tangent, type)
        self.tangents.append(tangents)
        leaves = {leaf: self.leaf(leaf) for leaf in one.wanted if leaf[0] not in _STOPS}
        stops = {leaf: self.leaf(leaf) for leaf in one.wanted if leaf[0] in _STOPS}
        needing = {leaf: tensor for leaf, tensor in leaves.items() if tensor.requires_grad}
        before = len(steps)
        gradients = self.recorder.pull_back(
            roots, tangents, [*needing.values()], [*stops.values()], one.autocast, again=again
        )
        add_steps(build, steps[before:])
        found = dict(zip((*needing, *stops), gradients, strict=True))
        result = tuple(found.get(leaf) for leaf in one.wanted)
        self.roots = [one for one in _distinct(result, tangents)[0] if one.requires_grad]
        return result

    def leaf(self, leaf: Leaf) -> torch.Tensor:
        """The tensor whose gradient is asked for."""
        kind, *where = leaf
        if kind == "input":
            return self.recorder.recording.entered[where[0]]
        if kind == "tangent":
            return self.tangents[where[0]][where[1]]
        if kind == "view":
            found: torch.Tensor = self.recorder.recording.outputs[where[0]]
            return found
        return next(tensor for tensor, position in self.half.known if position == where[0])


def _distinct(
    gradients: Sequence[torch.Tensor | None], tangents: Sequence[torch.Tensor]
) -> tuple[list[torch.Tensor], tuple[int | None, ...]]:
    """Each gradient once, those that are tangents not at all; and slots, as of `Gradients`."""
    results: list[torch.Tensor] = []
    slots: list[int | None] = []
    for one in gradients:
        passed = [place for place, tangent in enumerate(tangents) if tangent is one]
        known = [place for place, result in enumerate(results) if result is one]
        if one is None:
            slots.append(None)
        elif passed:
            slots.append(~passed[0])
        elif known:
            slots.append(known[0])
        else:
            slots.append(len(results))
            results.append(one)
    return results, tuple(slots)


@dataclass(frozen=True, slots=True)
class _Request:
    """A pass that was asked for, recorded: its results, and what they may be differentiated by."""

    lineage: Lineage
    saved: Sequence[ValueOfNode]
    asked: Pass
    results: Sequence[torch.Tensor]
    slots: tuple[int | None, ...]
    handles: tuple[Leaf, ...]

    @property
    def own(self) -> tuple[Leaf, ...]:
        """Its tangents."""
        level = len(self.lineage.passes)
        return tuple(("tangent", level, index) for index in range(len(self.asked.tangents)))

    @property
    def needing(self) -> tuple[Leaf, ...]:
        """Those that need a gradient."""
        return tuple(itertools.compress(self.own, self.asked.needs))

    def answered(
        self, tower: _Tower, further: Sequence[torch.Tensor | None], refusal: str = ""
    ) -> Gradients:
        """All that was recorded as one joint graph of what was saved; `further` are the gradients
        of the results."""
        build, again = tower.half.build, bool(further)
        own = len(self.needing)
        reached = [one is not None for one in further[own:]]
        handles = tuple(itertools.compress(self.handles, reached))  # the others need no history
        if refusal:
            handles = self.handles  # whoever goes there is told
        wanted = [*further[:own], *itertools.compress(further[own:], reached)]
        facts = tuple(
            OutputFact("fresh", fakes.type_of(one), index, needs_grad=one.requires_grad)
            for index, one in enumerate(self.results)
        )
        known = build.graph.find_nodes(op="output")
        if known:  # the further gradients could not be had
            known[0].args = (known[0].args[0][: len(self.results)],)
        else:
            results = (*self.results, *wanted)
            nodes = [None if one is None else build.read(build.place(one)) for one in results]
            set_info(build.graph.output(tuple(nodes)), NodeInfo(None))
        whole = run_passes(PASSES, Joint(build.graph, Signature((), facts))).graph
        slots, types = self._inputs(tower, handles)
        beyond = self._further_tangents(tower) if again else []
        given = [*zip([one.value for one in slots], types, strict=True), *beyond]
        fresh, bits = self._fresh(tower, whole), _with_bits(whole)
        numbers = self._numbers(tower, whole, bits)
        graph = _pruned(whole, numbers, given, self.saved, fresh, bits)
        inputs = tuple(
            InputFact(type.without_grad(), needs_grad=again and slot.leaf is not None)
            for slot, type in zip(slots, types, strict=True)
        )
        tangents = tuple(index for index, one in enumerate(facts) if one.needs_grad)
        differentiated = tuple(index for index, one in enumerate(inputs) if one.needs_grad)
        joint = Joint(
            graph,
            Signature(inputs, facts),
            tangents if again else (),
            differentiated,
            captured=self.lineage.captured,
        )
        keep_results_distinct(graph, joint)
        passes = (*self.lineage.passes, self.asked)
        lineage = replace(self.lineage, slots=tuple(slots), passes=passes)
        return Gradients(joint, self.slots, lineage, refusal)

    def _inputs(
        self, tower: _Tower, handles: tuple[Leaf, ...]
    ) -> tuple[list[GivenValue], list[TensorType]]:
        of = self.lineage.numbers.of
        slots = [
            *(GivenValue(one.number, None) for one in self.saved),
            *(GivenValue(of(leaf), leaf if leaf in self.needing else None) for leaf in self.own),
            *(GivenValue(None, leaf) for leaf in handles),
        ]
        types = [one.type for one in self.saved]
        types += [fakes.type_of(tower.leaf(leaf)) for leaf in (*self.own, *handles)]
        return slots, types

    def _further_tangents(self, tower: _Tower) -> list[tuple[int, TensorType]]:
        level = len(self.lineage.passes) + 1
        return [
            (self.lineage.numbers.of(("tangent", level, index)), fakes.type_of(one))
            for index, one in enumerate(tower.tangents[level])
        ]

    def _numbers(
        self, tower: _Tower, whole: torch.fx.Graph, bits: Mapping[Node, Node]
    ) -> dict[Node, int]:
        numbers = self.lineage.numbers
        given = [numbers.of(("input", index)) for index in range(len(self.lineage.inputs))]
        for level, tangents in enumerate(tower.tangents):
            given += [numbers.of(("tangent", level, index)) for index in range(len(tangents))]
        found = numbers.of_graph(whole, given)
        for node, unpacked in bits.items():
            numbers.identify(found[unpacked], found[node])
        return found

    def _fresh(self, tower: _Tower, whole: torch.fx.Graph) -> set[Node]:
        """What depends on tangents of now: nobody has computed it yet."""
        level = len(self.lineage.passes)
        old = len(self.lineage.inputs) + sum(map(len, tower.tangents[:level]))
        found = set(whole.find_nodes(op="placeholder")[old:])
        for node in whole.nodes:
            if not found.isdisjoint(node.all_input_nodes):
                found.add(node)
        return found


def _with_bits(graph: torch.fx.Graph) -> dict[Node, Node]:
    """For each value that may have been saved as bits, the node that is made of these again: added
    to the graph, where nobody reads it."""
    masks = [node for node in graph.nodes if packed_type(node) is not None]
    (output,) = graph.find_nodes(op="output")
    found = {}
    with graph.inserting_before(output):
        for node in masks:
            found[node] = unpack(graph, pack(graph, node), node)
    return found


def _made_of_bits(
    graph: torch.fx.Graph, node: Node, mask: Node, made: Mapping[Node, Node]
) -> Node | None:
    """A node of `graph` for what bits of a mask become, if that can be had without the mask."""
    if node in made:
        return made[node]
    if node is mask or node.op == "placeholder":
        return None
    found = {one: _made_of_bits(graph, one, mask, made) for one in node.all_input_nodes}
    if None in found.values():
        return None
    return copy_into(graph, node, found.__getitem__)


def _pruned(
    graph: torch.fx.Graph,
    numbers: Mapping[Node, int],
    inputs: Sequence[tuple[int | None, TensorType]],
    saved: Sequence[ValueOfNode],
    fresh: set[Node],
    bits: Mapping[Node, Node],
) -> torch.fx.Graph:
    """The graph of the same results, as a function of these values, the first of which were
    `saved`. Of what is not `fresh`, nothing that can be seen is done a second time."""
    result = torch.fx.Graph()
    result.owning_module = graph.owning_module
    given: dict[int, Node] = {}
    for index, (number, type) in enumerate(inputs):
        node = set_info(result.placeholder(f"given{index}"), NodeInfo(type.without_grad()))
        if number is not None:
            given.setdefault(number, node)
    nodes = list(graph.nodes)
    _add_roots(result, given, saved, {*numbers.values()})
    made = {node: given[numbers[node]] for node in nodes if numbers.get(node) in given}
    for node, unpacked in bits.items():
        if node not in made:
            again = _made_of_bits(result, unpacked, node, made)
            if again is not None:
                made[node] = again
    needed = _needed(nodes, made)
    for node in nodes:
        if node in made or node not in needed:
            continue
        if node.op == "placeholder" or (node not in fresh and _is_seen(node)):
            raise Unsupported(214, f"{node}: {info(node).type}")
        made[node] = copy_into(result, node, made.__getitem__)
    return result


def _add_roots(
    graph: torch.fx.Graph,
    given: dict[int, Node],
    saved: Sequence[ValueOfNode],
    numbers: Collection[int],
) -> None:
    """What saved values are views of is given too."""
    for one in saved:
        if one.root is not None and one.root not in given and one.root in numbers:
            op, argument = one.undone
            root = graph.call_function(op, (given[one.number], argument))
            given[one.root] = set_info(root, NodeInfo(one.root_type))


def _needed(nodes: Sequence[Node], made: Mapping[Node, Node]) -> set[Node]:
    """What the last of the nodes, the output, is made of, where some are made already."""
    needed: set[Node] = {nodes[-1]}
    for node in reversed(nodes):
        if node in needed and node not in made:
            needed.update(node.all_input_nodes)
    return needed


def _is_seen(node: Node) -> bool:
    return node.op == "call_function" and (is_effect(node) or registry.is_foreign(node.target))
