"""The bridge to autograd: `loss.backward()` finds a compiled graph's gradients.

Enters: the `BackwardRegion`s of an executable, the forward program as a callable, and whoever
compiles a backward graph. Leaves: a callable whose results carry one autograd node for each region.
All nodes are of one class, `CompiledGraph`, and each leads to its region (`region_of`).

Backward is compiled when it is first asked for, once for each way of asking (`variant.py`). What a
compiled backward cannot do is done by eager, on a replay of the forward pass (`replay.py`): double
backward (`create_graph`), a backward pass under autocast, tangents without memory that can be read
as it lies (batched, sparse, of a subclass). One door decides: the compiled backward itself checks
all that it is given, saved values included, for nobody has guarded them, and raises `UnfitInput`.

Invariants: what is saved is saved by autograd itself, so that versions are checked, hooks run and
memory is freed as in eager; gradients that eager leaves None are None.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from windfall import torch_abi
from windfall.autograd.passes import memory_root
from windfall.autograd.replay import Replay
from windfall.autograd.variant import Strides, Variant, expressed, tangent_types, variant
from windfall.errors import UnfitInput, Unsupported
from windfall.ir.relation import Assumptions
from windfall.ir.stages import BackwardRegion, GraphCallable, Split
from windfall.variants import Variants

_CALLS = 1024  # sizes of calls that are remembered
_STRIDES = 64  # layouts of tangents that one backward is compiled for, and kept


class VariantCompiler(Protocol):
    """Who is asked for a backward, and told what became of it."""

    def compile(self, variant: Variant) -> GraphCallable:
        """The graph of a variant as a callable, which raises `UnfitInput` of tensors that are not
        what the graph says; `Unsupported`: eager has to answer."""

    def failed(self, error: Exception) -> None:
        """What such a callable raised; eager goes on."""

    def replayed(self, reason: str) -> None:
        """Why eager did a backward of its own."""


def differentiable(
    regions: Sequence[BackwardRegion], forward: GraphCallable, compiler: VariantCompiler
) -> GraphCallable:
    """A differentiable callable on the primals that answers writes and fresh results.
    `forward(*primals)` answers all results of the forward graph. Where sizes vary, it, this one and
    all of `compiler` are given the values of the symbols before all tensors."""
    replay = Replay(regions[0])
    forward = _without_views(regions[0].split, forward)
    if len(regions) == len(regions[0].results) == 1:
        return LinkedRegion(regions[0], replay, compiler).around(forward)
    nodes = [LinkedRegion(one, replay, compiler) for one in regions]
    return _several(nodes, forward, replay.keep)


def _without_views(split: Split, forward: GraphCallable) -> GraphCallable:
    """`forward`, whose results are no views to autograd: of the views that a node answers it takes
    each for one of an input, and refuses writes to it."""
    (output,) = split.forward.find_nodes(op="output")
    shown = output.args[0][: split.visible]
    views = [index for index, one in enumerate(shown) if memory_root(one) is not one]
    if not views:
        return forward

    def call(*args: Any) -> tuple[Any, ...]:
        results = list(forward(*args))
        for index in views:
            results[index] = results[index].detach()
        return tuple(results)

    return call


def _several(
    nodes: Sequence[LinkedRegion], forward: GraphCallable, keep: GraphCallable
) -> GraphCallable:
    """One forward pass whose results belong to different autograd nodes. A node comes after those
    whose results it is attached to."""
    split = nodes[0].region.split
    visible, symbols = split.visible, len(split.symbols)
    attached = [(one, one.inputs, one.results) for one in nodes]

    def call(*args: Any) -> tuple[Any, ...]:
        sizes, primals = args[:symbols], args[symbols:]
        kept = (*keep(primals), sizes)
        with torch.no_grad():
            results = forward(*args)
        shown = list(results[:visible])
        for node, inputs, positions in attached:
            known = (*primals, *shown)
            given = (kept, primals, results)
            found = _attach(node, given, *[known[index] for index in inputs])
            for position, result in zip(positions, found, strict=True):
                alone = len(positions) == 1
                shown[position] = result if alone else _door((results[position],), result)
        return tuple(shown)

    return call


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
    def forward(context: Any, shown: tuple[Any], result: Any) -> Any:
        """The tensor that the user gets; `result` is an alias of it that nobody else sees."""
        context.set_materialize_grads(False)
        return shown[0]

    @staticmethod
    def backward(context: Any, tangent: Any) -> Any:
        """It goes through."""
        return None, tangent


# `apply` without its look for functorch and `setup_context`: the guards of an entry see to the
# first, and we have none of the second.
_attach: GraphCallable = super(torch.autograd.Function, CompiledGraph).apply
_door: Callable[..., Any] = super(torch.autograd.Function, Door).apply


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


class LinkedRegion:
    """A region at work: what is saved, and the variants of its backward."""

    def __init__(self, region: BackwardRegion, replay: Replay, compiler: VariantCompiler) -> None:
        self.region = region
        self.inputs = region.component.inputs
        self.results = region.results
        self._replay = replay
        self._compiler = compiler
        self._variants = Variants[tuple[Strides, ...], _Built | None](_STRIDES)
        # Where sizes vary: the variants by sizes and strides of a call, which they are found by.
        self._calls = Variants[Any, _Built | None](_CALLS)
        # Of a graph with one result: the variants by the strides of its tangent.
        self._of_strides = Variants[Strides, _Built](_STRIDES)
        self._saved = _getter(region.saves.inputs), _getter(region.saves.results)
        # Results with another node: as they are, one that leads here would keep this node alive.
        own = self.results if len(self.results) == 1 else ()
        shown = range(region.split.visible)
        self._foreign = [one for one in region.saves.results if one in shown and one not in own]
        # What a node does, for `CompiledGraph`: of results made elsewhere, unless it is `around`.
        self.forward: Callable[[Any, Any], Any] = self._take
        self.backward: Callable[[Any, Any], Any] = self._of_taken

    def around(self, forward: GraphCallable) -> GraphCallable:
        """Let the node run `forward` itself: it is the only one."""
        split, keep = self.region.split, self._replay.keep
        of_primals, of_found = self._saved
        visible, results, backward = split.visible, self.results, self._backward
        constant = tuple(one for one in range(visible) if one not in results)
        symbols = len(split.symbols)
        nothing = (None,) * (1 + symbols)
        saves_none = not self.region.component.saved
        # What `keep` would take, without asking it: what a tiny function can afford.
        simple, versions_of = not symbols and self._replay.is_simple, torch_abi.versions_of

        def run(context: Any, args: Any) -> Any:
            primals = args
            if simple:
                context.kept = (self, args, versions_of(args), None, ())
            else:
                primals = args[symbols:]
                context.kept = (self, *keep(primals), args[:symbols])
            found = forward(*args)
            shown = found if len(found) == visible else tuple(found[:visible])
            if not saves_none:
                context.save_for_backward(*of_primals(primals), *of_found(found))
            context.set_materialize_grads(False)
            if constant:
                context.mark_non_differentiable(*[shown[index] for index in constant])
            return shown

        def of_results(context: Any, given: Any) -> Any:
            own = [given[index] for index in results] if constant else given
            return nothing + backward(context, own)

        self.inputs = tuple(range(len(split.signature.inputs)))  # each argument has its slot
        self.forward, self.backward = run, of_results
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
        built, backward, by_eager = self._of_strides, self._backward, self._by_eager
        plain, keeps = torch.Tensor, torch_abi.backward_keeps_graph
        grad_enabled, autocast_enabled = torch.is_grad_enabled, torch.is_autocast_enabled
        failed, freed = self._compiler.failed, (self, None, None, None, ())

        def backward_of_one(context: Any, tangents: Any) -> Any:
            (tangent,) = tangents
            if tangent.__class__ is plain and not (grad_enabled() or autocast_enabled("cpu")):
                try:
                    found = built.get(tangent.stride())
                except RuntimeError:  # it has none
                    found = None
                if found is not None:
                    saved = () if saves_none else context.saved_tensors  # raises if freed
                    try:
                        values = found.call(*saved, tangent) if found.computes else ()
                    except UnfitInput:
                        return (None, *backward(context, tangents))
                    except Exception as error:
                        failed(error)
                        values = None
                    if values is None:
                        return (None, *by_eager(context, tangents))
                    if not keeps():
                        context.kept = freed
                    slots = found.slots
                    if len(slots) == 1 and slots[0] is not None:
                        return None, tangent if slots[0] < 0 else values[slots[0]]
                    return (None, *found.gradients(values, tangents))
            return (None, *backward(context, tangents))

        return backward_of_one

    def _take(self, context: Any, args: Any) -> Any:
        """Results made elsewhere: the node's own of them."""
        kept, primals, found = args[0]
        context.kept = (self, *kept)
        of_primals, of_found = self._saved
        if self._foreign:
            found = list(found)
            for index in self._foreign:
                found[index] = found[index].detach()
        context.save_for_backward(*of_primals(primals), *of_found(found))
        context.set_materialize_grads(False)
        if len(self.results) == 1:
            return (found[self.results[0]],)
        return tuple([found[index].detach() for index in self.results])  # behind doors

    def _of_taken(self, context: Any, given: Any) -> Any:
        return (None, None, *self._backward(context, given))

    def _backward(self, context: Any, tangents: Sequence[Any]) -> Any:
        """Gradients for the component's inputs."""
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
        self._compiler.replayed(reason)
        return self._by_eager(context, tangents)

    def _compiled(self, context: Any, tangents: Sequence[Any], given: Sequence[Any]) -> Any:
        """Gradients by the compiled backward; `given` are the tangents as it takes them. It raises
        `UnfitInput` where eager has to answer and nobody has counted it yet."""
        sizes, strides, found = context.kept[4], _strides(given), None
        if strides is not None and not (
            torch.is_grad_enabled() or torch.is_autocast_enabled("cpu")
        ):
            found = self._calls.get((sizes, strides)) if sizes else self._variants.get(strides)
        if found is None:
            obstacle = _obstacle(given)
            if strides is None or obstacle is not None:
                raise UnfitInput(obstacle)
            found = self._built(strides, sizes)
            if found is None:
                return self._by_eager(context, tangents)
        present = [one for one in given if one is not None]
        saved = context.saved_tensors
        try:
            values = found.call(*sizes, *saved, *present) if found.computes else ()
        except UnfitInput:
            raise
        except Exception as error:
            self._compiler.failed(error)
            return self._by_eager(context, tangents)  # which says what it finds in the data
        self._replay.forget(context)
        return found.gradients(values, tangents)

    def _built(self, strides: tuple[Strides, ...], sizes: tuple[int, ...]) -> _Built | None:
        """The variant for these strides, compiled now if need be; None: it cannot be."""
        known = self._symbolic(strides, sizes) if sizes else strides
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

    def _build(self, strides: tuple[Strides, ...]) -> _Built | None:
        everywhere: list[Strides] = [None] * len(self.region.split.tangent_results)
        for index, one in zip(self.region.component.tangents, strides, strict=True):
            everywhere[index] = one
        places = {index: place for place, index in enumerate(self.region.component.tangents)}
        try:
            with Assumptions(self.region.relations, closed=True):
                made = variant(self.region.split, everywhere, self.region.component.saved)
                slots = tuple(made.gradients[index] for index in self.inputs)
                slots = tuple(
                    ~places[~one] if one is not None and one < 0 else one for one in slots
                )
                computes = any(one is not None and one >= 0 for one in slots)
                return _Built(self._compiler.compile(made), slots, computes)
        except Unsupported:
            return None  # counted by whoever compiles; eager answers

    def _by_eager(self, context: Any, tangents: Sequence[Any]) -> Any:
        everywhere: list[Any] = [None] * len(self.region.split.tangent_results)
        for index, one in zip(self.region.component.tangents, tangents, strict=True):
            everywhere[index] = one
        found = self._replay.gradients(context, everywhere)
        return tuple(found[index] for index in self.inputs)


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
    if torch.is_grad_enabled():
        return "gradients of gradients are wanted"
    if torch.is_autocast_enabled("cpu"):
        return "backward runs under autocast"
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

    def gradients(self, values: Sequence[Any], tangents: Sequence[Any]) -> Any:
        """The gradients, in the order of the component's inputs."""
        return tuple(
            [
                None if slot is None else values[slot] if slot >= 0 else tangents[~slot]
                for slot in self.slots
            ]
        )
