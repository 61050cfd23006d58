"""The hallway: every stage in order, and nothing else.

Enters: a `State` of the front end (a call, or the point behind a break). Leaves: an `Entry`, ready
to be called. Each stage is timed and noted in the event log; no stage knows the next one.

    capture → rewrite → [backend: differentiate → split → program → assemble] → link → enter

What is compiled while the program runs (the segment behind a break, a backward variant) is asked
of `Compiler.compile_missing` and of `on_demand.py`. Who makes a captured graph callable is chosen
in `backends.py`; a graph that reads data on its way is partitioned first (`subgraphs`), and each
part goes through the same stages. The stages of code generation stand in `programs.py`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Container, Mapping, Sequence
from dataclasses import field, replace
from types import MappingProxyType
from typing import Any

import torch
import torch.fx

from windfall import autograd, frontend, runtime
from windfall.backends import Types, resolve_backend
from windfall.compiled import compiled_object
from windfall.dataclass import dataclass
from windfall.errors import InternalError, Specialise, Unsupported, WindfallError
from windfall.events import EventKind
from windfall.ir.guard import SYMBOLS, Guard, Holds
from windfall.ir.relation import Assumptions, Relation
from windfall.ir.role import Role
from windfall.ir.stages import (
    Capture,
    Entry,
    Executable,
    GraphCallable,
    GraphProgram,
    Joint,
    Segment,
    Split,
)
from windfall.link import link
from windfall.options import Options
from windfall.programs import ELSEWHERE
from windfall.reuse import Graphs
from windfall.whole_entries import WholeEntries


@dataclass(frozen=True, slots=True)
class Compiler(WholeEntries):
    """What the compilations of one compiled object share."""

    graphs: Graphs = field(default_factory=Graphs)

    def compiled(
        self, target: Callable[..., Any], remake: Callable[[Any, Options], Any] | None = None
    ) -> frontend.Compiled:
        """The compiled object of `target`; `remake` compiles a copy of it."""

        def with_backend(backend: Any) -> frontend.Compiled:
            resolve_backend(backend)
            other = Compiler(replace(self.options, backend=backend), self.log)
            return other.compiled(target, remake)

        asked = (self.log, self.options, with_backend, remake, self.shared_code)
        return compiled_object(target, self.compile_missing, *asked)

    def compile_missing(self, state: frontend.State, facts: frontend.Facts) -> Entry:
        """The entry for a state that no entry fits. Whatever else goes wrong is our bug."""
        try:
            return self._entry(state, facts)
        except WindfallError:
            raise
        except Exception as error:
            raise InternalError(f"{state.point}: {type(error).__name__}: {error}") from error

    def _entry(self, state: frontend.State, facts: frontend.Facts) -> Entry:
        found = self.stored_segment(state, facts)
        if found is not None:
            return self._entered(*found, state)
        segment, made = self._segment(state, facts)
        self.store_segment(state, facts, segment, made)
        return self._entered(segment, made, state)

    def _segment(
        self, state: frontend.State, facts: frontend.Facts
    ) -> tuple[Segment, Executable | None]:
        captured = self._captured(state, facts)
        made = self._executable(captured, state)
        if made is not None and made.relations:
            why = "an operation's decision about sizes"
            decided = (Guard(SYMBOLS, Holds(one), why) for one in made.relations)
            captured = replace(captured, guards=(*captured.guards, *decided))
        segment: Segment = self.stage(EventKind.REWRITE, captured.name, frontend.rewrite, captured)
        return segment, made

    def _entered(self, segment: Segment, made: Executable | None, state: frontend.State) -> Entry:
        starts = not isinstance(state.point, frontend.Position)
        place = self.place(starts, crosses=segment.capture.resume is not None)
        call = self.link(made, place) if made else None
        entry: Entry = self.stage(
            EventKind.ENTER,
            *(segment.name, runtime.enter, segment, made.bare if made else None, call),
            native=self.options.native,
        )
        return entry

    def _captured(self, state: frontend.State, facts: frontend.Facts) -> Capture:
        """`fullgraph=True`: a break is the user's to know of, before anything has run."""
        point = str(state.point)
        try:
            captured: Capture = self.stage(EventKind.CAPTURE, point, frontend.capture, state, facts)
        except Unsupported as reason:
            if self.options.fullgraph and not isinstance(reason, Specialise):
                frontend.refuse_break(point, frontend.described(reason, reason.where), True)
            raise
        stopped = captured.stopped
        if stopped is not None and (self.options.fullgraph or stopped.refused):
            frontend.refuse_break(captured.name, stopped, self.options.fullgraph)
        return captured

    def _executable(self, captured: Capture, state: frontend.State) -> Executable | None:
        if not any(node.op.startswith("call") for node in captured.graph.nodes):
            return None
        backend = resolve_backend(self.options.backend)
        examples = frontend.example_inputs(captured, state)
        try:
            return backend.compile(captured, examples, self)
        except Specialise as reason:
            inputs = {str(one.type): str(one.source) for one in captured.inputs}
            reason.sources = frozenset(inputs[name] for name in reason.names if name in inputs)
            raise

    # --------------------------------------------------------------------- the windfall backend

    def compile_graph(
        self,
        graph: torch.fx.Graph,
        inputs: Types,
        name: str,
        given: Sequence[Relation] = (),
        roles: Sequence[Role] = (),
        device: str = "",
        apart: Collection[int] = (),
        lying: Mapping[int, tuple[int, int]] = MappingProxyType({}),
    ) -> Executable:
        """A graph of torch functions as native code (or as graphs for a device), with gradients
        where they are needed. `given` is known of sizes that vary; `roles` are those of the inputs,
        if known; `apart`, inputs (tensors) that are known to share no memory with another one;
        `lying` as of `autograd.differentiate`."""
        given, roles, lying = tuple(given), tuple(roles), dict(lying)
        parts = (graph, inputs, name, given, roles, device, apart, lying)
        make = functools.partial(self._graph, *parts)
        if device:
            return make()
        key = (graph, tuple(inputs), given, roles, tuple(sorted(apart)), lying)
        return self.cached("graph", name, key, make)

    def _graph(
        self, graph: torch.fx.Graph, inputs: Types, name: str, given: Sequence[Relation],
        roles: Sequence[Role], device: str, apart: Container[int],
        lying: Mapping[int, tuple[int, int]],
    ) -> Executable:  # fmt: skip
        with Assumptions(given, closed=True):
            joint: Joint = self.stage(
                EventKind.DIFFERENTIATE,
                *(name, autograd.differentiate, graph, tuple(inputs)),
                lying=lying,
                verify=self.options.verify,
            )
        known = joint.relations  # what is given among them
        new = tuple(one for one in known if one not in given)
        with Assumptions(known, closed=True):
            halves: Split = self.stage(
                EventKind.SPLIT,
                *(name, autograd.split, joint),
                memory_budget=self.options.memory_budget,
                partition=self.options.partition,
            )
            program = (
                GraphProgram(halves.forward, device, halves.symbols)
                if device
                else self.generate(
                    *(halves.forward, f"{name} forward", halves.symbols, True),
                    autograd.written_in_place(halves),
                )
            )
        # Eager is to draw the same numbers again, should data be refused.
        random = autograd.draws(halves.forward) and self.may_fail(halves.forward)
        parts = (name, joint, halves, program, roles, new, random, apart)
        made: Executable = self.stage(EventKind.ASSEMBLE, name, autograd.assemble, *parts)
        return made

    def link(self, executable: Executable, place: runtime.RegionPlace = ELSEWHERE) -> GraphCallable:
        """An executable as something to call; the same one for the same executable at the same kind
        of place."""
        return self.graphs.call(executable, lambda: link(executable, self, place), place)
