"""A backward pass, run node by node, for real.

Enters: a `BackwardGraph`, what is asked of the pass, and a recorder. Leaves: gradients in leaves,
or those that were asked for. Invariant: nodes run in torch's order, with each hook where torch's
engine has it; the order depends on the graph alone, so that a pass that was replayed up to some
live call can go on here (`Execution.go_on`).
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from typing import Any, TypeVar

import torch

from windfall import torch_abi
from windfall.dataclass import dataclass
from windfall.engine import live
from windfall.engine.backward_graph import BackwardGraph, Edge, How, NodeKey
from windfall.engine.pass_recording import PassRecorder, Unrecorded
from windfall.engine.queue import ReadyQueue
from windfall.engine.steps import CallKind, Gradients, LiveCall, Registers, Traced


@dataclass(frozen=True, slots=True)
class PassRequest:
    """What is asked of a pass: `inputs` are the places whose gradients are wanted (None: one that
    the graph does not reach); empty: all leaves are updated. `accumulate`: these leaves."""

    roots: tuple[Edge, ...]
    inputs: tuple[Edge | None, ...]
    accumulate: bool


class Execution:
    """One pass."""

    def __init__(
        self,
        graph: BackwardGraph,
        request: PassRequest,
        keep_graph: bool,
        recorder: PassRecorder | Unrecorded,
        now: torch_abi.RunningPass,
    ) -> None:
        self._graph, self._keep, self._recorder, self._now = graph, keep_graph, recorder, now
        self._request = request
        self._captures, self._needed = plan(graph.keys, request)
        self._running = running(graph.keys, request)
        self._waiting = _dependencies(graph, request.roots)
        self._buffers: dict[int, Gradients] = {}
        self._ready: ReadyQueue[int] = ReadyQueue()
        self.captured: list[torch.Tensor | None] = [None] * len(request.inputs)

    def run(self, roots: Sequence[torch.Tensor]) -> None:
        """The whole pass."""
        given = [self._recorder.root(one) for one in roots]
        ends: Gradients = []
        for (node, slot), value in zip(self._request.roots, given, strict=True):
            ends.append(self._arrive(node, slot, value))
        self._recorder.delivered(-1, ends)
        self._go()

    def _go(self) -> None:
        while self._ready:
            node = self._ready.pop()
            self._node(node, self._buffers.pop(node))

    def go_on(
        self,
        call: LiveCall,
        results: Gradients,
        delivered: Sequence[tuple[int, Registers]],
        values: Sequence[torch.Tensor | None],
    ) -> None:
        """The rest of a pass that was replayed up to a live call, which answered otherwise than
        recorded. `delivered` is the recording's; `values` are those of registers."""

        def traced(registers: Registers) -> Gradients:
            return [None if one is None else _present(values[one]) for one in registers]

        for node, ends in delivered[: call.position]:
            if node >= 0:
                assert self._ready.pop() == node, "the order depends on the graph alone"
                self._buffers.pop(node)
            edges = self._graph.keys[node].edges if node >= 0 else self._request.roots
            for edge, end in zip(edges, ends, strict=True):
                if edge is not None:
                    self._place(*edge, None if end is None else values[end])
        if call.kind is CallKind.SUM:
            raise AssertionError("sums answer as recorded")
        node = self._ready.pop()
        assert node == call.node, "the order depends on the graph alone"
        self._buffers.pop(node)
        self._now.node = self._graph.nodes[node]
        given = traced(call.given)
        if call.kind is CallKind.TENSOR_HOOKS:
            self._after_tensor_hooks(node, results)
        elif call.kind is CallKind.PRE_HOOKS:
            self._after_pre_hooks(node, results)
        elif call.kind is CallKind.NODE:
            self._after_call(node, given, results)
        else:
            self._deliver(node, results)
        self._go()

    # -------------------------------------------------------------------- gradients on their way

    def _arrive(self, node: int, slot: int, value: Traced | None) -> Traced | None:
        """A gradient arrives at a node; what stands there now."""
        self._waiting[node] -= 1
        buffer = self._buffers.get(node)
        if buffer is None:
            if not self._runs(node):
                return None
            buffer = self._buffers[node] = [None] * max(1, len(self._graph.keys[node].arriving))
        if value is not None:
            before = buffer[slot]
            buffer[slot] = value if before is None else self._sum(node, before, value)
        if not self._waiting[node]:
            self._ready.push(torch_abi.sequence_of(self._graph.nodes[node]), node)
        return buffer[slot]

    def _place(self, node: int, slot: int, value: torch.Tensor | None) -> None:
        """What stood there when the recording was made."""
        self._waiting[node] -= 1
        if node not in self._buffers:
            if not self._runs(node):
                return
            self._buffers[node] = [None] * max(1, len(self._graph.keys[node].arriving))
        self._buffers[node][slot] = None if value is None else Traced(value, None)
        if not self._waiting[node]:
            self._ready.push(torch_abi.sequence_of(self._graph.nodes[node]), node)

    def _sum(self, node: int, one: Traced, other: Traced) -> Traced:
        (found,) = self._recorder.compute(CallKind.SUM, node, live.summed, [one, other])
        assert found is not None
        return found

    def _runs(self, node: int) -> bool:
        return self._running is None or node in self._running

    # ------------------------------------------------------------------------------ one node

    def _node(self, node: int, given: Gradients) -> None:
        key, self._now.node = self._graph.keys[node], self._graph.nodes[node]
        needed = self._needed is None or node in self._needed
        if needed and node in self._captures:
            self._capture(node, given)  # as it arrives: hooks come later
        if key.hooks & torch_abi.TENSOR_HOOKS and not (needed and key.how is How.LEAF):
            given = self._call(CallKind.TENSOR_HOOKS, node, given)
        self._after_tensor_hooks(node, given)

    def _after_tensor_hooks(self, node: int, given: Gradients) -> None:
        key = self._graph.keys[node]
        if self._needed is not None and node not in self._needed:
            self._capture(node, given)
            self._recorder.delivered(node, [])
            return
        if key.how is How.LEAF:
            self._leaf(node, given)
            return
        if key.hooks & torch_abi.PRE_HOOKS:
            given = self._call(CallKind.PRE_HOOKS, node, given)
        self._after_pre_hooks(node, given)

    def _after_pre_hooks(self, node: int, given: Gradients) -> None:
        if self._graph.keys[node].how is How.TRACED:
            saved, call = self._graph.saved[node], self._graph.calls[node]
            assert call is not None
            made = self._recorder.compute(CallKind.NODE, node, call, given, saved)
        else:
            made = self._call(CallKind.NODE, node, given)
        self._after_call(node, given, made)

    def _after_call(self, node: int, given: Gradients, made: Gradients) -> None:
        key, one = self._graph.keys[node], self._graph.nodes[node]
        edges = ends_of(self._graph.keys, node)
        if self._running is not None and not isinstance(one, torch_abi.PythonNode):
            made = wanted(made, key, self._running)
        if not live.fits([None if value is None else value.tensor for value in made], edges):
            fit = live.fitted(type(one).__name__, edges)
            made = self._recorder.compute(CallKind.FIT, node, fit, made)
        if key.hooks & torch_abi.POST_HOOKS:
            made = self._call(CallKind.POST_HOOKS, node, given, made)
        self._deliver(node, made)

    def _deliver(self, node: int, made: Gradients) -> None:
        self._graph.saved[node], self._graph.calls[node] = {}, None  # which keep tensors alive
        if not self._keep:
            torch_abi.release_saved([self._graph.nodes[node]])
        edges = self._graph.keys[node].edges
        ends: Gradients = []
        for edge, value in zip(edges, made, strict=True):
            ends.append(None if edge is None else self._arrive(*edge, value))
        self._recorder.delivered(node, ends)

    def _leaf(self, node: int, given: Gradients) -> None:
        (value,) = given
        if value is not None:
            hooked = bool(self._graph.keys[node].hooks)
            shared = live.is_distributed()
            live.update_leaf(self._graph.nodes[node], value.tensor, hooked or shared)
            self._recorder.leaf(node, value, hooked)
        self._recorder.delivered(node, [])

    def _capture(self, node: int, given: Gradients) -> None:
        for slot, position in self._captures[node]:
            value = given[slot]
            self.captured[position] = None if value is None else value.tensor
            self._recorder.captured(position, value)

    def _call(
        self, kind: CallKind, node: int, given: Gradients, made: Gradients | None = None
    ) -> Gradients:
        one, key = self._graph.nodes[node], self._graph.keys[node]
        results = live.call(kind, one, key, (), tensors(given), tensors(made or []))
        if kind is CallKind.NODE and self._running is not None and key.how is How.LIVE:
            results = wanted(results, key, self._running)
        return self._recorder.live(kind, node, given, results, made)


def tensors(values: Gradients) -> list[torch.Tensor | None]:
    """The tensors of gradients."""
    return [None if one is None else one.tensor for one in values]


def _present(value: torch.Tensor | None) -> Traced:
    assert value is not None, "a value is kept as long as a pass may go on with it"
    return Traced(value, None)


def ends_of(keys: Sequence[NodeKey], node: int) -> list[Any]:
    """What the gradient at the end of each edge of a node is like."""
    return [None if edge is None else keys[edge[0]].arriving[edge[1]] for edge in keys[node].edges]


def plan(
    keys: Sequence[NodeKey], request: PassRequest
) -> tuple[dict[int, list[tuple[int, int]]], set[int] | None]:
    """Which gradients are taken where (by node: slot and position), and which nodes run for it;
    None: all."""
    captures: dict[int, list[tuple[int, int]]] = {}
    if not request.inputs:
        return captures, None
    ends = {edge[0] for edge in request.inputs if edge is not None}
    if not request.accumulate:
        for position, edge in enumerate(request.inputs):
            if edge is not None:
                captures.setdefault(edge[0], []).append((edge[1], position))
    needed = _leading_to(keys, ends)
    return captures, needed | ends if request.accumulate else needed


def running(keys: Sequence[NodeKey], request: PassRequest) -> set[int] | None:
    """Which nodes run at all, if only to have their gradients taken; None: all."""
    captures, needed = plan(keys, request)
    return None if needed is None else needed | captures.keys()


Answer = TypeVar("Answer")


def wanted(made: Sequence[Answer | None], key: NodeKey, runs: Set[int]) -> list[Answer | None]:
    """The answers of a node of C++, which computes none for those that do not run."""
    pairs = zip(made, key.edges, strict=False)
    return [one if edge is not None and edge[0] in runs else None for one, edge in pairs]


def _leading_to(keys: Sequence[NodeKey], ends: set[int]) -> set[int]:
    """Nodes from which one of `ends` is reached."""
    parents: dict[int, list[int]] = {}
    for number, key in enumerate(keys):
        for edge in key.edges:
            if edge is not None:
                parents.setdefault(edge[0], []).append(number)
    found: set[int] = set()
    waiting = list(ends)
    while waiting:
        for one in parents.get(waiting.pop(), ()):
            if one not in found:
                found.add(one)
                waiting.append(one)
    return found


def _dependencies(graph: BackwardGraph, roots: Sequence[Edge]) -> list[int]:
    """How many gradients each node waits for."""
    waiting = [0] * len(graph.nodes)
    for node, _ in roots:
        waiting[node] += 1
    for key in graph.keys:
        for edge in key.edges:
            if edge is not None:
                waiting[edge[0]] += 1
    return waiting
