"""Who makes a captured graph something to call.

Enters: a `Capture` and example inputs. Leaves: an `Executable`. Four kinds: ours (native code),
`eager` (op by op), a callable of the user, a device other than the CPU. What ours and devices need
of the compiler they ask of `Stages`, so that no backend knows the pipeline. Invariant: an
executable, linked, answers what the captured graph answers, or raises `GraphFailed` and nothing is
seen.

A new backend is a class with `compile`, and a row of `BACKENDS` or an entry point of a package
(`plugins.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence, Set
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Protocol

import torch
import torch.fx

from windfall import autograd, plugins, subgraphs, torch_abi
from windfall.dataclass import dataclass
from windfall.devices import DEVICES
from windfall.errors import BackendError, Specialise, Unsupported, UserError
from windfall.events import Eager, EventKind, EventType
from windfall.ir.dtype import TensorType
from windfall.ir.graph_key import graph_key
from windfall.ir.guard import Equals, Holds, TensorIs
from windfall.ir.relation import Relation
from windfall.ir.role import Role, RoleKind, Roles, numbered
from windfall.ir.rollback import DrawsNothing, FailsUnseen, RestoresModes
from windfall.ir.source import DictOf, Distance, Item, Overlap, Source
from windfall.ir.stages import (
    Capture,
    Convention,
    Executable,
    ForeignProgram,
    GraphProgram,
    PartitionedProgram,
)
from windfall.ir.symint import Expression
from windfall.options import Options
from windfall.reuse import Graphs

Types = Sequence[TensorType | Expression]


class Stages(Protocol):
    """What a backend may ask of the compiler."""

    @property
    def options(self) -> Options:
        """The user's."""

    @property
    def graphs(self) -> Graphs:
        """What was compiled before."""

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
        """A graph without reads as native code, or as graphs for a device; `roles` are those of its
        inputs, if known; `apart`, inputs that are known to share no memory with another one, or
        with such only that lie in it, `lying`: behind the start of which other, by how many
        bytes."""

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

    def device_of(self, found: Set[str]) -> str:
        """The type of device that compiles a graph of inputs on these; "": the CPU."""
        if found <= {"cpu"}:
            return ""
        if len(found) == 1 and found <= DEVICES.keys():
            return next(iter(found))
        raise Unsupported(0, f"no backend for tensors of {', '.join(sorted(found))} in one graph")

    def _native(self, captured: Capture, stages: Stages) -> Executable:
        types = [one.type for one in captured.inputs]
        device = self.device_of({one.device.type for one in types if isinstance(one, TensorType)})
        given = [one.check.relation for one in captured.guards if isinstance(one.check, Holds)]
        if subgraphs.reads_data(captured.graph):
            if autograd.holds_wrapped(types):
                raise Unsupported(0, "a graph over a tensor subclass that reads data on its way")
            if device:
                raise Unsupported(0, f"a graph that reads data of a {device} tensor on its way")
            program = PartitionedProgram(captured.graph, tuple(given))
            return _op_by_op(captured, program, DrawsNothing(), FailsUnseen(written(captured)))
        roles = input_roles(captured)
        if autograd.holds_wrapped(types):
            return self._flattened(captured, types, device, given, stages)
        # What another call was compiled for may differ in guards only.
        varies = any(isinstance(one, Expression) for one in types)
        graph = None if varies else graph_key(captured.graph)
        near, alone = lying(captured), apart(captured)
        key = graph and (graph, torch_abi.ambient(), alone, tuple(near.items()))
        known = stages.graphs.find(key, roles) if key is not None else None
        if known is not None:
            stages.note(EventKind.REUSE, captured.name)
            return known
        made = stages.compile_graph(
            captured.graph, types, captured.name, given, roles, device, alone, near
        )
        if key is not None:
            stages.graphs.add(key, made, captured.graph)
        return made

    def _flattened(
        self,
        captured: Capture,
        types: Types,
        device: str,
        given: Sequence[Relation],
        stages: Stages,
    ) -> Executable:
        """A graph over tensors that are made of others: compiled over these. Their sizes do not
        vary, nor do others beside them."""
        names = frozenset(str(one) for one in types if isinstance(one, Expression))
        if names:
            raise Specialise(names, "a graph over a tensor subclass")
        tensors = [one for one in types if isinstance(one, TensorType)]
        name = captured.name
        flat = stages.stage(EventKind.FLATTEN, name, autograd.flatten, captured.graph, tensors)
        made = stages.compile_graph(flat.graph, flat.inputs, name, given, (), device)
        (output,) = captured.graph.find_nodes(op="output")
        results = numbered(RoleKind.RESULT, len(output.args[0]))
        seen: Executable = flat.wrapped(made)
        return replace(seen, roles=Roles(input_roles(captured), results))


@dataclass(frozen=True, slots=True)
class DeviceBackend(NativeBackend):
    """One device, for graphs without tensors of others: autograd and writes are brought about
    around it. Ours chooses it by the tensors, once it was added."""

    type: str

    def device_of(self, found: Set[str]) -> str:
        """This one."""
        if found <= {self.type}:
            return self.type
        raise Unsupported(0, f"tensors of {', '.join(sorted(found))} in a graph for {self.type}")


class EagerBackend:
    """The graph as captured, op by op."""

    def compile(
        self, captured: Capture, examples: Sequence[torch.Tensor], stages: Stages
    ) -> Executable:
        """Torch's own functions, one after the other."""
        around: list[Convention] = [DrawsNothing(), FailsUnseen(written(captured))]
        if any(torch_abi.is_mode_switch(node.target) for node in captured.graph.nodes):
            around.append(RestoresModes())
        return _op_by_op(captured, GraphProgram(captured.graph), *around)


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
        return _op_by_op(captured, ForeignProgram(compiled))


def written(captured: Capture) -> tuple[int, ...]:
    """Which inputs a graph writes, where it runs op by op."""
    return tuple(index for index, one in enumerate(captured.inputs) if one.written)


def apart(captured: Capture) -> frozenset[int]:
    """The inputs (tensors, by their number) that the guards keep apart from all others, but for
    those whose distance they know."""
    tensors = [one.source for one in captured.inputs if isinstance(one.type, TensorType)]
    sources = [guard.source for guard in captured.guards]
    stands = {one.end: one.start for one in sources if isinstance(one, Distance)}
    first = [stands.get(one, one) for one in tensors]
    found: set[int] = set()
    for source in sources:
        if isinstance(source, Overlap) and {*source.written, *source.others}.issuperset(first):
            found |= {number for number, one in enumerate(first) if one in source.written}
    return frozenset(found)


def lying(captured: Capture) -> dict[int, tuple[int, int]]:
    """The inputs that lie behind the start of another one, and by how many bytes."""
    tensors = [one.source for one in captured.inputs if isinstance(one.type, TensorType)]
    near: dict[Source, list[tuple[int, Source]]] = {}
    for guard in captured.guards:
        if isinstance(guard.source, Distance) and isinstance(guard.check, Equals):
            start, end = guard.source.start, guard.source.end
            near.setdefault(start, [(0, start)]).append((guard.check.value, end))
    found: dict[int, tuple[int, int]] = {}
    for members in near.values():
        used = [(bytes, tensors.index(one)) for bytes, one in members if one in tensors]
        for bytes, number in used[1:]:
            found[number] = (used[0][1], bytes - used[0][0])
    return found


def _op_by_op(
    captured: Capture,
    program: GraphProgram | PartitionedProgram | ForeignProgram,
    *around: Convention,
) -> Executable:
    """The executable of a program that answers the captured graph's own results."""
    (output,) = (node for node in captured.graph.nodes if node.op == "output")
    results: Any = output.args[0]
    roles = Roles(input_roles(captured), numbered(RoleKind.RESULT, len(results)))
    return Executable(captured.name, program, roles, around)


def input_roles(captured: Capture) -> tuple[Role, ...]:
    """What each input of a captured graph is: where it is read tells, and what is guarded."""
    parameters = {
        one.source
        for one in captured.guards
        if isinstance(one.check, TensorIs) and issubclass(one.check.exact_class, torch.nn.Parameter)
    }
    sizes = sum(isinstance(one.type, Expression) for one in captured.inputs)
    return (
        *numbered(RoleKind.SIZE, sizes),
        *(
            Role(
                RoleKind.PARAMETER if one.source in parameters else _kind(one.source),
                number,
                one.written,
            )
            for number, one in enumerate(captured.inputs[sizes:])
        ),
    )


_OWNERS = {"_parameters": RoleKind.PARAMETER, "_buffers": RoleKind.BUFFER}


def _kind(source: Source) -> RoleKind:
    """By the dictionary of a module that a value is read from."""
    held = source.of if isinstance(source, Item) else None
    if isinstance(held, Item) and isinstance(held.of, DictOf):
        return _OWNERS.get(held.key, RoleKind.INPUT)
    return RoleKind.INPUT


def graph_module(graph: torch.fx.Graph) -> torch.fx.GraphModule:
    """A graph as a module that can be called, with the graph's own constants."""
    return torch.fx.GraphModule(graph.owning_module or torch.nn.Module(), graph)


BACKENDS: dict[str, Backend] = {
    "windfall": NativeBackend(),
    "eager": EagerBackend(),
    "aot_eager": DeviceBackend("cpu"),  # the differentiated graphs, op by op
}


def resolve_backend(backend: str | Callable[..., Any]) -> Backend:
    """The backend that a name or a callable stands for."""
    if not isinstance(backend, str):
        return UserBackend(backend)
    found = BACKENDS.get(backend)
    if found is not None:
        return found
    if backend in _others():
        return DeviceBackend(backend)
    offered = plugins.load(backend)
    if offered is not None:
        return UserBackend(offered)
    raise UserError(
        f"backend={backend!r} is not known; accepted: {', '.join(map(repr, backend_names()))} "
        "or a callable (graph_module, example_inputs) -> callable"
    )


def backend_names() -> list[str]:
    """The names that `backend=` accepts: our own, devices' and those of other packages."""
    return sorted({*BACKENDS, *_others(), *plugins.offered()})


def _others() -> Set[str]:
    """Devices that are chosen by their names: the CPU has code of its own."""
    return DEVICES.keys() - {"cpu"}
