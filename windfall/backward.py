"""Compiled autograd: the engine's graphs go through the same stages as captured ones.

Enters: `with compiled_autograd():`. Leaves: backward passes of this thread are recorded, compiled
and replayed (`engine`). Invariant: what was compiled is kept for the process, not for the context:
a loop that enters it in each step compiles once. A graph that cannot be compiled runs op by op, and
one that refuses its data is done again so; both are counted.

    >>> with windfall.compiled_autograd() as passes:
    ...     loss.backward()
    >>> passes.explanation().passes
    {'recorded': 1}
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

import torch
import torch.fx

from windfall import autograd, engine, torch_abi
from windfall.around import Around
from windfall.directives import capturing
from windfall.errors import GraphFailed, InternalError, Unsupported
from windfall.events import Eager, EventLog
from windfall.ir.dtype import TensorType
from windfall.ir.role import RoleKind
from windfall.ir.stages import Executable, GraphCallable
from windfall.ir.symint import Expression
from windfall.on_demand import GraphCompiler
from windfall.options import Options
from windfall.pipeline import Compiler
from windfall.reporting import process
from windfall.reporting.explain import Explanation, explanation_of, log_listener


class SegmentCompiler:
    """Compiles the graphs of recorded passes."""

    def __init__(self, compiler: GraphCompiler) -> None:
        self._compiler = compiler

    def __call__(
        self, graph: torch.fx.Graph, types: Sequence[TensorType], name: str
    ) -> engine.CompiledSegment:
        """Native code; op by op where that cannot be, and counted."""
        interpreted = autograd.interpreter(graph)

        def by_eager(*inputs: Any) -> Sequence[Any]:
            with torch.autocast("cpu", enabled=False):
                return interpreted(*inputs)

        outputs = len(graph.output_node().args[0])  # type: ignore[arg-type]
        try:
            made, call = self._made(graph, types, name)
        except (Unsupported, InternalError) as reason:
            if self._compiler.options.strict and isinstance(reason, InternalError):
                raise
            self._compiler.count_eager(name, Eager.GRAPH, str(reason))
            return engine.CompiledSegment(by_eager, (False,) * outputs)

        def run(*inputs: Any) -> Sequence[Any]:
            try:
                return call(*inputs)
            except GraphFailed as failed:
                failed.raise_internal()
                self._compiler.count_eager(name, Eager.GRAPH, str(failed))
            return by_eager(*inputs)

        return engine.CompiledSegment(run, _owned(made))

    def varying(
        self, graph: torch.fx.Graph, types: Sequence[TensorType | Expression], name: str
    ) -> engine.VaryingSegment | None:
        """Native code for all sizes; None where there is none. It may refuse data (`GraphFailed`):
        code for one size then says what is wrong."""
        try:
            made, call = self._made(graph, types, f"{name}, any size")
        except (Unsupported, InternalError) as reason:
            if self._compiler.options.strict and isinstance(reason, InternalError):
                raise
            return None
        return engine.VaryingSegment(engine.CompiledSegment(call, _owned(made)), made.relations)

    def _made(
        self, graph: torch.fx.Graph, types: Sequence[TensorType | Expression], name: str
    ) -> tuple[Executable, GraphCallable]:
        with (
            torch_abi.fence(),
            capturing(),
            torch_abi.running(None),
            torch.autocast("cpu", enabled=False),  # what was recorded has been cast
            torch_abi.without_saved_tensor_hooks(),
        ):
            made = self._compiler.compile_graph(graph, types, name)
            return made, self._compiler.link(made)


def _owned(made: Executable) -> tuple[bool, ...]:
    """Which results are memory of their own that no other result shows."""
    results = made.roles.results
    shown = {one.number for one in results if one.kind is RoleKind.VIEW_OF_RESULT}
    return tuple(one.kind is RoleKind.RESULT and one.number not in shown for one in results)


def engine_for(options: Options, log: EventLog) -> engine.Engine:
    """An engine that compiles with these options."""
    return engine.Engine(SegmentCompiler(Compiler(options, log)), log, autograd.operations_of)


class CalledUnderEngine(Around):
    """A compiled object with `compiled_autograd=True`: backward passes inside of its calls go to an
    engine of its own, which tells of them in the object's log."""

    def __init__(self, compiled: Any, made: engine.Engine) -> None:
        super().__init__(compiled)
        self._engine = made

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        """Call it."""
        with torch_abi.taken_over(self._engine):
            return self.compiled(*args, **kwargs)


_shared: list[engine.Engine] = []


def shared_engine() -> engine.Engine:
    """The one of `compiled_autograd()`, made when it is first asked for."""
    if not _shared:
        options = Options.checked()
        listeners = (log_listener(options.logs, "backward"),) if options.logs else ()
        log = EventLog(listeners, records=options.records)
        process.register(log, "backward passes", options.report)
        _shared.append(engine_for(options, log))
    return _shared[0]


def forget() -> None:
    """Drop what was recorded."""
    _shared.clear()


class compiled_autograd(contextlib.ContextDecorator):
    """Backward passes of this thread (`backward()`, `autograd.grad`) are recorded at their first
    run, compiled at the second and replayed from then on. It may be nested, and decorate."""

    def __init__(self) -> None:
        self._engine = shared_engine()
        self._entered: list[contextlib.AbstractContextManager[None]] = []

    def __enter__(self) -> compiled_autograd:
        entered = torch_abi.taken_over(self._engine)
        entered.__enter__()
        self._entered.append(entered)
        return self

    def __exit__(self, *raised: Any) -> None:
        self._entered.pop().__exit__(*raised)

    def explanation(self) -> Explanation:
        """What happened to backward passes so far, in all contexts of the process."""
        return explanation_of(self._engine.log)
