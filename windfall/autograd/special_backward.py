"""Backward passes of one node that its compiled variants do not answer.

Enters: what the node saved and the tangents, at a backward pass under autocast, in grad mode, or
with tangents (or saved values) that native code does not read. Leaves: the gradients.

* Under autocast: the pass is recorded as that autocast has it, and compiled.
* In grad mode (`create_graph`): the gradients are a compiled function of what was saved and of the
  tangents, which has a node of its own, of the same class, and so on (`higher.py`).
* Batched, sparse, subclasses: the backward graph runs op by op, and it is counted.

Invariant: only what was saved is read; nothing of the forward pass runs again. Gradients have all
of the history that eager's have, or raise where it is asked for.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Protocol

import torch
import torch.fx

from windfall import torch_abi
from windfall.autograd.higher import Gradients, Leaf, Lineage, Pass, gradients
from windfall.autograd.histories import NOWHERE
from windfall.autograd.interpret import at_sizes, replayer
from windfall.autograd.partition import split
from windfall.autograd.tracing import ambient_autocast, autocast
from windfall.autograd.variant import Strides, Variant, tangent_types, variant
from windfall.dataclass import dataclass
from windfall.errors import UnfitInput, Unsupported
from windfall.events import EventKind, EventType
from windfall.ir.custom import CustomGradient
from windfall.ir.dtype import TensorType
from windfall.ir.node import copy_into
from windfall.ir.relation import Assumptions
from windfall.ir.role import RoleKind, Roles, numbered
from windfall.ir.stages import BackwardRegion, GraphCallable, Joint, Split
from windfall.variants import Variants

_KEPT = 64  # ways of asking that are kept, of one node


class VariantCompiler(Protocol):
    """Who is asked for a backward, and told what became of it."""

    def compile(self, variant: Variant) -> GraphCallable:
        """The graph of a variant as a callable, which raises `UnfitInput` of tensors that are not
        what the graph says; `Unsupported`: it has to run op by op."""

    def failed(self, error: Exception) -> None:
        """What such a callable raised; eager's ops say what is wrong."""

    def interpreted(self, reason: str) -> None:
        """Why a backward has run op by op."""

    def stage(self, kind: EventType, stage: Callable[..., Any], *args: Any, **named: Any) -> Any:
        """Run, time and note a stage."""


Saved = Callable[[Sequence[int]], Sequence[Any]]  # all, of which these are read, and so checked
Differentiable = Callable[[Joint, Split, GraphCallable, Lineage], GraphCallable]


@dataclass(frozen=True, slots=True)
class _Answer:
    """One way of asking: `call` takes what was saved, the tangents as `types` say, and tensors with
    the history of `handles` (positions among the inputs of the node's graph, then its results)."""

    call: GraphCallable
    wanted: tuple[int, ...]  # inputs of the node's graph (then results), by their numbers
    slots: tuple[int | None, ...]  # for each of these, as in `Gradients`
    reads: tuple[int, ...]  # which of what was saved it needs, values or histories
    types: tuple[TensorType, ...] = ()
    handles: tuple[int, ...] = ()

    def gradients(self, values: Sequence[Any], tangents: Sequence[Any]) -> dict[int, Any]:
        """The gradients, by their numbers."""
        found = (
            None if slot is None else values[slot] if slot >= 0 else tangents[~slot]
            for slot in self.slots
        )
        return dict(zip(self.wanted, found, strict=True))


class SpecialBackward:
    """The special backward passes of one region. `lineage`: of a node that stands for gradients;
    `differentiable` makes a joint graph that was split and compiled a callable with nodes;
    `inputs`: where gradients of gradients go."""

    def __init__(
        self,
        region: BackwardRegion,
        compiler: VariantCompiler,
        lineage: Lineage | None,
        differentiable: Differentiable,
        inputs: tuple[int, ...],
    ) -> None:
        self._inputs = inputs
        self._region = region
        self._compiler = compiler
        self._lineage = lineage
        self._differentiable = differentiable
        self._default = torch.get_default_dtype()
        self._answers = Variants[Any, _Answer](_KEPT)
        self._lineages = Variants[tuple[int, ...], Lineage](_KEPT)

    def op_by_op(
        self, sizes: tuple[int, ...], saved: Saved, tangents: Sequence[Any]
    ) -> dict[int, Any]:
        """Gradients by eager's ops, in the thread's modes, without a history."""
        cast, present = ambient_autocast(), _present(tangents)
        given = [one for one in tangents if one is not None]
        if cast is not None:
            answer = self._known(self._under_autocast, present, sizes, cast)
            with autocast(None):
                values = answer.call(*saved(answer.reads), *laid_out(given, answer.types))
                return answer.gradients(values, given)
        answer = self._known(self._interpreted, present, sizes)
        with torch_abi.as_the_engine_calls():
            return answer.gradients(answer.call(*saved(answer.reads), *given), given)

    def again(
        self,
        sizes: tuple[int, ...],
        saved: Saved,
        tangents: Sequence[Any],
        tensor_of: Callable[[Sequence[Any], int], torch.Tensor],
        stops: tuple[int, ...],
        wanted: tuple[int, ...],
        late: tuple[int, ...],
    ) -> dict[int, Any]:
        """Gradients that can be differentiated; `tensor_of` answers, of what was saved, a tensor
        with the history of an input of the node's graph (their numbers are followed by those of its
        results). At results that are `stops`, gradients of gradients end, and go on as those of the
        result. `late` are inputs that need a gradient since the forward pass is over."""
        given = [one for one in tangents if one is not None]
        needs = tuple([one.requires_grad for one in given])
        ways = _present(tangents), sizes, ambient_autocast(), needs, stops, wanted, late
        answer = self._known(self._differentiated, *ways)
        found = saved(answer.reads)
        with autocast(None):
            values = answer.call(
                *[one.detach() for one in found],
                *laid_out(given, answer.types),
                *[tensor_of(found, one) for one in answer.handles],
            )
        return answer.gradients(values, given)

    # -------------------------------------------------------------------------------- internals

    def _known(self, make: Callable[..., _Answer], *ways: Any) -> _Answer:
        key = (make.__name__, *ways)
        found = self._answers.get(key)
        if found is None:
            with torch_abi.without_dispatch_modes():
                found = make(*ways)
            self._answers.add(key, found)
        return found

    def _interpreted(self, present: tuple[int, ...], sizes: tuple[int, ...]) -> _Answer:
        region = self._region
        whole, component = region.split, region.component
        everywhere: list[Strides] = [None] * len(whole.tangent_results)
        expected = tangent_types(whole)
        places = {component.tangents[index]: place for place, index in enumerate(present)}
        for index in places:
            everywhere[index] = expected[index].strides
        with Assumptions(region.relations, closed=True):
            made = variant(whole, everywhere, component.saved)
        values = dict(zip(map(str, whole.symbols), sizes, strict=True))
        graph = at_sizes(made.graph, values) if sizes else made.graph
        slots = tuple(
            ~places[~one] if one is not None and one < 0 else one
            for one in (made.gradients[index] for index in component.inputs)
        )
        reads = reads_of(graph, len(component.saved))
        return _Answer(replayer(graph), component.inputs, slots, reads)

    def _pass(
        self,
        present: tuple[int, ...],
        sizes: tuple[int, ...],
        wanted: tuple[int, ...],
        cast: torch.dtype | None,
        needs: tuple[bool, ...] = (),
    ) -> tuple[Lineage, Pass]:
        lineage = self._lineage or self._lineages.get(sizes)
        if lineage is None:
            lineage = Lineage.of(self._region, sizes, self._default)
            self._lineages.add(sizes, lineage)
        leaves = tuple(lineage.slots[index].leaf for index in wanted)
        tangents = tuple(self._region.component.tangents[index] for index in present)
        return lineage, Pass(tangents, leaves, cast, needs)  # type: ignore[arg-type]

    def _recorded(
        self, lineage: Lineage, asked: Pass, again: bool, handles: tuple[Leaf, ...] = ()
    ) -> Gradients:
        saved = lineage.saved(self._region)
        made: Gradients = self._compiler.stage(
            EventKind.DIFFERENTIATE,
            *(gradients, lineage, saved, asked),
            again=again,
            handles=handles,
        )
        return made

    def _under_autocast(
        self, present: tuple[int, ...], sizes: tuple[int, ...], cast: torch.dtype
    ) -> _Answer:
        wanted = self._region.component.inputs
        found = self._recorded(*self._pass(present, sizes, wanted, cast), again=False)
        call = self._called(found.joint.graph, len(present))
        reads = reads_of(found.joint.graph, len(self._region.component.saved))
        return _Answer(call, wanted, found.slots, reads, self._tangent_types(found))

    def _differentiated(
        self,
        present: tuple[int, ...],
        sizes: tuple[int, ...],
        cast: torch.dtype | None,
        needs: tuple[bool, ...],
        stops: tuple[int, ...],
        wanted: tuple[int, ...],
        late: tuple[int, ...],
    ) -> _Answer:
        lineage, asked = self._pass(present, sizes, wanted, cast, needs)
        lineage = replace(lineage, late=late) if late else lineage
        count = len(self._region.split.signature.inputs)
        inputs = (*self._inputs, *late)
        places: dict[Any, int] = {lineage.slots[index].leaf: index for index in inputs}
        places |= {("result", one): count + one for one in stops}
        found = self._recorded(lineage, asked, again=True, handles=tuple(places))
        joint = found.joint
        handles = found.lineage.slots[len(self._region.component.saved) + len(present) :]
        halves: Split = self._compiler.stage(EventKind.SPLIT, split, joint)
        read = len(joint.signature.inputs) - len(handles)
        first = _without_last(halves.forward, len(handles))
        run = self._called(first, len(present))
        call: GraphCallable = lambda *args: run(*args[:read])  # noqa: E731
        histories = tuple(places[one.leaf] for one in handles)
        saves = self._region.saves
        if joint.gradients_for:
            call = self._differentiable(joint, halves, call, found.lineage)
        elif found.refusal:
            by_eager = self._by_eager(first, histories, found.refusal)
            call = by_eager or _refusing(call, found.refusal)
        elif any(one.needs_grad for one in joint.signature.outputs):
            call = _leading_nowhere(call, [one.needs_grad for one in joint.signature.outputs])
        kept = (*saves.inputs, *(count + one for one in saves.results))
        ends = {kept.index(one) for one in histories if one in kept}
        reads = tuple(sorted({*reads_of(joint.graph, len(kept)), *ends}))
        return _Answer(call, wanted, found.slots, reads, self._tangent_types(found), histories)

    def _by_eager(
        self, graph: torch.fx.Graph, histories: tuple[int, ...], reason: str
    ) -> GraphCallable | None:
        """A graph of gradients of which no second ones can be recorded (they depend on data), by
        eager's ops, whose history has them. None where the graph reads more than inputs and
        tangents: what was computed has no history of its own any more; and where the program says
        itself what has a history, of which these ops know nothing."""
        saves, count = self._region.saves, len(self._region.component.saved)
        if (
            self._lineage is not None
            or any(index >= len(saves.inputs) for index in reads_of(graph, count))
            or _hides_history(self._region.captured)
        ):
            return None
        run, compiler = replayer(graph), self._compiler
        first = len(graph.find_nodes(op="placeholder"))
        inputs = [
            (place, first + histories.index(one))
            for place, one in enumerate(saves.inputs)
            if one in histories
        ]

        def call(*args: Any) -> tuple[Any, ...]:
            given = list(args[:first])
            for place, handle in inputs:
                given[place] = args[handle]
            compiler.interpreted(reason)
            return run(*given)

        return call

    def _tangent_types(self, found: Gradients) -> tuple[TensorType, ...]:
        first, given = len(self._region.component.saved), found.joint.signature.inputs
        last = first + len(found.lineage.passes[-1].tangents)
        return tuple(one.type for one in given[first:last])

    def _called(self, graph: torch.fx.Graph, tangents: int) -> GraphCallable:
        """A graph natively; op by op, and counted, where that cannot be."""
        inputs = len(graph.find_nodes(op="placeholder")) - tangents
        (output,) = graph.find_nodes(op="output")
        results: Any = output.args[0]
        roles = Roles(
            (*numbered(RoleKind.SAVED, inputs), *numbered(RoleKind.TANGENT, tangents)),
            numbered(RoleKind.GRADIENT, len(results)),
        )
        run, compiler = replayer(graph), self._compiler
        if not results:
            return run
        try:
            native = compiler.compile(Variant((), graph, (), roles))
        except Unsupported:
            return run  # counted by whoever compiles

        def call(*args: Any) -> tuple[Any, ...]:
            try:
                return native(*args)
            except UnfitInput as unfit:
                compiler.interpreted(str(unfit))
            except Exception as error:
                compiler.failed(error)
            with torch_abi.as_the_engine_calls():
                return run(*args)

        return call


def reads_of(graph: torch.fx.Graph, saved: int) -> tuple[int, ...]:
    """Which of its first placeholders, the saved values, a graph of gradients reads."""
    placeholders = graph.find_nodes(op="placeholder")[:saved]
    return tuple(index for index, node in enumerate(placeholders) if node.users)


def _hides_history(captured: torch.fx.Graph) -> bool:
    """Whether a graph cuts histories off, or has gradients of its own."""
    return any(
        isinstance(node.target, CustomGradient)
        or torch_abi.is_mode_switch(node.target)
        or getattr(node.target, "__name__", node.target) in _CUTS
        or (node.target is getattr and node.args[1] == "data")
        for node in captured.nodes
    )


_CUTS = ("detach", "detach_", "requires_grad_")


def _present(tangents: Sequence[Any]) -> tuple[int, ...]:
    return tuple([index for index, one in enumerate(tangents) if one is not None])


def laid_out(tangents: Sequence[Any], types: Sequence[TensorType]) -> list[Any]:
    """Tangents with the strides that were expected, where they are plain tensors; with their
    history."""
    found = []
    for one, type in zip(tangents, types, strict=True):
        if one.__class__ is torch.Tensor and torch_abi.is_plain_tensor(one):
            one = torch_abi.resolved(one)
            if one.stride() != type.strides:
                laid = torch.empty_strided(type.sizes, type.strides, dtype=one.dtype)  # type: ignore[arg-type]
                one = laid.copy_(one)
        found.append(one)
    return found


def _without_last(graph: torch.fx.Graph, count: int) -> torch.fx.Graph:
    """A graph without its last placeholders, which nobody reads."""
    result = torch.fx.Graph()
    result.owning_module = graph.owning_module
    placeholders = graph.find_nodes(op="placeholder")
    last = placeholders[len(placeholders) - count :]
    made: dict[torch.fx.Node, torch.fx.Node] = {}
    for node in graph.nodes:
        if node not in last:
            made[node] = copy_into(result, node, made.__getitem__)
    return result


class Nowhere(torch.autograd.Function):
    """The node of gradients whose history leads to nothing but leaves that the graph made itself
    (`x.detach().requires_grad_() * w`), which nobody can ask a gradient of."""

    @staticmethod
    def forward(context: Any, results: tuple[Any, ...], *nowhere: Any) -> Any:
        """The results, attached to nothing that a gradient might go to."""
        return results

    @staticmethod
    def backward(context: Any, *tangents: Any) -> Any:
        """It ends."""
        return None, None


def _leading_nowhere(call: GraphCallable, needs: Sequence[bool]) -> GraphCallable:
    """Gradients some of which need a gradient that goes nowhere."""

    def leading(*args: Any) -> tuple[Any, ...]:
        with torch.no_grad():
            results = list(call(*args))
        own = tuple(itertools.compress(results, needs))
        made = iter(Nowhere.apply(own, *NOWHERE))  # type: ignore[no-untyped-call]
        return tuple(next(made) if need else one for one, need in zip(results, needs, strict=True))

    return leading


class Refused(torch.autograd.Function):
    """The node of gradients that cannot be differentiated: it says why, to whoever tries."""

    @staticmethod
    def forward(context: Any, reason: str, results: tuple[Any, ...], *inputs: Any) -> Any:
        """The results, attached to all that their gradients might go to."""
        context.reason = reason
        return results

    @staticmethod
    def backward(context: Any, *tangents: Any) -> Any:
        """It raises."""
        raise RuntimeError(context.reason)


def _refusing(call: GraphCallable, reason: str) -> GraphCallable:
    def refusing(*args: Any) -> tuple[Any, ...]:
        with torch.no_grad():
            results = call(*args)
        found: tuple[Any, ...] = Refused.apply(reason, results, *args)  # type: ignore[no-untyped-call]
        return found

    return refusing


__all__ = ["SpecialBackward", "VariantCompiler"]
