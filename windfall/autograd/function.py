"""The bridge to autograd: `loss.backward()` finds a compiled graph's gradients.

Enters: a `Joint` and its `Split`, the forward graph as a callable, and a function that compiles a
backward graph. Leaves: a callable in place of the captured graph, whose results carry one autograd
node for each component of the graph (`components.py`).

Backward is compiled when it is first asked for, once for each way of asking (`variant.py`). What a
compiled backward cannot do is done by eager, on a replay of the forward pass (`replay.py`): double
backward (`create_graph`), a backward pass under autocast, tangents of a tensor subclass.

Invariants: what is saved is saved by autograd itself, so that versions are checked, hooks run and
memory is freed as in eager; gradients that eager leaves None are None.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.fx

from windfall import torch_abi
from windfall.autograd.components import Component, components
from windfall.autograd.conventions import compose, conventions
from windfall.autograd.interpret import replayer
from windfall.autograd.overlap import overlap_check
from windfall.autograd.record import autocast
from windfall.autograd.replay import Replay
from windfall.autograd.variant import Strides, expressed, tangent_types, variant
from windfall.errors import Unsupported
from windfall.ir.again import failing_unseen
from windfall.ir.relation import Assumptions, Relation
from windfall.ir.stages import Joint, Split
from windfall.variants import Variants

_CALLS = 1024  # sizes of calls that are remembered
_STRIDES = 64  # layouts of tangents that one backward is compiled for, and kept
_FREED = (None, None, None, ())  # what `Replay` keeps once it is forgotten
Callee = Callable[..., tuple[Any, ...]]
CompileBackward = Callable[[torch.fx.Graph], Callee]
Failed = Callable[[Exception], None]


def _unnoticed(error: Exception) -> None:
    """Nobody counts."""


Replayed = Callable[[str], None]


def _uncounted(reason: str) -> None:
    """For whoever does not count."""


def bridge(
    joint: Joint,
    split: Split,
    forward: Callee,
    compile_backward: CompileBackward,
    failed: Failed = _unnoticed,
    replayed: Replayed = _uncounted,
) -> Callee:
    """A callable that takes what the captured graph took and answers what it answered. Where sizes
    vary, it and both others are given the values of `split.symbols` before all tensors.

    `forward(*primals)` answers all results of `split.forward`; `compile_backward(graph)` answers
    a callable for the graph of a backward variant (`Variant.graph`); `failed` is told what such a
    one raised, where eager goes on; `replayed`, why eager did a backward of its own."""
    again = replayer(joint.captured)

    def replay(*primals: Any) -> tuple[Any, ...]:
        with autocast(joint.autocast):
            return again(*primals)

    callee = differentiable(
        split, forward, compile_backward, replay, joint.relations, failed, replayed
    )
    if split.backward is not None and not joint.grad_enabled:
        callee = _with_grad(callee)
    callee = compose(callee, conventions(split.signature, split.symbols))
    return _unless_overlapping(callee, again, split)


def _unless_overlapping(callee: Callee, eager: Callee, split: Split) -> Callee:
    if not split.signature.writes:
        return callee
    overlaps = overlap_check(split.signature, split.symbols)
    written = [len(split.symbols) + index for index in split.signature.writes]
    eager = failing_unseen(eager, written)

    def call(*inputs: Any) -> tuple[Any, ...]:
        return eager(*inputs) if overlaps(inputs) else callee(*inputs)

    return call


def _with_grad(callee: Callee) -> Callee:
    """A graph that is entered without grad mode and switches it on inside."""

    def call(*primals: Any) -> tuple[Any, ...]:
        with torch.enable_grad():
            return callee(*primals)

    return call


def differentiable(
    split: Split,
    forward: Callee,
    compile_backward: CompileBackward,
    replay: Callee,
    relations: Sequence[Relation] = (),
    failed: Failed = _unnoticed,
    replayed: Replayed = _uncounted,
) -> Callee:
    """A differentiable callable on the primals that answers writes and fresh results;
    `replay(*primals)` runs the captured graph by eager."""
    if split.backward is None:
        return forward
    replaying = Replay(split, replay)
    functions = [
        _Function(split, one, replaying, compile_backward, relations, failed, replayed)
        for one in components(split)
    ]
    if len(functions) == 1:
        return functions[0].around(forward)
    return _several(functions, split, forward)


def _several(functions: Sequence[_Function], split: Split, forward: Callee) -> Callee:
    """One forward pass whose results belong to different autograd nodes."""
    attached = [(one.attach(), one.inputs, one.results) for one in functions]
    visible = len(split.signature.writes) + split.signature.fresh
    symbols = len(split.symbols)

    def call(*args: Any) -> tuple[Any, ...]:
        with torch.no_grad():
            results = forward(*args)
        shown = list(results[:visible])
        sizes, primals = args[:symbols], args[symbols:]
        for apply, inputs, positions in attached:
            found = apply(sizes, primals, results, *[primals[index] for index in inputs])
            for position, result in zip(positions, found, strict=True):
                shown[position] = result
        return tuple(shown)

    return call


class _Function:
    """The autograd node of one component: what it saves, and its variants of backward."""

    def __init__(
        self,
        split: Split,
        component: Component,
        replay: Replay,
        compile_backward: CompileBackward,
        relations: Sequence[Relation],
        failed: Failed,
        replayed: Replayed,
    ) -> None:
        self._split = split
        self._failed = failed
        self._replayed = replayed
        self._relations = relations
        self._component = component
        self._replay = replay
        self._compile = compile_backward
        self._variants = Variants[tuple[Strides, ...], _Built | None](_STRIDES)
        # Where sizes vary: the variants by sizes and strides of a call, which they are found by.
        self._calls = Variants[Any, _Built | None](_CALLS)
        # Of a graph with one result: the variants by the strides of its tangent.
        self._of_strides = Variants[Strides, _Built](_STRIDES)
        writes = len(split.signature.writes)
        positions = (*split.write_tangents_for, *(writes + one for one in split.tangents_for))
        self._visible = writes + split.signature.fresh
        self.inputs = component.inputs
        # The component's results, as positions among writes and fresh results.
        self.results = tuple(positions[index] for index in component.tangents)
        self._tangents = len(positions)
        self._saves = _Saves.of(split, component)
        self._complex = any(
            one.type is not None and one.type.dtype.is_complex for one in split.signature.outputs
        )

    def around(self, forward: Callee) -> Callee:
        """The function that runs `forward` itself: the only component."""
        visible, saves, remember = self._visible, self._saves, self._replay.remember
        backward, results = self._backward, self.results
        constant = tuple(one for one in range(visible) if one not in results)
        symbols = len(self._split.symbols)
        nothing = (None,) * symbols

        saves_none = not saves.inputs and not saves.results

        class Compiled(torch.autograd.Function):
            @staticmethod
            def forward(context: Any, *args: Any) -> Any:
                primals = args[symbols:] if symbols else args
                remember(context, primals, args[:symbols])
                found = forward(*args)
                shown = found if len(found) == visible else tuple(found[:visible])
                if not saves_none:
                    context.save_for_backward(*saves.pick(primals, found))
                context.set_materialize_grads(False)
                if constant:
                    context.mark_non_differentiable(*[shown[index] for index in constant])
                return shown

            @staticmethod
            def backward(context: Any, *given: Any) -> Any:
                own = [given[index] for index in results] if constant else given
                return nothing + backward(context, own) if nothing else backward(context, own)

        if visible == 1 and not symbols and not constant and not self._complex:
            Compiled.backward = staticmethod(self._of_one(saves_none))  # type: ignore[method-assign]
        return _apply(Compiled)

    def _of_one(self, saves_none: bool) -> Callee:
        """Backward of a graph with one result and fixed sizes: what a tiny function can afford."""
        built, backward, by_eager = self._of_strides, self._backward, self._by_eager
        plain, keeps, failed = torch.Tensor, torch_abi.backward_keeps_graph, self._failed
        grad_enabled, autocast_enabled = torch.is_grad_enabled, torch.is_autocast_enabled

        def backward_of_one(context: Any, tangent: Any) -> Any:
            if tangent.__class__ is plain and not (grad_enabled() or autocast_enabled("cpu")):
                found = built.get(tangent.stride())
                if found is not None:
                    saved = () if saves_none else context.saved_tensors  # raises if freed
                    try:
                        values = found.call(*saved, tangent) if found.computes else ()
                    except Exception as error:
                        failed(error)
                        values = None
                    if values is None:
                        return by_eager(context, (tangent,))
                    if not keeps():
                        context.kept = _FREED
                    slots = found.slots
                    if len(slots) == 1 and slots[0] is not None:
                        return tangent if slots[0] < 0 else values[slots[0]]
                    return found.gradients(values, (tangent,))
            return backward(context, (tangent,))

        return backward_of_one

    def attach(self) -> Callee:
        """The function that takes results made elsewhere and answers its own of them."""
        saves, remember = self._saves, self._replay.remember
        backward, results = self._backward, self.results

        class Attached(torch.autograd.Function):
            @staticmethod
            def forward(context: Any, sizes: Any, primals: Any, found: Any, *own: Any) -> Any:
                remember(context, primals, sizes)
                context.save_for_backward(*saves.pick(primals, found))
                context.set_materialize_grads(False)
                return tuple([found[index] for index in results])

            @staticmethod
            def backward(context: Any, *given: Any) -> Any:
                return (None, None, None, *backward(context, given))

        return _apply(Attached)

    def _backward(self, context: Any, tangents: Sequence[Any]) -> Any:
        """Gradients for the component's inputs."""
        strides = tuple([None if one is None else one.stride() for one in tangents])
        sizes = context.kept[3]
        found = self._calls.get((sizes, strides)) if sizes else self._variants.get(strides)
        if (
            found is None
            or torch.is_grad_enabled()
            or torch.is_autocast_enabled("cpu")
            or not all([one is None or one.__class__ is torch.Tensor for one in tangents])
        ):
            obstacle = _obstacle(tangents)
            found = None if obstacle else self._built(strides, sizes)
            if found is None:
                if obstacle is not None:  # else it was counted when it could not be compiled
                    self._replayed(obstacle)
                return self._by_eager(context, tangents)
        present = [one for one in tangents if one is not None]
        if self._complex:
            present = [one.resolve_conj().resolve_neg() for one in present]
        saved = context.saved_tensors
        try:
            values = found.call(*sizes, *saved, *present)
        except Exception as error:
            self._failed(error)
            values = None
        if values is None:  # eager says what it finds in the data
            return self._by_eager(context, tangents)
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
        symbols = (str(one) for one in self._split.symbols)
        values = dict(zip(symbols, sizes, strict=True))
        expected = tangent_types(self._split)
        return tuple(
            None if one is None else expressed(one, expected[index], values)
            for index, one in zip(self._component.tangents, strides, strict=True)
        )

    def _build(self, strides: tuple[Strides, ...]) -> _Built | None:
        everywhere: list[Strides] = [None] * self._tangents
        for index, one in zip(self._component.tangents, strides, strict=True):
            everywhere[index] = one
        places = {index: place for place, index in enumerate(self._component.tangents)}
        try:
            with Assumptions(self._relations, closed=True):
                made = variant(self._split, everywhere, self._component.saved)
                slots = tuple(made.gradients[index] for index in self.inputs)
                slots = tuple(
                    ~places[~one] if one is not None and one < 0 else one for one in slots
                )
                computes = any(one is not None and one >= 0 for one in slots)
                return _Built(self._compile(made.graph), slots, computes)
        except Unsupported:
            return None  # counted by whoever compiles; eager answers

    def _by_eager(self, context: Any, tangents: Sequence[Any]) -> Any:
        everywhere: list[Any] = [None] * self._tangents
        for index, one in zip(self._component.tangents, tangents, strict=True):
            everywhere[index] = one
        found = self._replay.gradients(context, everywhere)
        return tuple(found[index] for index in self.inputs)


def _obstacle(tangents: Sequence[Any]) -> str | None:
    """Why native code cannot do this backward."""
    if torch.is_grad_enabled():
        return "gradients of gradients are wanted"
    if torch.is_autocast_enabled("cpu"):
        return "backward runs under autocast"
    if not all(one is None or type(one) is torch.Tensor for one in tangents):
        return "a gradient is no plain tensor"
    return None


@dataclass(frozen=True, slots=True)
class _Built:
    """A compiled variant. A slot is None, a result, or `~k`: the tangent `k` itself."""

    call: Callee
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


@dataclass(frozen=True, slots=True)
class _Saves:
    """What a component saves: primals, then results, then what forward returns for it alone."""

    inputs: tuple[int, ...]
    results: tuple[int, ...]  # positions among all that forward returns

    @classmethod
    def of(cls, split: Split, component: Component) -> _Saves:
        """Taken from the split's list of what backward takes."""
        visible = len(split.signature.writes) + split.signature.fresh
        inputs = len(split.saved_inputs)
        behind = (*split.saved_results, *range(visible, visible + len(split.saved)))
        return cls(
            tuple(split.saved_inputs[index] for index in component.saved if index < inputs),
            tuple(behind[index - inputs] for index in component.saved if index >= inputs),
        )

    def pick(self, primals: Sequence[Any], found: Sequence[Any]) -> list[Any]:
        """The tensors to save."""
        return [primals[index] for index in self.inputs] + [found[index] for index in self.results]


def _apply(function: type[torch.autograd.Function]) -> Callee:
    """`function.apply` without its look for functorch and `setup_context`: the guards of an entry
    see to the first, and we have none of the second."""
    apply: Callee = super(torch.autograd.Function, function).apply  # type: ignore[misc]
    return apply
