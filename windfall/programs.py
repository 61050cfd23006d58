"""ATen graph → program: the stages of code generation in their order, and nothing else.

Enters: a pure graph. Leaves: a `Program`, or that as something to call. Each stage is timed and
noted; no stage knows the next.

    arrange → divide → lower → schedule → plan → emit → build → bind

Blocks that repeat themselves are lowered and scheduled once; bodies of control flow are parts of
the program, scheduled before what they stand in.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch.fx

from windfall import runtime
from windfall.caching import Caching
from windfall.dataclass import dataclass
from windfall.doors import Room
from windfall.events import EventKind
from windfall.ir.control_flow import subgraphs_in
from windfall.ir.loop import Part, Schedule
from windfall.ir.stages import GraphCallable, Program
from windfall.ir.symint import Expression

if TYPE_CHECKING:
    from windfall import codegen
else:
    codegen = Room("windfall.codegen")  # what is found on disk needs none of it

ELSEWHERE = runtime.RegionPlace()  # in the middle of a call, with results for the user


@dataclass(frozen=True, slots=True)
class Programs(Caching):
    """Whoever makes programs."""

    def program(
        self,
        graph: torch.fx.Graph,
        name: str,
        symbols: tuple[Expression, ...],
        refusing: bool,
        written: Sequence[int | None] = (),
    ) -> Program:
        """As `generate`, kept on disk."""
        given = (graph, symbols, refusing, tuple(written))
        make = functools.partial(self.generate, graph, name, symbols, refusing, written)
        return self.cached("program", name, given, make)

    def may_fail(self, graph: torch.fx.Graph) -> bool:
        """Whether its code may refuse the data that it is given."""
        return codegen.may_fail(graph)

    def generate(
        self,
        graph: torch.fx.Graph,
        name: str,
        symbols: tuple[Expression, ...],
        refusing: bool,
        written: Sequence[int | None] = (),
    ) -> Program:
        """ATen graph → machine code, which may refuse data, and eager begins again; `refusing`
        False: another graph has looked at the data. `written` as of `codegen.lower`."""
        verify = self.options.verify
        graph = self.stage(EventKind.ARRANGE, name, codegen.arrange, graph, verify=verify)
        schedule = self._scheduled(graph, name, symbols, refusing, itertools.count(), written)
        memory = self.stage(EventKind.PLAN, name, codegen.plan, schedule)
        module = self.stage(EventKind.EMIT, name, codegen.emit, schedule, memory)
        program: Program = self.stage(EventKind.BUILD, name, codegen.build, module)
        return replace(program, retry_in_eager=refusing)

    def place(self, starts: bool, crosses: bool) -> runtime.RegionPlace:
        """Where a segment stands in the call, for graph trees."""
        trees = self.options.trees
        return ELSEWHERE if trees is None else runtime.RegionPlace(starts, crosses=crosses)

    def bind(
        self,
        program: Program,
        name: str,
        backward: bool = False,
        keep: bool = False,
        place: runtime.RegionPlace = ELSEWHERE,
    ) -> GraphCallable:
        """A program as something to call. What a backward takes no guard has seen; its results, and
        those that are to `keep` their memory, are thrown away and made anew in each step. In graph
        trees, where these are asked for."""
        how = {"native": self.options.native, "verify": backward, "keep": backward or keep}
        trees = self.options.trees
        if trees is None:
            bound = self.stage(EventKind.BIND, name, runtime.bind, program, **how)
        else:
            called = f"{name} backward" if backward else name
            parts = (program, called, place, trees, self.log)
            bound = self.stage(EventKind.BIND, name, runtime.bind_in_tree, *parts, **how)
        call: GraphCallable = bound
        return call

    def _scheduled(
        self,
        graph: torch.fx.Graph,
        name: str,
        symbols: tuple[Expression, ...],
        refusing: bool,
        numbers: Iterator[int],
        written: Sequence[int | None] = (),
    ) -> Schedule:
        """Kernels and calls; blocks that repeat themselves are lowered and scheduled once. Bodies
        of control flow are scheduled first; `numbers` name them."""

        def part(one: torch.fx.Graph, written: Sequence[int | None] = ()) -> Schedule:
            bodies = [body for target in subgraphs_in(one) for body in target.graphs]
            made = (
                (id(body), self._body(body, name, symbols, refusing, numbers)) for body in bodies
            )
            parts = {key: found for key, found in made if found is not None}
            how: dict[str, Any] = {"refusing": refusing, "written": written, "parts": parts}
            loops = self.stage(EventKind.LOWER, name, codegen.lower, one, symbols, **how)
            done: Schedule = self.stage(
                EventKind.SCHEDULE, name, codegen.schedule, loops, verify=self.options.verify
            )
            return done

        division = self.stage(EventKind.DIVIDE, name, codegen.divide, graph, written)
        if division is not None:
            parts = [part(*one) for one in zip(division.graphs, division.written, strict=True)]
            joined = codegen.join(division, parts, symbols, numbers)
            if joined is not None:
                return joined
        return part(graph, written)

    def _body(
        self,
        graph: torch.fx.Graph,
        name: str,
        symbols: tuple[Expression, ...],
        refusing: bool,
        numbers: Iterator[int],
    ) -> Part | None:
        """A body of control flow as a part of the program; None: it runs op by op, from Python."""
        verify = self.options.verify
        graph = self.stage(EventKind.ARRANGE, name, codegen.arrange, graph, verify=verify)
        schedule = self._scheduled(graph, name, symbols, refusing, numbers)
        return codegen.body(f"body{next(numbers)}", schedule)
