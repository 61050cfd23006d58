"""A recorded pass, run again: compiled graphs, and live calls between them.

Enters: a `PassProgram`, the graph of a pass with the same key, and who compiles. Leaves: what the
pass leaves. Invariant: what a live call answers is compared with what was recorded; where it is
something else (`Departure`), the pass goes on node by node from there. Saved values are read where
eager reads them: those that a hook has overwritten meanwhile are refused as eager does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch
import torch.fx

from windfall import locks, torch_abi
from windfall.dataclass import dataclass
from windfall.engine import live
from windfall.engine.backward_graph import BackwardGraph, How, NodeKey
from windfall.engine.execution import PassRequest, ends_of, running, wanted
from windfall.engine.pass_recording import is_plain
from windfall.engine.program import PassProgram, PassSegment
from windfall.engine.steps import CallKind, LiveCall, SavedValue
from windfall.engine.verify import Matched, Verifier, verifier
from windfall.ir.dtype import TensorType
from windfall.ir.relation import Relation
from windfall.ir.symint import Expression

Values = list[torch.Tensor | None]

DEPARTURES = 2  # of a recording, before another one is made
ATTEMPTS = 4  # recordings of one key; what still departs goes on node by node


@dataclass(frozen=True, slots=True)
class CompiledSegment:
    """A graph as something to call. `owned`: which results nobody else can have."""

    call: Callable[..., Sequence[Any]]
    owned: tuple[bool, ...]


@dataclass(frozen=True, slots=True)
class VaryingSegment:
    """A graph whose sizes vary, as something to call: `symbols` and what is lifted come before the
    tensors. It is right where the `relations` hold."""

    compiled: CompiledSegment
    relations: tuple[Relation, ...]


class CompilesSegments(Protocol):
    """Who compiles the graphs of passes."""

    def __call__(
        self, graph: torch.fx.Graph, types: Sequence[TensorType], name: str
    ) -> CompiledSegment:
        """A graph of fixed sizes."""

    def varying(
        self, graph: torch.fx.Graph, types: Sequence[TensorType | Expression], name: str
    ) -> VaryingSegment | None:
        """A graph of sizes that vary; None: each size needs code of its own."""


# The compiled graph of a step of a program.
CompileStep = Callable[[int, PassSegment], CompiledSegment]


@dataclass(frozen=True, slots=True)
class Departure:
    """A live call that answered otherwise than recorded, and the values of registers then."""

    call: LiveCall
    results: Sequence[torch.Tensor | None]
    values: Values
    reason: str


class PassReplay:
    """A program with its compiled graphs, which are made when it is first run, and what finds out
    whether a pass is one that it is for."""

    def __init__(
        self,
        program: PassProgram,
        keys: Sequence[NodeKey],
        request: PassRequest,
        name: str,
        compile_step: CompileStep,
        attempt: int = 0,
        is_instance: bool = False,
    ) -> None:
        self.program, self.keys, self.request, self.name = program, tuple(keys), request, name
        self.attempt = attempt
        self.departures = 0
        self.kept: list[Any] = []  # what keys refer to by its address
        self.verifier: Verifier | None = None
        self._compile_step = compile_step
        # Of a program for sizes that vary many are made: what comes once needs no verifier.
        self._until_verifier = 2 if is_instance else 1
        self._running = running(self.keys, request)
        self._compiled: dict[int, CompiledSegment] = {}
        # Registers of the first segment, and where the verifier has read them.
        self._first: tuple[tuple[int, int], ...] = ()
        self._lock = locks.lock()
        self._ready = False

    @property
    def is_stale(self) -> bool:
        """Whether live calls no longer answer what was recorded, and another recording may help."""
        return self.departures >= DEPARTURES and self.attempt < ATTEMPTS

    def prepare(self, graph: BackwardGraph) -> bool:
        """Compile what is to be compiled, for a graph of the recorded key that has not yet run;
        whether a verifier is there from now on."""
        if self._ready:
            return False
        with self._lock:
            if self._ready:
                return False
            for place, step in enumerate(self.program.steps):
                is_new = place not in self._compiled
                if is_new and isinstance(step, PassSegment) and step.operations:
                    self._compiled[place] = self._compile_step(place, step)
            self._until_verifier -= 1
            if self._until_verifier:
                return False
            self.verifier = verifier(graph, self.request.inputs)
            first = next(iter(self.program.steps), None)
            if self.verifier is not None and isinstance(first, PassSegment):
                places = {one: at for at, one in enumerate(self.verifier.places)}
                self._first = tuple((register, places[one]) for register, one in first.saved)
            self._ready = True
        return True

    def run(
        self,
        nodes: Sequence[Any],
        roots: Sequence[torch.Tensor],
        keep_graph: bool,
        now: torch_abi.RunningPass,
        matched: Matched | None = None,
    ) -> list[torch.Tensor | None] | Departure:
        """The gradients that were asked for. `matched` has what the verifier has read, and loses
        its tensors to this."""
        program = self.program
        values = self._entered(roots, matched)
        released = 0
        for place, step in enumerate(program.steps):
            if isinstance(step, PassSegment):
                self._segment(place, step, nodes, values, place == 0 and matched is not None)
            else:
                if not keep_graph:
                    self._release(nodes, matched, released, step.position)
                    released = step.position
                now.node = nodes[step.node]
                departed = self._call(step, nodes, values)
                if departed is not None:
                    self.departures += 1
                    return departed
            for one in program.dead[place]:
                values[one] = None
        if not keep_graph:
            self._release(nodes, matched, released, len(program.delivered))
        return [None if one is None else values[one] for one in program.captured]

    def _entered(self, roots: Sequence[torch.Tensor], matched: Matched | None) -> Values:
        """The registers that are filled before anything has run."""
        values: Values = [None] * len(self.program.types)
        for register, tensor in zip(self.program.roots, roots, strict=True):
            values[register] = tensor
        if matched is not None:
            for register, place in self._first:
                values[register] = matched.tensors[place]
            matched.tensors.clear()
        return values

    def _call(self, step: LiveCall, nodes: Sequence[Any], values: Values) -> Departure | None:
        node, key = nodes[step.node], self.keys[step.node]
        given = [None if one is None else values[one] for one in step.given]
        made = [None if one is None else values[one] for one in step.made]
        ends = ends_of(self.keys, step.node) if step.kind is CallKind.FIT else ()
        results = live.call(step.kind, node, key, ends, given, made)
        if step.kind is CallKind.NODE and self._running is not None and key.how is How.LIVE:
            results = wanted(results, key, self._running)
        if step.kind not in (CallKind.FIT, CallKind.SUM):
            reason = _difference(results, step, self.program.types)
            if reason:
                return Departure(step, results, values, reason)
        for register, value in zip(step.results, results, strict=True):
            if register is not None:
                values[register] = value
        return None

    def _release(
        self, nodes: Sequence[Any], matched: Matched | None, start: int, stop: int
    ) -> None:
        if matched is not None and self.verifier is not None and self._runs_all(start, stop):
            self.verifier.release(matched)
            return
        delivered = self.program.delivered[start:stop]
        torch_abi.release_saved(nodes[node] for node, _ in delivered if node >= 0)

    def _runs_all(self, start: int, stop: int) -> bool:
        """Whether these are all nodes of the graph (and the roots, which come first)."""
        return not start and stop == len(self.keys) + 1

    def _segment(
        self, place: int, step: PassSegment, nodes: Sequence[Any], values: Values, read: bool
    ) -> None:
        owned: dict[int, bool] = {}
        if step.operations:
            if not read:
                for register, source in step.saved:
                    values[register] = saved_value(nodes, source)
            compiled = self._compiled[place]
            found = compiled.call(*[values[one] for one in step.inputs])
            for register, value, own in zip(step.outputs, found, compiled.owned, strict=True):
                values[register] = value
                owned[register] = own
            del found
        last = set(self.program.dead[place])
        times = Counter(one.value for one in step.leaves)
        shared = live.is_distributed()
        for leaf in step.leaves:
            sole = owned.get(leaf.value, False) and leaf.value in last and times[leaf.value] == 1
            value = values[leaf.value]
            assert value is not None
            live.update_leaf(nodes[leaf.node], value, leaf.hooked or shared, sole)


def saved_value(nodes: Sequence[Any], source: SavedValue) -> torch.Tensor:
    """A saved tensor, as it is now."""
    found = getattr(nodes[source.node], source.name)
    tensor: torch.Tensor = found if source.position is None else found[source.position]
    return tensor


def _difference(
    results: Sequence[torch.Tensor | None], step: LiveCall, types: Sequence[TensorType | None]
) -> str:
    """How the answer of a live call differs from the recorded one; "": it does not."""
    if len(results) != len(step.results):
        return f"{step.kind} of node {step.node} answered {len(results)} gradients"
    for register, value in zip(step.results, results, strict=True):
        if (register is None) != (value is None):
            return f"{step.kind} of node {step.node} answered {_shown(value)}"
        if register is not None and value is not None:
            expected = types[register]
            found = TensorType.of(value).without_grad() if is_plain(value) else None
            if found != expected:
                return (
                    f"{step.kind} of node {step.node} answered {_shown(value)}, not "
                    f"{expected or 'what is no plain tensor'}"
                )
    return ""


def _shown(value: torch.Tensor | None) -> str:
    if value is None:
        return "no gradient"
    return str(TensorType.of(value)) if is_plain(value) else f"a {type(value).__name__}"
