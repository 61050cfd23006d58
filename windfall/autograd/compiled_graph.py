"""The bridge to autograd: `loss.backward()` finds a compiled graph's gradients.

Enters: the `BackwardRegion`s of an executable, the forward program as a callable, and whoever
compiles a backward graph. Leaves: a callable whose results carry one autograd node for each region.
All nodes are of one class, `CompiledGraph`, and each leads to its region (`region_of`).

Backward is compiled when it is first asked for, once for each way of asking (`variant.py`). Double
backward (`create_graph`), a backward pass under autocast, and tangents without memory that can be
read as it lies (batched, sparse, of a subclass) are `special_backward.py`'s. One door decides: the
compiled backward itself checks all that it is given, saved values included, for nobody has guarded
them, and raises `UnfitInput`.

Invariants: what is kept is what is saved, by autograd itself, so that versions are checked, hooks
run and memory is freed as in eager; gradients that eager leaves None are None.

One file: the class of the nodes, and the regions that are at work behind them.
"""

from __future__ import annotations

import functools
import itertools
import operator
import weakref
from collections import Counter, defaultdict
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from windfall import torch_abi
from windfall.autograd.assemble import regions
from windfall.autograd.between import ViewsBetween
from windfall.autograd.components import divided_by_inputs
from windfall.autograd.conventions import without_views, without_writes, write, written_early
from windfall.autograd.higher import Lineage
from windfall.autograd.histories import NOWHERE, edges_of, unsaved
from windfall.autograd.special_backward import (
    SpecialBackward,
    VariantCompiler,
    laid_out,
    reads_of,
)
from windfall.autograd.variant import Strides, expressed, tangent_types, variant
from windfall.dataclass import dataclass
from windfall.errors import InternalError, UnfitInput, Unsupported
from windfall.ir.control_flow import subgraphs_in
from windfall.ir.relation import Assumptions
from windfall.ir.stages import BackwardRegion, GraphCallable, Joint, Split
from windfall.ops import registry
from windfall.ops.symbolic import at
from windfall.variants import Variants

_CALLS = 1024  # sizes of calls that are remembered
_STRIDES = 64  # layouts of tangents that one backward is compiled for, and kept


def differentiable(
    parts: Sequence[BackwardRegion],
    forward: GraphCallable,
    compiler: VariantCompiler,
    placed: Sequence[int] = (),
    lineage: Lineage | None = None,
) -> GraphCallable:
    """A differentiable callable on the primals that answers writes and fresh results.
    `forward(*primals)` answers all results of the forward graph. Where sizes vary, it, this one and
    all of `compiler` are given the values of the symbols before all tensors. Of the writes, those
    at the positions `placed` were done by `forward`: their versions are counted here, before
    anything is saved, and nothing is answered for them. `lineage`: what it is a gradient of, if it
    is one."""
    forward = without_views(parts[0].split, without_writes(parts[0].split, forward, placed))
    nodes = [LinkedRegion(one, compiler, lineage) for one in parts]
    alone = len(parts) == len(parts[0].results) == 1
    if alone and parts[0].component.inputs and not parts[0].split.signature.between:
        return nodes[0].around(forward)
    call = _several(nodes, forward)
    divided = [divided_by_inputs(one) for one in parts]
    first = len(parts[0].split.symbols)
    positions = [first + index for one in divided for index in one.partial]
    if not positions:
        return call

    @functools.cache
    def apart() -> GraphCallable:
        made = [
            LinkedRegion(replace(part, component=component), compiler, lineage, one.whole)
            for part, one in zip(parts, divided, strict=True)
            for component in one.parts
        ]
        return _several(made, forward)

    def chosen(*args: Any) -> Any:
        if any([_hears_of_none(args[position]) for position in positions]):
            return apart()(*args)
        return call(*args)

    return chosen


def _hears_of_none(tensor: torch.Tensor) -> bool:
    """Whether the user's code is called where no gradient arrives at a tensor, though the engine
    came by: a hook of its, or the function that made it."""
    if torch_abi.is_told(tensor):
        return True
    made = getattr(type(tensor.grad_fn), "_forward_cls", None)
    return made is not None and made is not CompiledGraph and made is not Door


def _several(nodes: Sequence[LinkedRegion], forward: GraphCallable) -> GraphCallable:
    """One forward pass whose results belong to different autograd nodes; one result to several of
    them that follow each other, if they are divided by inputs. A node comes after those whose
    results it is attached to, and after the views that it is (which are answered last)."""
    split = nodes[0].region.split
    owners = _owners(nodes)
    visible, symbols = split.visible, len(split.symbols)
    attached = [(one, one.inputs, one.results) for one in nodes]
    writes, facts = split.signature.writes, split.signature.inputs
    early = {position: writes[position] for position in written_early(split)}
    replaced = [index for index in early.values() if facts[index].needs_grad]
    views = ViewsBetween(split, [one.inputs for one in nodes])
    finished = views.of_results
    steps = list(zip(attached, views.before, strict=True))

    def call(*args: Any) -> tuple[Any, ...]:
        sizes, primals = args[:symbols], args[symbols:]
        with torch.no_grad():
            results = forward(*args)
        shown = list(results[:visible])
        before = list(primals)
        for index, edge in edges_of(primals, replaced).items():
            before[index] = edge
        made: list[Any] = [None] * views.count
        pieces: dict[int, Any] = {}
        behind = defaultdict[int, list[Any]](list)  # doors
        for (node, inputs, positions), first in steps:
            for view in first:
                views.make(view, sizes, primals, shown, made, pieces)
            known = (*before, *shown, *made)
            given = (sizes, primals, results, [known[index] for index in node.beside])
            found = _attach(node, given, *([known[index] for index in inputs] or NOWHERE))
            for position, result in zip(positions, found, strict=True):
                aliases = behind[position]
                aliases.append(result)
                if len(aliases) < owners[position]:
                    continue  # another node follows that has it too
                alone = node.is_alone
                shown[position] = result if alone else _door((results[position],), *aliases)
                if position in early:
                    index = early[position]
                    write(primals[index], shown[position], facts[index].versions, visible=True)
                    shown[position] = primals[index]
                if position in finished:
                    views.make(finished[position], sizes, primals, shown, made, pieces)
                    shown[position] = made[finished[position]]
        for view in views.last:
            views.make(view, sizes, primals, shown, made, pieces)
        return (*shown, *made)

    return call


def _owners(nodes: Sequence[LinkedRegion]) -> Counter[int]:
    """How many nodes each result belongs to."""
    return Counter(position for one in nodes for position in one.results)


class CompiledGraph(torch.autograd.Function):
    """The autograd node of every compiled graph: what it does is its region's to say."""

    @staticmethod
    def forward(context: Any, node: LinkedRegion, *args: Any) -> Any:
        """Results that belong to the node."""
        return node.forward(context, args)

    @staticmethod
    def backward(context: Any, *tangents: Any) -> Any:
        """A gradient for each argument of `forward`."""
        return context.kept[0].backward(context, tangents)


class Door(torch.autograd.Function):
    """The node of one result of a node that has several: as in eager, what happens to one result
    (a hook) does not happen because another one is back-propagated."""

    @staticmethod
    def forward(context: Any, shown: tuple[Any], *results: Any) -> Any:
        """The tensor that the user gets; `results` are aliases of it that nobody else sees, one of
        each node that the result belongs to."""
        context.set_materialize_grads(False)
        return shown[0]

    @staticmethod
    def backward(context: Any, tangent: Any) -> Any:
        """It goes through."""
        return (None, *(tangent,) * _behind(context))


def _behind(door: Any) -> int:
    """How many nodes it leads to."""
    return len(door.needs_input_grad) - 1


@functools.cache
def _doors(behind: int) -> Any:
    """What doors to so many nodes have in common: one object, by which they are compared."""
    return Door, behind


# `apply` without its look for functorch and `setup_context`: the guards of an entry see to the
# first, and we have none of the second.
_attach: GraphCallable = super(torch.autograd.Function, CompiledGraph).apply
_door: Callable[..., Any] = super(torch.autograd.Function, Door).apply


# The gradients of what is attached to `NOWHERE`.
_TO_NOWHERE = (None, None, None)


def _severed(node: LinkedRegion, positions: Sequence[int], *args: Any) -> Any:
    """Attach a node, but not to these arguments: no gradient ever goes to them."""
    given = list(args)
    for position in positions:
        given[position] = given[position].detach()  # versions are still those of the argument
    return _attach(node, *given)


def region_of(node: Any) -> BackwardRegion | None:
    """The region that an autograd node (a tensor's `grad_fn`) stands for; None: it is not ours.
    What was saved for it are the node's `saved_tensors`."""
    if node is not None and node.name() == "DoorBackward":
        node = node.next_functions[0][0]
    kept = getattr(node, "kept", None)
    ours = isinstance(kept, tuple) and kept and isinstance(kept[0], LinkedRegion)
    return kept[0].region if ours else None  # type: ignore[index]


def operations_of(node: Any) -> tuple[Any, tuple[int, ...], GraphCallable] | None:
    """The backward of one of our nodes by eager's ops, for who records a whole backward pass: what
    it is (equal for nodes that do the same, given sizes and saved tensors of equal types), its
    sizes, and a function of the tangents. None: it is not ours, or hooks have packed what it has
    saved, and are to be asked when it is its turn."""
    function = getattr(type(node), "_forward_cls", None)
    if function is Door:
        return _doors(_behind(node)), (), functools.partial(Door.backward, node)
    if function is not CompiledGraph:
        return None
    linked, sizes, _ = node.kept
    if linked.has_bodies:  # which choose by data: what is recorded would be one way for good
        return None
    if getattr(node, "is_packed", False):
        return None
    return linked, sizes, lambda *tangents: linked.by_ops(node, tangents)


class LinkedRegion:
    """A region at work: what is saved, and the variants of its backward. `whole`: it is a part of
    what has these inputs; its results may belong to other nodes too, which answer the gradients of
    others of them, and gradients of gradients go to all."""

    def __init__(
        self,
        region: BackwardRegion,
        compiler: VariantCompiler,
        lineage: Lineage | None,
        whole: tuple[int, ...] = (),
    ) -> None:
        self.region = region
        self._only = region.component.inputs if whole else None  # whose gradients it answers
        backward = region.split.backward
        self.has_bodies = backward is not None and any(True for _ in subgraphs_in(backward))
        self.inputs = region.component.inputs  # of the node: what it is attached to
        self.results = region.results
        self.is_alone = len(region.results) == 1 and not whole  # its result needs no door
        # Those among the whole's that it is not attached to; their histories are kept.
        attached = {*self.inputs, *region.saves.inputs}
        self.beside = tuple(one for one in whole if one not in attached)
        self._compiler = compiler
        made = _of_gradients(compiler)
        self._special = SpecialBackward(region, compiler, lineage, made, whole or self.inputs)
        self._variants = Variants[tuple[Strides, ...], _Built | None](_STRIDES)
        # Where sizes vary: the variants by sizes and strides of a call, which they are found by.
        self._calls = Variants[Any, _Built | None](_CALLS)
        # Some gradients and not others.
        self._parts = Variants[Any, _Built | None](_STRIDES)
        # Of a graph with one result: the variants by the strides of its tangent.
        self._of_strides = Variants[Strides, _Built](_STRIDES)
        self._saved = _getter(region.saves.inputs), _getter(region.saves.results)
        # Results with another node: as that has them, if we are attached to them; others not, as
        # one that leads here would keep this node alive.
        own = self.results if self.is_alone else ()
        shown, count = range(region.split.visible), len(region.split.signature.inputs)
        # The node's own result can be checked with all the others alone.
        first = len(region.saves.inputs)
        self._own = {first + place for place, one in enumerate(region.saves.results) if one in own}
        known = (*self.inputs, *self.beside)
        self._foreign = [
            (one, known.index(count + one) if count + one in known else None)
            for one in region.saves.results
            if one in shown and one not in own
        ]
        # Gradients of gradients go through the node's result, if it is the only one: as in eager,
        # where it is saved as what it is, or by whoever has it still.
        split, alone = region.split, own if lineage is None else ()
        self._stops = tuple(one for one in alone if one in region.saves.results)
        self._watched = tuple(one for one in alone if one in split.remade)
        # If it becomes the contents of an input, as long as nobody writes that again: through it.
        self._written = _visibly_written(split, {*self._stops, *self._watched})
        # Gradients that are dear, of which a pass may leave some out (`autograd.grad(loss, [x])`).
        assert split.backward is not None
        dear = any(registry.lookup(node.target).from_memory for node in split.backward.nodes)
        self._is_divisible = dear and len(region.component.inputs) > 1
        self._unsaved = unsaved(region, lineage is not None)
        # Inputs that are saved and need no gradient, by their places among what is.
        inputs, saved = split.signature.inputs, region.saves.inputs if lineage is None else ()
        self._plain = [pair for pair in enumerate(saved) if not inputs[pair[1]].needs_grad]
        # What a node does, for `CompiledGraph`: of results made elsewhere, unless it is `around`.
        self.forward: Callable[[Any, Any], Any] = self._take
        self.backward: Callable[[Any, Any], Any] = self._of_taken
        # The same by eager's ops, for who records a whole backward pass.
        self.by_ops: Callable[[Any, Any], Any] = self._of_taken_by_ops

    def around(self, forward: GraphCallable) -> GraphCallable:
        """Let the node run `forward` itself: it is the only one."""
        split = self.region.split
        of_primals, of_found = self._saved
        visible, results, backward = split.visible, self.results, self._backward
        constant = tuple(one for one in range(visible) if one not in results)
        symbols, unsaved = len(split.symbols), self._unsaved
        nothing = (None,) * (1 + symbols)
        watched, count = self._watched, len(split.signature.inputs)
        saves_none = not self.region.component.saved
        written = self._written
        plain, leads_on = (self, (), ()), not (symbols or unsaved or watched or written)

        def run(context: Any, args: Any) -> Any:
            primals = args
            if leads_on:
                context.kept = plain
            else:
                primals = args[symbols:]
                edges = edges_of(primals, unsaved)
                context.kept = (self, args[:symbols], edges)
            found = forward(*args)
            if watched:
                edges |= {count + index: weakref.ref(found[index]) for index in watched}
            if written:
                edges |= _inputs_to_be(written, primals)
            shown = found if len(found) == visible else tuple(found[:visible])
            if not saves_none:
                context.save_for_backward(*of_primals(primals), *of_found(found))
                context.is_packed = torch_abi.hooks_saved_tensors()
            context.set_materialize_grads(False)
            if constant:
                unknown = [shown[index] for index in constant]
                context.mark_non_differentiable(*[one for one in unknown if one is not None])
            return shown

        def of_results(context: Any, given: Any) -> Any:
            own = [given[index] for index in results] if constant else given
            return nothing + backward(context, own)

        def by_ops(context: Any, given: Any) -> Any:
            own = [given[index] for index in results] if constant else given
            return nothing + self._by_ops(context, own)

        self.inputs = tuple(range(len(split.signature.inputs)))  # each argument has its slot
        self.forward, self.backward, self.by_ops = run, of_results, by_ops
        if visible == 1 and not symbols and not constant:
            self.backward = self._of_one(saves_none)
        severed = [
            symbols + index
            for index, fact in enumerate(split.signature.inputs)
            if fact.needs_grad and index not in self.region.component.inputs
        ]
        return (
            functools.partial(_severed, self, severed)
            if severed
            else functools.partial(_attach, self)
        )

    def _of_one(self, saves_none: bool) -> Callable[[Any, Any], Any]:
        """Backward of a graph with one result and fixed sizes: what a tiny function can afford."""
        built, backward = self._of_strides, self._backward
        plain, failed, op_by_op = torch.Tensor, self._compiler.failed, self._op_by_op
        kept = self._kept
        divisible, left_out = self._is_divisible, torch_abi.gradients_left_out
        grad_enabled, autocast_enabled = torch.is_grad_enabled, torch.is_autocast_enabled

        def backward_of_one(context: Any, tangents: Any) -> Any:
            (tangent,) = tangents
            if tangent.__class__ is plain and not (grad_enabled() or autocast_enabled("cpu")):
                try:
                    found = built.get(tangent.stride())
                except RuntimeError:  # it has none
                    found = None
                if divisible and left_out():
                    found = None
                if found is not None:
                    saved = () if saves_none else kept(context, found.reads)
                    try:
                        values = found.call(*saved, tangent) if found.computes else ()
                    except UnfitInput:
                        return (None, *backward(context, tangents))
                    except Exception as error:
                        failed(error)
                        return (None, *op_by_op(context, tangents))
                    slots = found.slots
                    if len(slots) == 1 and slots[0] is not None:
                        return None, tangent if slots[0] < 0 else values[slots[0]]
                    return (None, *found.gradients(values, tangents))
            return (None, *backward(context, tangents))

        return backward_of_one

    def _take(self, context: Any, args: Any) -> Any:
        """Results made elsewhere: the node's own of them."""
        (sizes, primals, found, beside), *attached = args
        edges: dict[int, Any] = self._edges_of(attached) if self._unsaved else {}
        if beside:
            edges |= _histories(self.beside, beside)
            attached = [*attached, *beside]
        first = len(primals)
        edges |= {first + index: weakref.ref(found[index]) for index in self._watched}
        edges |= _inputs_to_be(self._written, primals)
        context.kept = (self, sizes, edges)
        of_primals, of_found = self._saved
        if self._foreign:
            found = list(found)
            for index, place in self._foreign:
                found[index] = found[index].detach() if place is None else attached[place]
        context.save_for_backward(*of_primals(primals), *of_found(found))
        context.is_packed = torch_abi.hooks_saved_tensors()
        context.set_materialize_grads(False)
        if self.is_alone:
            return (args[0][2][self.results[0]],)
        return tuple([args[0][2][index].detach() for index in self.results])  # behind doors

    def _edges_of(self, attached: Sequence[Any]) -> dict[int, Any]:
        return edges_of(dict(zip(self.inputs, attached, strict=True)), self._unsaved)

    def _of_taken(self, context: Any, given: Any) -> Any:
        if not self.inputs:
            return _TO_NOWHERE
        return (None, None, *self._backward(context, given))

    def _of_taken_by_ops(self, context: Any, given: Any) -> Any:
        if not self.inputs:
            return _TO_NOWHERE
        return (None, None, *self._by_ops(context, given))

    def _by_ops(self, context: Any, tangents: Sequence[Any]) -> Any:
        """As `_op_by_op`, of tangents in any layout."""
        symbols = (str(one) for one in self.region.split.symbols)
        values = dict(zip(symbols, context.kept[1], strict=True))
        expected = tangent_types(self.region.split)
        types = [at(expected[index], values) for index in self.region.component.tangents]
        present = [index for index, one in enumerate(tangents) if one is not None]
        found = laid_out([tangents[one] for one in present], [types[one] for one in present])
        given = dict(zip(present, found, strict=True))
        return self._op_by_op(context, [given.get(one) for one in range(len(tangents))])

    def _backward(self, context: Any, tangents: Sequence[Any]) -> Any:
        """Gradients for the node's inputs."""
        if torch.is_grad_enabled():
            return self._again(context, tangents)
        try:
            return self._compiled(context, tangents, tangents)
        except UnfitInput as unfit:
            reason = str(unfit)
        given = [None if one is None else torch_abi.resolved(one) for one in tangents]
        if any(map(operator.is_not, given, tangents)):
            try:
                return self._compiled(context, tangents, given)
            except UnfitInput as unfit:
                reason = str(unfit)
        self._compiler.interpreted(reason)
        return self._op_by_op(context, tangents)

    def _compiled(self, context: Any, tangents: Sequence[Any], given: Sequence[Any]) -> Any:
        """Gradients by the compiled backward; `given` are the tangents as it takes them. It raises
        `UnfitInput` where they do not fit and nobody has counted it yet."""
        sizes, strides, found = context.kept[1], _strides(given), None
        casts = torch.is_autocast_enabled("cpu")
        wanted = None
        if self._is_divisible and torch_abi.gradients_left_out():
            wanted = self._wanted(context)
        if strides is not None and not casts:
            if wanted is not None:
                found = self._calls.get((sizes, strides, wanted))
            else:
                found = self._calls.get((sizes, strides)) if sizes else self._variants.get(strides)
        if found is None:
            obstacle = _obstacle(given)
            if strides is None or obstacle is not None:
                raise UnfitInput(obstacle)
            if casts:
                return self._op_by_op(context, tangents)  # which is compiled then
            found = self._built(strides, sizes, wanted)
            if found is None:
                return self._op_by_op(context, tangents)
        present = [one for one in given if one is not None]
        saved = self._kept(context, found.reads)
        try:
            values = found.call(*sizes, *saved, *present) if found.computes else ()
        except UnfitInput:
            raise
        except Exception as error:
            self._compiler.failed(error)
            return self._op_by_op(context, tangents)  # which says what it finds in the data
        return found.gradients(values, tangents)

    def _kept(self, context: Any, reads: Sequence[int]) -> Sequence[Any]:
        """What was saved; it raises if that was freed, or if one of those was written that this
        pass `reads`: another result's backward may need what this one does not (ADR 69). Who saves
        nothing may run again, as in eager."""
        count = len(self.region.component.saved)
        if not count:
            return ()
        try:
            saved: Sequence[Any] = context.saved_tensors
        except RuntimeError:
            if context.is_packed or len(reads) == count:
                raise
            # Its own result has its history by `saved_tensors` alone.
            if torch.is_grad_enabled() and not self._own.isdisjoint(reads):
                raise
            found = torch_abi.saved_values(context, reads, self._own)
            if found is None:
                raise
            saved = found
        return saved

    def _wanted(self, context: Any) -> tuple[int, ...]:
        """The inputs (then results) whose gradients this pass has any use for."""
        used = torch_abi.gradients_used(context, len(self.inputs))
        found = set(itertools.compress(self.inputs, used))
        return tuple([one for one in self.region.component.inputs if one in found])

    def _built(
        self,
        strides: tuple[Strides, ...],
        sizes: tuple[int, ...],
        wanted: tuple[int, ...] | None,
    ) -> _Built | None:
        """The variant for these strides, compiled now if need be; None: it cannot be."""
        known = self._symbolic(strides, sizes) if sizes else strides
        if wanted is not None:
            part: Any = (known, wanted)
            if part not in self._parts:
                self._parts.add(part, self._build(known, wanted))
            self._calls.add((sizes, strides, wanted), self._parts.get(part))
            return self._parts.get(part)
        found = self._variants.get(known)
        if found is None and known not in self._variants:
            found = self._build(known)
            self._variants.add(known, found)
            if found is not None and len(strides) == 1 and strides[0] is not None and not sizes:
                self._of_strides.add(strides[0], found)
        if sizes:
            self._calls.add((sizes, strides), found)
        return found

    def _symbolic(
        self, strides: tuple[Strides, ...], sizes: tuple[int, ...]
    ) -> tuple[Strides, ...]:
        """Strides of tangents as expressions, where they are what was expected: then one variant
        serves all sizes."""
        symbols = (str(one) for one in self.region.split.symbols)
        values = dict(zip(symbols, sizes, strict=True))
        expected = tangent_types(self.region.split)
        return tuple(
            None if one is None else expressed(one, expected[index], values)
            for index, one in zip(self.region.component.tangents, strides, strict=True)
        )

    def _build(
        self, strides: tuple[Strides, ...], wanted: tuple[int, ...] | None = None
    ) -> _Built | None:
        everywhere: list[Strides] = [None] * len(self.region.split.tangent_results)
        for index, one in zip(self.region.component.tangents, strides, strict=True):
            everywhere[index] = one
        places = {index: place for place, index in enumerate(self.region.component.tangents)}
        try:
            with Assumptions(self.region.relations, closed=True):
                saved = self.region.component.saved
                made = variant(self.region.split, everywhere, saved, wanted or self._only)
                slots = tuple(made.gradients[index] for index in self.inputs)
                slots = tuple(
                    ~places[~one] if one is not None and one < 0 else one for one in slots
                )
                computes = any(one is not None and one >= 0 for one in slots)
                reads = reads_of(made.graph, len(saved))
                return _Built(self._compiler.compile(made), slots, computes, reads)
        except Unsupported:
            return None  # counted by whoever compiles; eager answers

    def _op_by_op(self, context: Any, tangents: Sequence[Any]) -> Any:
        kept = functools.partial(self._kept, context)
        return self._spread(self._special.op_by_op(context.kept[1], kept, tangents))

    def _again(self, context: Any, tangents: Sequence[Any]) -> Any:
        """Gradients with a history."""
        sizes: tuple[int, ...] = context.kept[1]
        count, edges = len(self.region.split.signature.inputs), context.kept[2]
        alive = {one: edges[count + one]() for one in self._watched if one not in self._written}
        alive |= {one: _still(*edges[count + one]) for one in self._written}
        known = {count + one: tensor for one, tensor in alive.items() if tensor is not None}

        def tensor_of(saved: Sequence[Any], index: int) -> torch.Tensor:
            found: torch.Tensor | None = known.get(index)
            return self._tensor_of(context, saved, index) if found is None else found

        stops = (*self._stops, *(one for one, tensor in alive.items() if tensor is not None))
        wanted = self._wanted(context)
        kept = functools.partial(self._kept, context)
        late = self._late(context)
        found = self._special.again(sizes, kept, tangents, tensor_of, stops, wanted, late)
        return self._spread(found)

    def _late(self, context: Any) -> tuple[int, ...]:
        """Inputs that were saved and need a gradient only since (`x.requires_grad_()`)."""
        if not self._plain or context.is_packed:
            return ()
        try:
            saved = context.saved_tensors
        except RuntimeError:  # which is for whoever reads what was freed or written
            return ()
        return tuple([one for place, one in self._plain if saved[place].requires_grad])

    def _tensor_of(self, context: Any, saved: Sequence[Any], index: int) -> torch.Tensor:
        """A tensor with the history of an input (then: of a result), as it was in forward."""
        saves, count = self.region.saves, len(self.region.split.signature.inputs)
        if index in saves.inputs:
            found: torch.Tensor = saved[saves.inputs.index(index)]
            self._refuse_detached(context, index, found)
            return found
        if index >= count + self.region.split.visible:  # of a view
            found = context.kept[2][index]
            return found
        if index >= count and index - count in saves.results:
            found = saved[len(saves.inputs) + saves.results.index(index - count)]
            self._refuse_detached(context, index, found)
            return found
        edge = context.kept[2]
        if index in edge:
            found = edge[index]
            return found
        node = context.next_functions[self.inputs.index(index)][0]
        if node is None:
            return torch.empty(())  # without a history
        if not hasattr(node, "variable"):
            if not self._unsaved and not saved:
                return torch.empty(())  # gradients are made of tangents alone
            raise InternalError(f"the history of input {index} is needed and was not kept")
        found = node.variable  # it was a leaf
        return found

    def _refuse_detached(self, context: Any, index: int, tensor: torch.Tensor) -> None:
        """What had a history when it was saved, and has none any more."""
        if not tensor.requires_grad and index in self.inputs:
            node = context.next_functions[self.inputs.index(index)][0]
            if node is not None and not hasattr(node, "variable"):  # it was no leaf
                raise RuntimeError(_DETACHED)

    def _spread(self, found: Mapping[int, Any]) -> Any:
        """Gradients of the node's inputs."""
        return tuple([found.get(index) for index in self.inputs])


_DETACHED = (
    "Trying to use a saved tensor that has been detached in-place, i.e. with .detach_(). "
    "This is not supported. Please use out-of-place `.detach()` instead"
)


def _visibly_written(split: Split, results: Container[int]) -> dict[int, tuple[int, int]]:
    """Of these results, those that become the contents of an input where autograd sees it: which
    input, and by how much its version is raised then."""
    facts, writes = split.signature.inputs, split.signature.writes
    return {
        position: (index, facts[index].versions)
        for position, index in enumerate(writes)
        if position in results and facts[index].visible
    }


def _histories(numbers: Sequence[int], tensors: Sequence[Any]) -> dict[int, Any]:
    """Something with the history of each of these; of a leaf, itself."""
    known = dict(zip(numbers, tensors, strict=True))
    return known | edges_of(known, numbers)


def _inputs_to_be(written: Mapping[int, tuple[int, int]], primals: Sequence[Any]) -> dict[int, Any]:
    """The inputs that will be written, and the versions that they will have then."""
    now = torch_abi.versions_of([primals[index] for index, _ in written.values()])
    return {
        len(primals) + position: (weakref.ref(primals[index]), version + versions)
        for (position, (index, versions)), version in zip(written.items(), now, strict=True)
    }


def _still(tensor: Callable[[], Any], version: int) -> Any:
    """A tensor, if it is there and nobody has written it since it had that version."""
    found = tensor()
    return found if found is not None and torch_abi.versions_of([found]) == [version] else None


def _of_gradients(compiler: VariantCompiler) -> Any:
    """How a split graph of gradients becomes a callable with nodes."""

    def made(joint: Joint, split: Split, call: GraphCallable, lineage: Lineage) -> GraphCallable:
        return differentiable(regions(joint, split), call, compiler, lineage=lineage)

    return made


def _getter(positions: tuple[int, ...]) -> Callable[[Sequence[Any]], Sequence[Any]]:
    """What gets the values at these positions, as fast as Python can."""
    if len(positions) > 1:
        return operator.itemgetter(*positions)
    return lambda values: [values[index] for index in positions] if positions else ()


def _strides(tangents: Sequence[Any]) -> tuple[Strides, ...] | None:
    """Their strides; None: one of them is not even a plain object with strides."""
    if not all([one is None or one.__class__ is torch.Tensor for one in tangents]):
        return None
    try:
        return tuple([None if one is None else one.stride() for one in tangents])
    except RuntimeError:
        return None


def _obstacle(tangents: Sequence[Any]) -> str | None:
    """Why native code cannot do this backward."""
    present = [one for one in tangents if one is not None]
    if not all(type(one) is torch.Tensor and torch_abi.is_plain_tensor(one) for one in present):
        return "a gradient is no plain tensor"
    return None


@dataclass(frozen=True, slots=True)
class _Built:
    """A compiled variant. A slot is None, a result, or `~k`: the tangent `k` itself."""

    call: GraphCallable
    slots: tuple[int | None, ...]
    computes: bool  # whether any gradient is more than a tangent
    reads: tuple[int, ...]  # which of what was saved

    def gradients(self, values: Sequence[Any], tangents: Sequence[Any]) -> Any:
        """The gradients, in the order of the component's inputs."""
        return tuple(
            [
                None if slot is None else values[slot] if slot >= 0 else tangents[~slot]
                for slot in self.slots
            ]
        )
