"""The hallway: every stage in order, and nothing else.

Enters: a `State` of the front end (a call, or the point behind a break). Leaves: an `Entry`, ready
to be called. Each stage is timed and noted in the event log; no stage knows the next one.

    capture → rewrite → [backend: differentiate → split → arrange → lower → schedule → plan → emit
    → build → bind] → enter

What is compiled while the program runs (the segment behind a break, a backward variant) is asked
of `Compiler.compile_missing` and `Compiler._backward`, which this file hands to the rooms. A graph
that reads data on its way is divided first (`pieces.py`); each piece goes through the backend.
"""

from __future__ import annotations

import linecache
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
import torch.fx

from windfall import autograd, codegen, frontend, pieces, plugins, runtime, torch_abi
from windfall.directives import capturing
from windfall.errors import (
    BackendError,
    BreakError,
    InternalError,
    Specialise,
    Unsupported,
    UserError,
    WindfallError,
)
from windfall.events import Eager, EventKind, EventLog
from windfall.ir.again import drawing_nothing, failing_unseen
from windfall.ir.dtype import TensorType
from windfall.ir.graph_key import graph_key
from windfall.ir.guard import SYMBOLS, Guard, Holds
from windfall.ir.loop import Schedule
from windfall.ir.relation import Assumptions, Relation
from windfall.ir.spec import verify_graph
from windfall.ir.stages import Break, Capture, Entry, Joint, Program, Split
from windfall.ir.symint import Expression
from windfall.options import Options

GraphCallable = Callable[..., tuple[Any, ...]]
# How many compiled graphs one compiled object keeps, in case another entry has the same one.
KEPT_GRAPHS = 8


@dataclass(frozen=True, slots=True)
class Bound:
    """A captured graph that can be called; `program` where it is nothing but native code, so that
    the entry may contain it."""

    call: GraphCallable
    program: Program | None = None
    relations: tuple[Relation, ...] = ()  # what it assumes of sizes
    writes: bool = False  # whether it writes its inputs


Backend = Callable[["Compiler", Capture, Sequence[torch.Tensor]], Bound]


@dataclass(frozen=True, slots=True)
class Compiler:
    """What the compilations of one compiled object share."""

    options: Options
    log: EventLog
    # The latest graphs by their keys; with the graph, since a key has addresses of its constants.
    graphs: dict[Hashable, tuple[Bound, torch.fx.Graph]] = field(default_factory=dict)

    def compiled(self, target: Callable[..., Any]) -> frontend.Compiled:
        """The compiled object of `target`. Its calls go to a native dispatcher first, which knows
        the entries that return at once; whatever they miss goes to the object's own `__call__`."""
        by_count: dict[int, tuple[Entry, ...]] = {}

        def changed(count: int, entries: tuple[Entry, ...]) -> None:
            by_count[count] = tuple(one for one in entries if one.segment.capture.resume is None)
            runtime.replace_entries(call, [one for known in by_count.values() for one in known])

        made = frontend.Compiled(target, self.compile_missing, self.log, self.options, changed)
        made.made_again = lambda backend: self._with_backend(backend).compiled(target)
        call = runtime.dispatcher((), made.__call__, native=self.options.native)
        made.__class__ = runtime.callable_type(frontend.Compiled, call)
        return made

    def _with_backend(self, backend: Any) -> Compiler:
        resolve_backend(backend)
        return Compiler(replace(self.options, backend=backend), self.log)

    def compile_missing(self, state: frontend.State, facts: frontend.Facts) -> Entry:
        """The entry for a state that no entry fits. Whatever else goes wrong is our bug."""
        try:
            return self._entry(state, facts)
        except WindfallError:
            raise
        except Exception as error:
            raise InternalError(f"{state.point}: {type(error).__name__}: {error}") from error

    def _entry(self, state: frontend.State, facts: frontend.Facts) -> Entry:
        captured = self._captured(state, facts)
        bound = self._bind(captured, state)
        if bound is not None and bound.relations:
            captured = replace(captured, guards=(*captured.guards, *_guards(bound.relations)))
        segment = self._stage(EventKind.REWRITE, captured.name, frontend.rewrite, captured)
        entry: Entry = self._stage(
            EventKind.ENTER,
            captured.name,
            runtime.enter,
            segment,
            bound.program if bound else None,
            bound.call if bound else None,
            native=self.options.native,
        )
        return entry

    def _captured(self, state: frontend.State, facts: frontend.Facts) -> Capture:
        """`fullgraph=True`: a break is the user's to know of, before anything has run."""
        point = str(state.point)
        try:
            captured: Capture = self._stage(
                EventKind.CAPTURE, point, frontend.capture, state, facts
            )
        except Unsupported as reason:
            if self.options.fullgraph and not isinstance(reason, Specialise):
                _refuse(point, frontend.described(reason, reason.where), True)
            raise
        stopped = captured.stopped
        if stopped is not None and (self.options.fullgraph or stopped.refused):
            _refuse(captured.name, stopped, self.options.fullgraph)
        return captured

    def _bind(self, captured: Capture, state: frontend.State) -> Bound | None:
        if not any(node.op.startswith("call") for node in captured.graph.nodes):
            return None
        backend = resolve_backend(self.options.backend)
        examples = frontend.example_inputs(captured, state)
        try:
            return backend(self, captured, examples)
        except Specialise as reason:
            inputs = {str(one.type): str(one.source) for one in captured.inputs}
            reason.sources = frozenset(inputs[name] for name in reason.names if name in inputs)
            raise

    # --------------------------------------------------------------------- the windfall backend

    def compile_graph(
        self,
        graph: torch.fx.Graph,
        inputs: Sequence[TensorType | Expression],
        name: str,
        given: Sequence[Relation] = (),
    ) -> Bound:
        """A graph of torch functions as native code, with gradients where they are needed. `given`
        is known of sizes that vary."""
        with Assumptions(given, closed=True):
            joint: Joint = self._stage(
                EventKind.DIFFERENTIATE, name, autograd.differentiate, graph, tuple(inputs)
            )
        known = joint.relations  # what is given among them
        new = tuple(one for one in known if one not in given)
        with Assumptions(known, closed=True):
            halves: Split = self._stage(EventKind.SPLIT, name, autograd.split, joint)
            program = self._program(halves.forward, f"{name} forward", halves.symbols)
        program = replace(program, again=True)
        forward = self._stage(
            EventKind.BIND, name, runtime.bind, program, native=self.options.native
        )
        writes = bool(joint.signature.writes)
        # Eager is to draw the same numbers again, should data be refused.
        random = autograd.draws(halves.forward) and codegen.may_fail(halves.forward)
        if halves.backward is None and autograd.is_plain(halves.signature):
            if random:
                return Bound(drawing_nothing(forward), None, new, writes)
            return Bound(forward, program, new, writes)

        def backward(variant: torch.fx.Graph) -> GraphCallable:
            try:
                with (
                    torch_abi.fence(),
                    Assumptions(known, closed=True),
                    torch_abi.without_saved_tensor_hooks(),
                ):
                    return self._backward(variant, name, halves.symbols)
            except (Unsupported, InternalError) as reason:
                if self.options.strict and isinstance(reason, InternalError):
                    raise
                self._eagerly(f"{name} backward", Eager.BACKWARD, str(reason))
                raise Unsupported(0, str(reason)) from reason  # eager's backward answers

        def failed(error: Exception) -> None:
            if self.options.strict and isinstance(error, InternalError):
                raise error
            reason = f"eager says what is wrong: {type(error).__name__}: {error}"
            self._eagerly(f"{name} backward", Eager.BACKWARD, reason)

        call = autograd.bridge(joint, halves, forward, backward, failed)
        call = drawing_nothing(call) if random else call
        return Bound(call, relations=new, writes=writes)

    def in_pieces(self, captured: Capture, given: Sequence[Relation]) -> Bound:
        """A graph that reads data on its way: pieces, which are compiled when they are reached."""

        def compiled(
            graph: torch.fx.Graph,
            inputs: Sequence[TensorType | Expression],
            name: str,
            given: Sequence[Relation],
        ) -> pieces.Compiled:
            with torch_abi.fence(), capturing(), torch_abi.without_saved_tensor_hooks():
                made = self.compile_graph(graph, inputs, name, given)
            return pieces.Compiled(made.call, made.relations, made.writes)

        made: pieces.Pieces = self._stage(
            EventKind.PIECES,
            captured.name,
            pieces.Pieces,
            captured.graph,
            captured.name,
            compiled,
            given,
            self.log,
            self.options.recompile_limit,
            self.options.strict,
            self.options.native,
        )
        return Bound(drawing_nothing(failing_unseen(made.call(), _written(captured))))

    def _backward(
        self, variant: torch.fx.Graph, name: str, symbols: tuple[Expression, ...]
    ) -> GraphCallable:
        program = self._program(variant, f"{name} backward", symbols, refusing=False)
        call: GraphCallable = self._stage(
            EventKind.BIND, name, runtime.bind, program, native=self.options.native, keep=True
        )
        return call

    def _program(
        self,
        graph: torch.fx.Graph,
        name: str,
        symbols: tuple[Expression, ...] = (),
        refusing: bool = True,
    ) -> Program:
        """ATen graph → machine code. `refusing` False: another graph has looked at the data."""
        if self.options.verify:
            verify_graph(graph)
        graph = self._stage(EventKind.ARRANGE, name, codegen.arrange, graph)
        schedule = self._scheduled(graph, name, symbols, refusing)
        memory = self._stage(EventKind.PLAN, name, codegen.plan, schedule)
        module = self._stage(EventKind.EMIT, name, codegen.emit, schedule, memory)
        program: Program = self._stage(EventKind.BUILD, name, codegen.build, module)
        return program

    def _scheduled(
        self, graph: torch.fx.Graph, name: str, symbols: tuple[Expression, ...], refusing: bool
    ) -> Schedule:
        """Kernels and calls; blocks that repeat themselves are lowered and scheduled once."""

        def part(one: torch.fx.Graph) -> Schedule:
            loops = self._stage(
                EventKind.LOWER, name, codegen.lower, one, symbols, refusing=refusing
            )
            done: Schedule = self._stage(EventKind.SCHEDULE, name, codegen.schedule, loops)
            return done

        division = self._stage(EventKind.DIVIDE, name, codegen.divide, graph)
        if division is not None:
            joined = codegen.join(division, [part(one) for one in division.graphs], symbols)
            if joined is not None:
                return joined
        return part(graph)

    def _eagerly(self, name: str, what: Eager, reason: str) -> None:
        self.log.count(EventKind.FALLBACK, name, reason=reason, what=what)

    def _stage(
        self, kind: EventKind, subject: str, stage: Callable[..., Any], *args: Any, **keywords: Any
    ) -> Any:
        with self.log.stage(kind, subject) as event:
            try:
                made = event.record = stage(*args, **keywords)
            except WindfallError:
                raise
            except Exception as error:
                if kind is EventKind.BACKEND:  # not ours
                    raise
                text = f"{kind} of {subject}: {type(error).__name__}: {error}"
                raise InternalError(text) from error
        return made


def _guards(relations: Sequence[Relation]) -> list[Guard]:
    return [Guard(SYMBOLS, Holds(one), "an operation's decision about sizes") for one in relations]


def _refuse(name: str, stopped: Break, fullgraph: bool) -> None:
    """An error that shows the user's stack, the reason, its number and what to change."""
    if frontend.is_no_break(stopped.number):
        return
    stack = stopped.stack or ((stopped.where,) if stopped.where else ())
    wish = "cannot be one graph" if fullgraph else "needs a break here"
    lines = [f"{'fullgraph=True' if fullgraph else 'error_on_graph_break'}, but {name} {wish}."]
    for one in stack:
        lines.append(f'  File "{one.file}", line {one.line}, in {one.function}')
        lines.append(f"    {linecache.getline(one.file, one.line).strip()}")
    lines.append(f"  W{stopped.number:04d} {stopped.reason}: {stopped.detail}")
    lines.append(f"  what to do: {stopped.hint}")
    raise BreakError("\n".join(line for line in lines if line.strip()), stopped.number, stack)


# -------------------------------------------------------------------------------------- backends


def _windfall(compiler: Compiler, captured: Capture, examples: Sequence[torch.Tensor]) -> Bound:
    types = [one.type for one in captured.inputs]
    given = [one.check.relation for one in captured.guards if isinstance(one.check, Holds)]
    # What another call was compiled for may differ in guards only.
    varies = any(isinstance(one, Expression) for one in types)
    reads = pieces.reads_data(captured.graph)
    key = None if varies or reads else graph_key(captured.graph)
    key = key and (key, torch_abi.ambient())
    known = compiler.graphs.get(key)
    if known is not None:
        compiler.log.add(EventKind.REUSE, captured.name)
        return known[0]
    try:
        if reads:
            return compiler.in_pieces(captured, given)
        made = compiler.compile_graph(captured.graph, types, captured.name, given)
        if key is not None:
            while len(compiler.graphs) >= KEPT_GRAPHS:
                compiler.graphs.pop(next(iter(compiler.graphs)), None)
            compiler.graphs[key] = (made, captured.graph)
        return made
    except Specialise:
        raise
    except Unsupported as reason:
        # The graph itself is right: run it as captured, op by op, and say so.
        compiler._eagerly(captured.name, Eager.GRAPH, str(reason))
        return _eager(compiler, captured, examples)


def _eager(compiler: Compiler, captured: Capture, examples: Sequence[torch.Tensor]) -> Bound:
    module = graph_module(captured.graph)
    call: GraphCallable = module.forward
    if any(torch_abi.is_mode_switch(node.target) for node in captured.graph.nodes):
        call = _restoring_modes(call)
    return Bound(drawing_nothing(failing_unseen(call, _written(captured))))


def _written(captured: Capture) -> list[int]:
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


def user_backend(function: Callable[..., Any]) -> Backend:
    """A callable `(graph_module, example_inputs) -> callable`, as torch.compile takes it."""

    def compile_with(
        compiler: Compiler, captured: Capture, examples: Sequence[torch.Tensor]
    ) -> Bound:
        module = graph_module(captured.graph)
        name = getattr(function, "__name__", str(function))
        given = compiler.options.for_backend()
        try:
            compiled = compiler._stage(
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
    if found is not None:
        return found
    offered = plugins.load(backend)
    if offered is not None:
        return user_backend(offered)
    raise UserError(
        f"backend={backend!r} is not known; accepted: {', '.join(map(repr, backend_names()))} "
        "or a callable (graph_module, example_inputs) -> callable"
    )


def backend_names() -> list[str]:
    """The names that `backend=` accepts: our own and those of other packages."""
    return sorted({*BACKENDS, *plugins.offered()})
