"""Backward passes of a thread, taken over: another engine in the place of torch's.

Enters: an engine (`BackwardEngine`), for the time of a context. Leaves: `backward()` and
`autograd.grad` of this thread go to it; torch's own still runs what it is given. Invariant: other
threads are not concerned; whatever ends the last context puts everything back.

While another engine runs a pass, questions about the pass that runs (`_current_graph_task_id`,
`_current_autograd_node`, …) are answered from its `RunningPass`: torch's own engine has none then.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import field
from typing import Any, Protocol

import torch
from torch.autograd.graph import GradientEdge

from windfall import locks
from windfall.dataclass import dataclass

_REAL: Any = torch.autograd.Variable._execution_engine
_REAL_TASK: Any = torch._C._current_graph_task_id


class BackwardEngine(Protocol):
    """Who runs backward passes."""

    def run_backward(
        self,
        roots: tuple[Any, ...],
        gradients: tuple[Any, ...],
        keep_graph: bool,
        create_graph: bool,
        inputs: tuple[Any, ...],
        allow_unreachable: bool,
        accumulate: bool,
    ) -> tuple[Any, ...]:
        """As torch's own does it."""


@dataclass(slots=True)
class RunningPass:
    """A pass that an engine of ours runs: what the program may ask about it. `will_run` tells
    whether a node is run in it."""

    number: int
    keeps_graph: bool
    will_run: Callable[[Any], bool]
    node: Any = None
    callbacks: list[Callable[[], Any]] = field(default_factory=list)


class _Engines(threading.local):
    """Engines that are on, the last one in charge; and passes that run, the innermost last: None
    stands for one of torch's own engine."""

    def __init__(self) -> None:
        self.engines: list[BackwardEngine] = []
        self.passes: list[RunningPass | None] = []


_thread = _Engines()
_lock = locks.lock()
_taken = 0  # contexts of all threads
_before: list[tuple[Any, str, Any]] = []  # what stood there: owner, name, value


def running_pass() -> RunningPass | None:
    """The pass of ours that runs now in this thread, if it is the innermost."""
    passes = _thread.passes
    return passes[-1] if passes else None


def is_inside_real_engine() -> bool:
    """Whether torch's own engine runs a pass in this thread. Nodes that are called then look at
    what *that* pass asks for, and compute nothing else."""
    return bool(_REAL_TASK() != -1)


def running_passes() -> int:
    """How many passes run inside of each other in this thread."""
    return len(_thread.passes)


def run_by_real_engine(
    roots: Sequence[Any],
    gradients: Sequence[Any],
    keep_graph: bool,
    create_graph: bool = False,
    inputs: Sequence[Any] = (),
    allow_unreachable: bool = True,
    accumulate: bool = False,
) -> tuple[Any, ...]:
    """A part of a pass of ours, or a whole one, by torch's engine."""
    found: tuple[Any, ...] = _REAL.run_backward(
        tuple(roots),
        tuple(gradients),
        keep_graph,
        create_graph,
        tuple(inputs),
        allow_unreachable=allow_unreachable,
        accumulate_grad=accumulate,
    )
    return found


@contextlib.contextmanager
def running(one: RunningPass | None) -> Iterator[None]:
    """A pass runs; None: one of torch's engine, inside of one of ours perhaps."""
    _thread.passes.append(one)
    try:
        yield
    finally:
        _thread.passes.pop()


@contextlib.contextmanager
def taken_over(engine: BackwardEngine) -> Iterator[None]:
    """Backward passes of this thread go to `engine`."""
    _install()
    _thread.engines.append(engine)
    try:
        yield
    finally:
        _thread.engines.pop()
        _remove()


class _Proxy:
    """Stands where torch's engine stood."""

    def run_backward(
        self,
        tensors: Any,
        grad_tensors: Any,
        keep_graph: bool,
        create_graph: bool,
        inputs: Any = (),
        allow_unreachable: bool = False,
        accumulate_grad: bool = False,
    ) -> Any:
        given = (tensors, grad_tensors, keep_graph, create_graph, inputs)
        if _thread.engines:
            return _thread.engines[-1].run_backward(*given, allow_unreachable, accumulate_grad)
        return _REAL.run_backward(
            *given, allow_unreachable=allow_unreachable, accumulate_grad=accumulate_grad
        )

    def queue_callback(self, callback: Callable[[], Any]) -> None:
        now = running_pass()
        if now is not None:
            now.callbacks.append(callback)
        else:
            _REAL.queue_callback(callback)

    def __getattr__(self, name: str) -> Any:
        return getattr(_REAL, name)


def _asked(real: Callable[..., Any], answer: Callable[..., Any]) -> Callable[..., Any]:
    def ask(*args: Any) -> Any:
        now = running_pass()
        return real(*args) if now is None else answer(now, *args)

    return ask


def _node(real: Callable[[], Any]) -> Callable[[], Any]:
    """Torch's engine runs parts of our passes, and then knows better."""

    def ask() -> Any:
        found = real()
        now = running_pass()
        return now.node if found is None and now is not None else found

    return ask


_QUESTIONS: tuple[tuple[Any, str, Callable[..., Any]], ...] = (
    (torch._C, "_current_graph_task_id", lambda now: now.number),
    (torch._C, "_will_engine_execute_node", lambda now, node: now.will_run(node)),
    (torch._C._autograd, "_get_current_graph_task_keep_graph", lambda now: now.keeps_graph),
)


def _install() -> None:
    global _taken
    with _lock:
        if not _taken:
            _replace(torch.autograd.Variable, "_execution_engine", _Proxy())
            _replace(torch._C, "_current_autograd_node", _node(torch._C._current_autograd_node))
            for owner, name, answer in _QUESTIONS:
                _replace(owner, name, _asked(getattr(owner, name), answer))
        _taken += 1


def _replace(owner: Any, name: str, value: Any) -> None:
    _before.append((owner, name, getattr(owner, name)))
    setattr(owner, name, value)


def _remove() -> None:
    global _taken
    with _lock:
        _taken -= 1
        if not _taken:
            while _before:
                owner, name, value = _before.pop()
                setattr(owner, name, value)


# ------------------------------------------------------------------------------ edges


def edge_of(one: Any) -> tuple[Any, int]:
    """The node and the slot at which the gradient of a tensor (or of an edge) arrives."""
    if isinstance(one, torch.Tensor):
        node = one.grad_fn
        if node is not None:  # else torch finds the leaf's node
            return node, one.output_nr
        one = torch.autograd.graph.get_gradient_edge(one)
    return one.node, one.output_nr


def tensor_hooks_of(node: Any, gradients: Sequence[Any]) -> list[Any]:
    """Gradients that arrive at a node, after the hooks of the tensors that they belong to."""
    edges = [GradientEdge(node, slot) for slot, one in enumerate(gradients) if one is not None]
    present = [one for one in gradients if one is not None]
    if not edges:
        return list(gradients)
    found = iter(run_by_real_engine(edges, present, True, inputs=edges))
    return [None if one is None else next(found) for one in gradients]


def accumulate_by_real_engine(node: Any, gradient: Any) -> None:
    """What torch's engine does with a gradient that arrives at a leaf, with all hooks."""
    run_by_real_engine([GradientEdge(node, 0)], [gradient], True, accumulate=True)
