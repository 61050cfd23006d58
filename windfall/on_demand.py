"""What is compiled while the program runs: variants of backward, and parts of partitioned graphs.

Enters: a graph, in the middle of a call of the user's. Leaves: native code, or `Unsupported`, and
it is counted. Invariant: the thread's modes, hooks and assumptions are as at the first compilation
while this lasts, and as they were after it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Protocol

import torch.fx

from windfall import autograd, runtime, subgraphs, torch_abi
from windfall.backends import Stages, Types
from windfall.dataclass import dataclass
from windfall.devices import DEVICES
from windfall.directives import capturing
from windfall.errors import InternalError, Unsupported
from windfall.events import Eager, EventKind, EventLog, EventType
from windfall.ir.node import tensor_type
from windfall.ir.relation import Assumptions, Relation
from windfall.ir.stages import (
    BackwardRegion,
    Executable,
    GraphCallable,
    PartitionedProgram,
    Program,
)
from windfall.ir.symint import Expression


class GraphCompiler(Stages, Protocol):
    """Who runs the stages."""

    @property
    def log(self) -> EventLog:
        """Where they are noted."""

    def program(
        self, graph: torch.fx.Graph, name: str, symbols: tuple[Expression, ...], refusing: bool
    ) -> Program:
        """An ATen graph as native code; `refusing`: it is the first to look at the data."""

    def bind(
        self,
        program: Program,
        name: str,
        backward: bool = False,
        keep: bool = False,
        place: runtime.RegionPlace = ...,
    ) -> GraphCallable:
        """A program as a callable; that of a backward checks what it is given. `keep`: memory of
        large results is used again. `place`: where it stands in a call of the user's."""

    def link(self, executable: Executable) -> GraphCallable:
        """An executable as a callable."""


@dataclass(frozen=True, slots=True)
class BackwardCompiler:
    """Compiles the variants of one graph's backward, when they are asked for."""

    compiler: GraphCompiler
    name: str
    region: BackwardRegion  # one of the graph's: what is asked of it is the same in all
    device: str = ""

    def compile(self, variant: autograd.Variant) -> GraphCallable:
        """Native code, or the device's, which raises `UnfitInput` of anything but the tensors that
        it was compiled for; `Unsupported`, and counted, where eager's backward has to answer."""
        symbols = variant.symbols
        if self.device:
            types = [tensor_type(one) for one in variant.graph.find_nodes(op="placeholder")]
            call = DEVICES[self.device].compile(variant.graph, symbols)
            return runtime.verified(types, symbols, call, self.device)
        try:
            with (
                torch_abi.fence(),
                Assumptions(self.region.relations, closed=True),
                torch_abi.without_saved_tensor_hooks(),
            ):
                graph, name = variant.graph, f"{self.name} backward"
                made = self.compiler.program(graph, name, symbols, False)
                made = replace(made, roles=variant.roles)
                return self.compiler.bind(made, self.name, backward=True)
        except (Unsupported, InternalError) as reason:
            self._count(reason, str(reason))
            raise Unsupported(0, str(reason)) from reason

    def failed(self, error: Exception) -> None:
        """Native code has raised: eager says what is wrong."""
        self._count(error, f"eager says what is wrong: {type(error).__name__}: {error}")

    def interpreted(self, reason: str) -> None:
        """A backward has run op by op."""
        self.compiler.count_eager(f"{self.name} backward", Eager.BACKWARD, reason)

    def stage(self, kind: EventType, stage: Callable[..., Any], *args: Any, **named: Any) -> Any:
        """Run, time and note a stage of another backward pass."""
        return self.compiler.stage(kind, f"{self.name} backward", stage, *args, **named)

    def _count(self, error: Exception, reason: str) -> None:
        if self.compiler.options.strict and isinstance(error, InternalError):
            raise error
        self.compiler.count_eager(f"{self.name} backward", Eager.BACKWARD, reason)


def partitioned(compiler: GraphCompiler, program: PartitionedProgram, name: str) -> GraphCallable:
    """A graph that reads data on its way: its parts are compiled when they are reached."""

    def compiled(
        graph: torch.fx.Graph, inputs: Types, name: str, given: Sequence[Relation]
    ) -> subgraphs.NativeSubgraph:
        with torch_abi.fence(), capturing(), torch_abi.without_saved_tensor_hooks():
            made = compiler.compile_graph(graph, inputs, name, given)
            return subgraphs.NativeSubgraph(
                compiler.link(made), made.relations, made.written_tensors
            )

    chosen = compiler.options
    shared = subgraphs.Shared(
        compiled, program.given, compiler.log, chosen.recompile_limit, chosen.strict, chosen.native
    )
    made: subgraphs.PartitionedGraph = compiler.stage(
        EventKind.SUBGRAPHS, name, subgraphs.PartitionedGraph, program.graph, name, shared
    )
    return made.call()
