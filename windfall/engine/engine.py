"""Our engine in the place of torch's: record a pass once, replay it.

Enters: what `backward()` and `autograd.grad` ask for. Leaves: gradients, as torch's engine leaves
them. Invariant: a pass is recorded by running it for real, so the first one is right by itself; it
is replayed only for an equal key; whatever is not followed goes to torch's engine, and is counted
with its reason.

    a recent program's verifier fits → replay
    key known → compile what is not yet, replay
    a program for sizes that vary fits → replay that (`families.py`)
    key unknown → run node by node, recording
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from windfall import torch_abi
from windfall.dataclass import dataclass
from windfall.engine import live
from windfall.engine.backward_graph import BackwardGraph, Inline, NodeKey, Unfollowed, inline_none
from windfall.engine.execution import Execution, PassRequest, plan
from windfall.engine.families import Family, Instance
from windfall.engine.pass_recording import PassRecorder, Unrecorded
from windfall.engine.program import PassProgram, PassSegment, program_of
from windfall.engine.replay import CompiledSegment, CompilesSegments, Departure, PassReplay
from windfall.engine.steps import Traced
from windfall.engine.vary import Spread, spread
from windfall.engine.verify import Matched
from windfall.events import EventKind, EventLog
from windfall.ir.dtype import TensorType
from windfall.variants import Variants

# How a pass went.
RECORDED, REPLAYED = "recorded", "replayed"
CONFIRMED = "run node by node, as a program for sizes that vary says"
DEPARTED = "replayed up to a live call, then node by node"
BY_TORCH = "by torch's engine"

KEPT = 256  # programs of one engine
DEPTH = 20  # of passes inside of each other: each is some frames of Python
SENT = 1 << 20  # bytes of gradients that are given to other processes at once, at most
RECENT = 4  # whose verifiers are tried before a key is made

_numbers = itertools.count(-10, -1)  # of passes: torch's own are not negative


@dataclass(frozen=True, slots=True)
class _Asked:
    """What is asked of a pass, as it came."""

    begins: Sequence[tuple[Any, int]]
    ends: Sequence[tuple[Any, int]]
    accumulate: bool
    keep_graph: bool
    gradients: tuple[torch.Tensor, ...]


class Engine:
    """Programs of backward passes, and who runs them."""

    def __init__(
        self, compiler: CompilesSegments, log: EventLog, inline: Inline = inline_none
    ) -> None:
        self.log = log
        self.programs: Variants[Any, PassReplay] = Variants(KEPT)
        self._compiler, self._inline = compiler, inline
        # By what is known before any node is looked at: those that are asked first.
        self._recent: Variants[Any, tuple[PassReplay, ...]] = Variants(KEPT)
        # By what does not vary of a key.
        self._families: Variants[Any, Family] = Variants(KEPT)

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
        reason = _obstacle(roots, gradients, create_graph, inputs, accumulate)
        if reason is None:
            begins = [torch_abi.edge_of(one) for one in roots]
            ends = [torch_abi.edge_of(one) for one in inputs]
            asked = _Asked(begins, ends, accumulate, keep_graph, gradients)
            try:
                found = self._run(asked)
            except Unfollowed as unfollowed:
                reason = str(unfollowed)
        if reason is not None:
            self.log.count(EventKind.PASS, "backward", how=BY_TORCH, reason=reason)
            with torch_abi.running(None):
                return torch_abi.run_by_real_engine(
                    *(roots, gradients, keep_graph, create_graph, inputs),
                    *(allow_unreachable, accumulate),
                )
        if accumulate:
            return ()
        missing = next((at for at, one in enumerate(found) if one is None), None)
        if missing is not None and not allow_unreachable:
            raise RuntimeError(
                f"The differentiated Tensor at index {missing} appears to not have been used in "
                "the graph. Set allow_unused=True if this is the desired behavior."
            )
        return tuple(found)

    def _run(self, asked: _Asked) -> Sequence[torch.Tensor | None]:
        door = (
            torch_abi.ambient(),
            tuple(TensorType.of(one) for one in asked.gradients),
            len(asked.ends),
            asked.accumulate,
        )
        for known in self._recent.get(door) or ():
            matched = known.verifier and known.verifier.match(asked.begins, asked.ends)
            if matched and not known.is_stale:
                return self._replay(known, asked, matched.nodes, matched)
        graph = BackwardGraph(asked.begins, self._inline)
        wanted = tuple(graph.edge(one) for one in asked.ends)
        request = PassRequest(graph.roots, wanted, asked.accumulate)
        key = (door, request, tuple(graph.keys))
        found = self.programs.get(key)
        seen = None
        if found is None:
            seen = spread(door, request, graph.keys)
            family = self._families.get(seen.skeleton)
            if family is not None:
                made = family.instance(graph.keys, seen, request)
                if made is not None:
                    found = made.replay
                    found.kept = graph.kept
                    if not made.confirmed:
                        return self._confirm(key, graph, request, asked, seen, family, made)
                    self.programs.add(key, found)
        if found is None or found.is_stale:
            return self._record(key, graph, request, asked, found, seen)
        if found.prepare(graph):
            recent = [one for one in self._recent.get(door) or () if not one.is_stale]
            self._recent.add(door, (found, *recent[: RECENT - 1]))
        nodes = graph.nodes
        del graph  # and the saved values that it has
        return self._replay(found, asked, nodes)

    def _run_by_node(
        self, graph: BackwardGraph, request: PassRequest, asked: _Asked
    ) -> tuple[PassProgram, Sequence[torch.Tensor | None]]:
        """Run a pass for real: its program, and what it captured."""
        recorder = PassRecorder()
        with self._running(asked, request, graph.nodes, graph.keys) as now:
            execution = Execution(graph, request, asked.keep_graph, recorder, now)
            execution.run(asked.gradients)
        wanted = 0 if request.accumulate else len(request.inputs)
        sent = SENT if live.is_distributed() else None
        program = program_of(recorder.recording, graph.keys, request.roots, wanted, sent)
        return program, execution.captured

    def _record(
        self,
        key: Any,
        graph: BackwardGraph,
        request: PassRequest,
        asked: _Asked,
        before: PassReplay | None,
        seen: Spread | None,
    ) -> Sequence[torch.Tensor | None]:
        program, captured = self._run_by_node(graph, request, asked)
        self._keep(key, graph, request, program, before, seen)
        return captured

    def _keep(
        self,
        key: Any,
        graph: BackwardGraph,
        request: PassRequest,
        program: PassProgram,
        before: PassReplay | None,
        seen: Spread | None,
    ) -> None:
        """What was recorded, for passes of this key, and for passes of other sizes."""
        name = f"backward pass {self.programs.added}"
        reason = self._miss(key) if before is None else f"{before.name} is left too often"
        attempt = 0 if before is None else before.attempt + 1
        if seen is not None:
            family = self._families.get(seen.skeleton)
            if family is None:
                family = Family(name, self._compiler, graph.kept)
                self._families.add(seen.skeleton, family)
            family.learn(graph.keys, seen, program)
            if family.reason:
                reason = f"{reason}; sizes do not vary: {family.reason}"
        self.log.add(EventKind.PASS, name, program, how=RECORDED, reason=reason)

        def compile_step(place: int, step: PassSegment) -> CompiledSegment:
            types = [program.types[one] for one in step.inputs]
            known = [one for one in types if one is not None]
            return self._compiler(program.graph(step), known, f"{name} graph {place}")

        made = PassReplay(program, graph.keys, request, name, compile_step, attempt)
        made.kept = graph.kept
        self.programs.add(key, made)

    def _confirm(
        self,
        key: Any,
        graph: BackwardGraph,
        request: PassRequest,
        asked: _Asked,
        seen: Spread,
        family: Family,
        made: Instance,
    ) -> Sequence[torch.Tensor | None]:
        """The first pass that a program for sizes that vary is for."""
        program, captured = self._run_by_node(graph, request, asked)
        if family.confirm(made, program):
            self.log.count(EventKind.PASS, made.replay.name, how=CONFIRMED)
            self.programs.add(key, made.replay)
        else:
            self._keep(key, graph, request, program, None, seen)
        return captured

    def _replay(
        self, known: PassReplay, asked: _Asked, nodes: Sequence[Any], matched: Matched | None = None
    ) -> Sequence[torch.Tensor | None]:
        with self._running(asked, known.request, nodes, known.keys) as now:
            found = known.run(nodes, asked.gradients, asked.keep_graph, now, matched)
            if not isinstance(found, Departure):
                self.log.count(EventKind.PASS, known.name, how=REPLAYED)
                return found
            self.log.count(EventKind.PASS, known.name, how=DEPARTED, reason=found.reason)
            graph = BackwardGraph(asked.begins, self._inline)
            execution = Execution(graph, known.request, asked.keep_graph, Unrecorded(), now)
            for position, register in enumerate(known.program.captured):
                if register is not None:
                    execution.captured[position] = found.values[register]
            results = [None if one is None else Traced(one, None) for one in found.results]
            execution.go_on(found.call, results, known.program.delivered, found.values)
        return execution.captured

    @contextlib.contextmanager
    def _running(
        self,
        asked: _Asked,
        request: PassRequest,
        nodes: Sequence[Any],
        keys: Sequence[NodeKey],
    ) -> Iterator[torch_abi.RunningPass]:
        """A pass runs; when all of it has, so do the callbacks that were queued."""

        def will_run(node: Any) -> bool:
            captures, needed = plan(keys, request)
            ran = (number for number, one in enumerate(nodes) if one is node)
            return any(needed is None or one in needed or one in captures for one in ran)

        now = torch_abi.RunningPass(next(_numbers), asked.keep_graph, will_run)
        with torch.no_grad(), torch_abi.running(now):
            yield now
            for callback in now.callbacks:  # which may queue more of them
                callback()

    def _miss(self, key: Any) -> str:
        """Why no program fitted, compared with the last that was made."""
        programs = self.programs.items()
        return difference(programs[-1][0], key) if programs else "the first pass"


def difference(known: Any, key: Any) -> str:
    """The first thing in which two keys differ, in words."""
    names = ("the thread's modes", "types of the gradients", "inputs", "accumulation", "inputs")
    pairs = zip(names, (*known[0], known[1]), (*key[0], key[1]), strict=True)
    for name, one, other in pairs:
        if one != other:
            return f"{name}: {other}, not {one}"
    for number, (one, other) in enumerate(zip(known[2], key[2], strict=False)):
        if one != other:
            return f"node {number}: {other} {other.state}, not {one} {one.state}"
    return f"{len(key[2])} nodes, not {len(known[2])}"


def _obstacle(
    roots: tuple[Any, ...],
    gradients: tuple[Any, ...],
    create_graph: bool,
    inputs: tuple[Any, ...],
    accumulate: bool,
) -> str | None:
    """Why a pass is left to torch's engine."""
    if torch_abi.node_layout() is None:
        return "nodes of this build of torch cannot be read"
    obstacles = {
        "a pass inside of one of torch's engine": torch_abi.is_inside_real_engine(),
        f"more than {DEPTH} passes inside of each other": torch_abi.running_passes() >= DEPTH,
        "create_graph=True": create_graph,
        "anomaly mode": torch.is_anomaly_enabled(),
        "inference mode": torch.is_inference_mode_enabled(),
        "a root without a gradient": not roots or not all(map(_differentiable, roots)),
        "a given gradient that is no plain tensor": not all(map(_is_given, gradients)),
        "an input that needs no gradient": not all(map(_differentiable, inputs)),
        "backward(inputs=…) of a tensor that is no leaf": accumulate
        and any(isinstance(one, torch.Tensor) and not one.is_leaf for one in inputs),
    }
    found = next((text for text, present in obstacles.items() if present), None)
    return torch_abi.ambient_obstacle() if found is None else found


def _is_given(one: Any) -> bool:
    return type(one) is torch.Tensor and torch_abi.is_plain_tensor(one)


def _differentiable(one: Any) -> bool:
    return not isinstance(one, torch.Tensor) or one.requires_grad
