"""Who makes a captured graph something to call.

Enters: a `Capture` and example inputs. Leaves: an `Executable`. Three kinds: ours (native code),
`eager` (op by op), a callable of the user. What our own needs of the compiler it asks of `Stages`,
so that no backend knows the pipeline. Invariant: an
executable answers what the captured graph answers, or raises `GraphFailed` and nothing is seen.

A new backend is a class with `compile`, and a row of `BACKENDS` or an entry point of a package
(`plugins.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
import torch.fx

from windfall import plugins, subgraphs, torch_abi
from windfall.errors import BackendError, Specialise, Unsupported, UserError
from windfall.events import Eager, EventKind, EventType
from windfall.ir.again import drawing_nothing, failing_unseen
from windfall.ir.dtype import TensorType
from windfall.ir.graph_key import graph_key
from windfall.ir.guard import Holds
from windfall.ir.relation import Relation
from windfall.ir.stages import Capture, Program
from windfall.ir.symint import Expression
from windfall.options import Options
from windfall.variants import Variants

GraphCallable = Callable[..., tuple[Any, ...]]
Types = Sequence[TensorType | Expression]


@dataclass(frozen=True, slots=True)
class Executable:
    """A captured graph that can be called; `program` where it is nothing but native code, so that
    the entry may contain it."""

    call: GraphCallable
    program: Program | None = None
    relations: tuple[Relation, ...] = ()  # what it assumes of sizes
    writes: bool = False  # whether it writes its inputs


class Stages(Protocol):
    """What a backend may ask of the compiler."""

    @property
    def options(self) -> Options:
        """The user's."""

    @property
    def graphs(self) -> Variants[Hashable, tuple[Executable, torch.fx.Graph]]:
        """What was compiled before, by the keys of graphs; with the graph, since a key has
        addresses of its constants."""

    def compile_graph(
        self, graph: torch.fx.Graph, inputs: Types, name: str, given: Sequence[Relation] = ()
    ) -> Executable:
        """A graph without reads as native code."""

    def compile_subgraphs(self, captured: Capture, given: Sequence[Relation]) -> Executable:
        """A graph that reads data on its way."""

    def stage(
        self, kind: EventType, subject: str, stage: Callable[..., Any], *args: Any, **keywords: Any
    ) -> Any:
        """Run, time and note a stage."""

    def count_eager(self, name: str, what: Eager, reason: str) -> None:
        """Note that something runs eagerly."""

    def note(self, kind: EventType, name: str, **facts: Any) -> None:
        """Note that something happened."""


class Backend(Protocol):
    """One way to make a graph callable."""

    def compile(
        self, captured: Capture, examples: Sequence[torch.Tensor], stages: Stages
    ) -> Executable:
        """The graph as something to call; `examples` are inputs of the call being compiled."""


class NativeBackend:
    """Ours: machine code, with gradients; what it cannot do runs op by op."""

    def compile(
        self, captured: Capture, examples: Sequence[torch.Tensor], stages: Stages
    ) -> Executable:
        """Native code; where the graph is not supported, op by op, and counted."""
        try:
            return self._native(captured, stages)
        except Specialise:
            raise
        except Unsupported as reason:
            # The graph itself is right: run it as captured, op by op, and say so.
            stages.count_eager(captured.name, Eager.GRAPH, str(reason))
            return EagerBackend().compile(captured, examples, stages)

    def _native(self, captured: Capture, stages: Stages) -> Executable:
        types = [one.type for one in captured.inputs]
        given = [one.check.relation for one in captured.guards if isinstance(one.check, Holds)]
        if subgraphs.reads_data(captured.graph):
            return stages.compile_subgraphs(captured, given)
        # What another call was compiled for may differ in guards only.
        varies = any(isinstance(one, Expression) for one in types)
        graph = None if varies else graph_key(captured.graph)
        key = graph and (graph, torch_abi.ambient())
        known = stages.graphs.get(key) if key is not None else None
        if known is not None:
            stages.note(EventKind.REUSE, captured.name)
            return known[0]
        made = stages.compile_graph(captured.graph, types, captured.name, given)
        if key is not None:
            stages.graphs.add(key, (made, captured.graph))
        return made


class EagerBackend:
    """The graph as captured, op by op."""

    def compile(
        self, captured: Capture, examples: Sequence[torch.Tensor], stages: Stages
    ) -> Executable:
        """Torch's own functions, one after the other."""
        call: GraphCallable = graph_module(captured.graph).forward
        if any(torch_abi.is_mode_switch(node.target) for node in captured.graph.nodes):
            call = _restoring_modes(call)
        return Executable(drawing_nothing(failing_unseen(call, written(captured))))


@dataclass(frozen=True, slots=True)
class UserBackend:
    """A callable `(graph_module, example_inputs) -> callable`, as torch.compile takes it."""

    function: Callable[..., Any]

    def compile(
        self, captured: Capture, examples: Sequence[torch.Tensor], stages: Stages
    ) -> Executable:
        """What the callable answers; `BackendError` where it raises."""
        function = self.function
        module = graph_module(captured.graph)
        name = getattr(function, "__name__", str(function))
        given = stages.options.for_backend()
        try:
            compiled = stages.stage(
                EventKind.BACKEND, name, function, module, list(examples), **given
            )
        except Exception as error:
            text = f"backend {name} raised {type(error).__name__}: {error}"
            raise BackendError(text) from error
        if not callable(compiled):
            raise UserError(
                f"the backend {name} answered {compiled!r}; it must return a callable that takes "
                "the graph's inputs and returns a tuple of its outputs"
            )
        return Executable(lambda *inputs: tuple(compiled(*inputs)))


def written(captured: Capture) -> list[int]:
    """Which inputs a graph writes, where it runs op by op."""
    return [index for index, one in enumerate(captured.inputs) if one.written]


def _restoring_modes(forward: GraphCallable) -> GraphCallable:
    """A graph that switches modes switches them back only if it comes to its end."""

    def call(*inputs: Any) -> tuple[Any, ...]:
        before = torch_abi.modes()
        try:
            return forward(*inputs)
        except BaseException:
            torch_abi.set_modes(before)
            raise

    return call


def graph_module(graph: torch.fx.Graph) -> torch.fx.GraphModule:
    """A graph as a module that can be called, with the graph's own constants."""
    return torch.fx.GraphModule(graph.owning_module or torch.nn.Module(), graph)


BACKENDS: dict[str, Backend] = {"windfall": NativeBackend(), "eager": EagerBackend()}


def resolve_backend(backend: str | Callable[..., Any]) -> Backend:
    """The backend that a name or a callable stands for."""
    if not isinstance(backend, str):
        return UserBackend(backend)
    found = BACKENDS.get(backend)
    if found is not None:
        return found
    offered = plugins.load(backend)
    if offered is not None:
        return UserBackend(offered)
    raise UserError(
        f"backend={backend!r} is not known; accepted: {', '.join(map(repr, backend_names()))} "
        "or a callable (graph_module, example_inputs) -> callable"
    )


def backend_names() -> list[str]:
    """The names that `backend=` accepts: our own and those of other packages."""
    return sorted({*BACKENDS, *plugins.offered()})
