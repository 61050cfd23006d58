"""The hallway: every stage in order, and nothing else.

Enters: a `State` of the front end (a call, or the point behind a break). Leaves: an `Entry`, ready
to be called. Each stage is timed and noted in the event log; no stage knows the next one.

    capture → rewrite → [backend: differentiate → split → lower → schedule → plan → emit → build
    → bind] → enter

What is compiled while the program runs (the segment behind a break, a backward variant) is asked
of `Compiler.compile_missing` and `Compiler._backward`, which this file hands to the rooms.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.fx

from windfall import autograd, codegen, frontend, runtime, torch_abi
from windfall.errors import Unsupported, UserError
from windfall.events import EventLog
from windfall.ir.dtype import TensorType
from windfall.ir.spec import verify_graph
from windfall.ir.stages import Capture, Entry, Program, Split
from windfall.options import Options

GraphCallable = Callable[..., tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class Bound:
    """A captured graph that can be called; `program` where it is nothing but native code, so that
    the entry may contain it."""

    call: GraphCallable
    program: Program | None = None


Backend = Callable[["Compiler", Capture, Sequence[torch.Tensor]], Bound]


@dataclass(frozen=True, slots=True)
class Compiler:
    """What the compilations of one compiled object share."""

    options: Options
    log: EventLog

    def compiled(self, target: Callable[..., Any]) -> frontend.Compiled:
        """The compiled object of `target`. Its calls go to a native dispatcher first, which knows
        the entries that return at once; whatever they miss goes to the object's own `__call__`."""
        by_count: dict[int, tuple[Entry, ...]] = {}

        def changed(count: int, entries: tuple[Entry, ...]) -> None:
            by_count[count] = tuple(one for one in entries if one.segment.capture.resume is None)
            runtime.replace_entries(call, [one for known in by_count.values() for one in known])

        made = frontend.Compiled(target, self.compile_missing, self.log, self.options, changed)
        call = runtime.dispatcher((), made.__call__, native=self.options.native)
        made.__class__ = runtime.callable_type(frontend.Compiled, call)
        return made

    def compile_missing(self, state: frontend.State, facts: frontend.Facts) -> Entry:
        """The entry for a state that no entry fits."""
        captured: Capture = self._stage("capture", str(state.point), frontend.capture, state, facts)
        if self.options.fullgraph:
            _demand_one_graph(captured)
        segment = self._stage("rewrite", captured.name, frontend.rewrite, captured)
        bound = self._bind(captured, state)
        entry: Entry = self._stage(
            "enter",
            captured.name,
            runtime.enter,
            segment,
            bound.program if bound else None,
            bound.call if bound else None,
            native=self.options.native,
        )
        return entry

    def _bind(self, captured: Capture, state: frontend.State) -> Bound | None:
        if not any(node.op.startswith("call") for node in captured.graph.nodes):
            return None
        backend = resolve_backend(self.options.backend)
        examples = frontend.example_inputs(captured, state)
        return backend(self, captured, examples)

    # --------------------------------------------------------------------- the windfall backend

    def compile_graph(
        self, graph: torch.fx.Graph, inputs: Sequence[TensorType], name: str
    ) -> Bound:
        """A graph of torch functions as native code, with gradients where they are needed."""
        joint = self._stage("differentiate", name, autograd.differentiate, graph, tuple(inputs))
        halves: Split = self._stage("split", name, autograd.split, joint)
        program = self._program(halves.forward, f"{name} forward")
        forward = self._stage("bind", name, runtime.bind, program, native=self.options.native)
        if halves.backward is None and autograd.is_plain(halves.signature):
            return Bound(forward, program)
        call = autograd.bridge(
            joint, halves, forward, lambda variant: self._backward(variant, name)
        )
        return Bound(call)

    def _backward(self, variant: torch.fx.Graph, name: str) -> GraphCallable:
        program = self._program(variant, f"{name} backward")
        call: GraphCallable = self._stage(
            "bind", name, runtime.bind, program, native=self.options.native
        )
        return call

    def _program(self, graph: torch.fx.Graph, name: str) -> Program:
        """ATen graph → machine code."""
        if self.options.verify:
            verify_graph(graph)
        loops = self._stage("lower", name, codegen.lower, graph)
        schedule = self._stage("schedule", name, codegen.schedule, loops)
        memory = self._stage("plan", name, codegen.plan, schedule)
        module = self._stage("emit", name, codegen.emit, schedule, memory)
        program: Program = self._stage("build", name, codegen.build, module)
        return program

    def _stage(
        self, kind: str, subject: str, stage: Callable[..., Any], *args: Any, **keywords: Any
    ) -> Any:
        with self.log.stage(kind, subject) as event:
            event.record = stage(*args, **keywords)
        return event.record


def _demand_one_graph(captured: Capture) -> None:
    """`fullgraph=True`: a break is the user's to know of, before anything has run."""
    stopped = captured.stopped
    if stopped is None or frontend.ends_program(stopped.number):
        return
    raise UserError(
        f"fullgraph=True, but {captured.name} cannot be one graph.\n"
        f"  {stopped.where}\n"
        f"  W{stopped.number:04d} {stopped.reason}: {stopped.detail}\n"
        f"  what to do: {stopped.hint}"
    )


# -------------------------------------------------------------------------------------- backends


def _windfall(compiler: Compiler, captured: Capture, examples: Sequence[torch.Tensor]) -> Bound:
    types = [one.type for one in captured.inputs if one.type is not None]
    try:
        return compiler.compile_graph(captured.graph, types, captured.name)
    except Unsupported as reason:
        # The graph itself is right: run it as captured, op by op, and say so.
        compiler.log.add("fallback", captured.name, reason=str(reason))
        return _eager(compiler, captured, examples)


def _eager(compiler: Compiler, captured: Capture, examples: Sequence[torch.Tensor]) -> Bound:
    module = graph_module(captured.graph)
    if any(node.target is torch_abi.set_grad_mode for node in captured.graph.nodes):
        return Bound(_restoring_grad_mode(module.forward))
    return Bound(module.forward)


def _restoring_grad_mode(forward: GraphCallable) -> GraphCallable:
    """A graph that switches grad mode switches it back only if it comes to its end."""

    def call(*inputs: Any) -> tuple[Any, ...]:
        before = torch.is_grad_enabled()
        try:
            return forward(*inputs)
        except BaseException:
            torch_abi.set_grad_mode(before)
            raise

    return call


def user_backend(function: Callable[..., Any]) -> Backend:
    """A callable `(graph_module, example_inputs) -> callable`, as torch.compile takes it."""

    def compile_with(
        compiler: Compiler, captured: Capture, examples: Sequence[torch.Tensor]
    ) -> Bound:
        module = graph_module(captured.graph)
        name = getattr(function, "__name__", str(function))
        compiled = compiler._stage("backend", name, function, module, list(examples))
        if not callable(compiled):
            raise UserError(
                f"the backend {name} answered {compiled!r}; it must return a callable that takes "
                "the graph's inputs and returns a tuple of its outputs"
            )
        return Bound(lambda *inputs: tuple(compiled(*inputs)))

    return compile_with


def graph_module(graph: torch.fx.Graph) -> torch.fx.GraphModule:
    """A graph as a module that can be called, with the graph's own constants."""
    return torch.fx.GraphModule(graph.owning_module or torch.nn.Module(), graph)


BACKENDS: dict[str, Backend] = {"windfall": _windfall, "eager": _eager}


def resolve_backend(backend: str | Callable[..., Any]) -> Backend:
    """The backend that a name or a callable stands for."""
    if not isinstance(backend, str):
        return user_backend(backend)
    found = BACKENDS.get(backend)
    if found is None:
        raise UserError(
            f"backend={backend!r} is not known; accepted: {', '.join(map(repr, sorted(BACKENDS)))} "
            "or a callable (graph_module, example_inputs) -> callable"
        )
    return found
