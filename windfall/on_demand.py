"""What is compiled while the program runs: variants of backward, and parts of partitioned graphs.

Enters: a graph, in the middle of a call of the user's. Leaves: native code, or `Unsupported`, and
it is counted. Invariant: the thread's modes, hooks and assumptions are as at the first compilation
while this lasts, and as they were after it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch.fx

from windfall import subgraphs, torch_abi
from windfall.backends import Executable, GraphCallable, Stages, Types, written
from windfall.directives import capturing
from windfall.errors import InternalError, Unsupported
from windfall.events import Eager, EventKind, EventLog
from windfall.ir.again import drawing_nothing, failing_unseen
from windfall.ir.relation import Assumptions, Relation
from windfall.ir.stages import Capture
from windfall.ir.symint import Expression


class GraphCompiler(Stages, Protocol):
    """Who runs the stages."""

    @property
    def log(self) -> EventLog:
        """Where they are noted."""

    def compile_backward(
        self, variant: torch.fx.Graph, name: str, symbols: tuple[Expression, ...]
    ) -> GraphCallable:
        """A backward graph as native code."""


@dataclass(frozen=True, slots=True)
class BackwardCompiler:
    """Compiles the variants of one graph's backward, when they are asked for."""

    compiler: GraphCompiler
    name: str
    relations: tuple[Relation, ...]
    symbols: tuple[Expression, ...]

    def compile(self, variant: torch.fx.Graph) -> GraphCallable:
        """Native code; `Unsupported`, and counted, where eager's backward has to answer."""
        try:
            with (
                torch_abi.fence(),
                Assumptions(self.relations, closed=True),
                torch_abi.without_saved_tensor_hooks(),
            ):
                return self.compiler.compile_backward(variant, self.name, self.symbols)
        except (Unsupported, InternalError) as reason:
            self._count(reason, str(reason))
            raise Unsupported(0, str(reason)) from reason

    def failed(self, error: Exception) -> None:
        """Native code has raised: eager says what is wrong."""
        self._count(error, f"eager says what is wrong: {type(error).__name__}: {error}")

    def replayed(self, reason: str) -> None:
        """Eager has done a backward, from the captured graph."""
        self.compiler.count_eager(f"{self.name} backward", Eager.BACKWARD, reason)

    def _count(self, error: Exception, reason: str) -> None:
        if self.compiler.options.strict and isinstance(error, InternalError):
            raise error
        self.compiler.count_eager(f"{self.name} backward", Eager.BACKWARD, reason)


def partitioned(
    compiler: GraphCompiler, captured: Capture, given: Sequence[Relation]
) -> Executable:
    """A graph that reads data on its way: its parts are compiled when they are reached."""

    def compiled(
        graph: torch.fx.Graph, inputs: Types, name: str, given: Sequence[Relation]
    ) -> subgraphs.Compiled:
        with torch_abi.fence(), capturing(), torch_abi.without_saved_tensor_hooks():
            made = compiler.compile_graph(graph, inputs, name, given)
        return subgraphs.Compiled(made.call, made.relations, made.writes)

    chosen = compiler.options
    shared = subgraphs.Shared(
        compiled, given, compiler.log, chosen.recompile_limit, chosen.strict, chosen.native
    )
    name, kind = captured.name, EventKind.SUBGRAPHS
    made: subgraphs.PartitionedGraph = compiler.stage(
        kind, name, subgraphs.PartitionedGraph, captured.graph, name, shared
    )
    return Executable(drawing_nothing(failing_unseen(made.call(), written(captured))))
