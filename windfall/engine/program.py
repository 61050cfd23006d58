"""A recorded pass as a program: graphs of operations between live calls.

Enters: a `PassRecording`. Leaves: a `PassProgram`, which prints and is run by `replay.py`.
Invariant: operations between two live calls are one graph; a register is kept until its last use,
and each that a pass may have to go on with (gradients that wait before a node) is kept at each live
call, since what that answers may differ from what was recorded.

    graph 0 (%0, saved 1._saved_self) -> %3
    leaf 2 += %3
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch.fx

from windfall.dataclass import dataclass
from windfall.engine.backward_graph import Edge, NodeKey
from windfall.engine.pass_recording import PassRecording
from windfall.engine.steps import (
    LeafUpdate,
    Lifted,
    LiveCall,
    RecordedOp,
    Register,
    Registers,
    SavedValue,
    VaryingSize,
)
from windfall.ir.dtype import TensorType
from windfall.ir.graph_text import print_graph
from windfall.ir.node import NodeInfo, ValueType, add_node, set_info
from windfall.ir.symint import Expression, Size, expression_of


@dataclass(frozen=True, slots=True)
class PassSegment:
    """Operations without a live call between them. `saved` are those of the inputs that nodes have
    saved; leaves are updated when all is computed."""

    operations: tuple[RecordedOp, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    saved: tuple[tuple[int, SavedValue], ...]
    leaves: tuple[LeafUpdate, ...]


@dataclass(frozen=True, slots=True)
class PassProgram:
    """What a pass does. `dead` has for each step the registers that nobody needs behind it."""

    types: tuple[TensorType | None, ...]
    roots: tuple[int, ...]
    steps: tuple[PassSegment | LiveCall, ...]
    dead: tuple[tuple[int, ...], ...]
    delivered: tuple[tuple[int, Registers], ...]
    captured: tuple[int | None, ...]
    opaque: tuple[str, ...]

    @property
    def segments(self) -> tuple[PassSegment, ...]:
        """Those with operations."""
        return tuple(one for one in self.steps if isinstance(one, PassSegment) and one.operations)

    @property
    def calls(self) -> tuple[LiveCall, ...]:
        """What is called live."""
        return tuple(one for one in self.steps if isinstance(one, LiveCall))

    def graph(self, segment: PassSegment, symbols: Sequence[Expression] = ()) -> torch.fx.Graph:
        """The operations of a segment as a graph; of sizes and numbers that vary (`vary.py`) the
        first inputs are `symbols` and what is lifted."""
        return _graph(segment, self.types, symbols)

    def __str__(self) -> str:
        lines = [f"pass of {', '.join(f'%{one}' for one in self.roots)}"]
        for step in self.steps:
            if isinstance(step, LiveCall):
                lines.append(str(step))
                continue
            if step.operations:
                lines.append("graph: " + ", ".join(f"%{one}" for one in step.outputs))
                lines.append(print_graph(self.graph(step)))
            lines.extend(map(str, step.leaves))
        answers = ("none" if one is None else f"%{one}" for one in self.captured)
        return "\n".join([*lines, f"answers {', '.join(answers) or 'nothing'}"])


def program_of(
    recording: PassRecording,
    keys: Sequence[NodeKey],
    roots: Sequence[Edge],
    wanted: int,
    sent: int | None = None,
) -> PassProgram:
    """The program of a recording; `wanted` gradients are answered. `sent`: gradients of leaves go
    to other processes, so that no more than so many bytes wait for operations behind them."""
    captured = tuple(recording.captured.get(one) for one in range(wanted))
    steps = _steps(recording, sent)
    pending = _pending(recording, keys, roots)
    last: dict[int, int] = {}
    for place, step in enumerate(steps):
        waiting = pending.get(step.position, ()) if isinstance(step, LiveCall) else ()
        for one in (*_used(step), *waiting):
            last[one] = place
    last.update((one, len(steps)) for one in captured if one is not None)
    made: dict[int, int] = {}
    done: list[PassSegment | LiveCall] = []
    for place, step in enumerate(steps):
        if isinstance(step, PassSegment):
            step = _bounded(step, place, last, made, recording.saved)
        for one in _made(step):
            made.setdefault(one, place)
        done.append(step)
    dead: list[list[int]] = [[] for _ in done]
    for one, place in last.items():
        if place < len(done):
            dead[place].append(one)
    return PassProgram(
        tuple(recording.types),
        tuple(recording.roots),
        tuple(done),
        tuple(map(tuple, dead)),
        tuple(recording.delivered),
        captured,
        tuple(recording.opaque),
    )


def _steps(recording: PassRecording, sent: int | None) -> list[PassSegment | LiveCall]:
    """Segments, whose bounds are not yet known, and live calls."""
    steps: list[PassSegment | LiveCall] = []
    for operations, leaves, call in _divided(recording, sent):
        if operations or leaves:
            steps.append(PassSegment(tuple(operations), (), (), (), tuple(leaves)))
        if call is not None:
            steps.append(call)
    return steps


def _divided(
    recording: PassRecording, sent: int | None
) -> Iterable[tuple[list[RecordedOp], list[LeafUpdate], LiveCall | None]]:
    """Operations and leaves up to each live call, and that. Updates of leaves with hooks are live
    too: hooks may look at other leaves."""
    operations: list[RecordedOp] = []
    leaves: list[LeafUpdate] = []
    for step in recording.steps:
        if isinstance(step, RecordedOp):
            full = sent is not None and _bytes(recording, leaves) >= sent
            if leaves and (leaves[-1].hooked or full):
                yield operations, leaves, None
                operations, leaves = [], []
            operations.append(step)
        elif isinstance(step, LeafUpdate):
            leaves.append(step)
        else:
            yield operations, leaves, step
            operations, leaves = [], []
    yield operations, leaves, None


def _bytes(recording: PassRecording, leaves: Sequence[LeafUpdate]) -> int:
    types = [recording.types[one.value] for one in leaves]
    counts = [0 if one is None else one.elements * one.dtype.itemsize for one in types]
    return sum(one for one in counts if isinstance(one, int))


def _pending(
    recording: PassRecording, keys: Sequence[NodeKey], roots: Sequence[Edge]
) -> dict[int, tuple[int, ...]]:
    """By position of a live call: the registers that wait before nodes then."""
    positions = {one.position for one in recording.steps if isinstance(one, LiveCall)}
    found: dict[int, tuple[int, ...]] = {}
    buffers: dict[Edge, int] = {}
    for position, (node, ends) in enumerate(recording.delivered):
        if position in positions:
            found[position] = tuple(buffers.values())
        if node >= 0:
            for slot in range(max(1, len(keys[node].arriving))):
                buffers.pop((node, slot), None)
        for edge, end in zip(keys[node].edges if node >= 0 else roots, ends, strict=False):
            if edge is not None and end is not None:
                buffers[edge] = end
    return found


def _used(step: PassSegment | LiveCall) -> list[int]:
    if isinstance(step, LiveCall):
        return [one for one in (*step.given, *step.made) if one is not None]
    inside = [one for operation in step.operations for one in _arguments(operation)]
    return [*inside, *(one.value for one in step.leaves)]


def _arguments(operation: RecordedOp) -> Iterable[int]:
    return _registers((operation.args, tuple(value for _, value in operation.kwargs)))


def _registers(value: Any) -> Iterable[int]:
    if isinstance(value, Register):
        yield value.number
    elif isinstance(value, tuple | list):
        for one in value:
            yield from _registers(one)


def _made(step: PassSegment | LiveCall) -> Iterable[int]:
    if isinstance(step, LiveCall):
        return [one for one in step.results if one is not None]
    return [one for operation in step.operations for one in _results(operation)]


def _results(operation: RecordedOp) -> list[int]:
    found = operation.results
    return [found] if isinstance(found, int) else [one for one in found if one is not None]


def _bounded(
    step: PassSegment,
    place: int,
    last: dict[int, int],
    made: dict[int, int],
    saved: dict[int, SavedValue],
) -> PassSegment:
    """A segment with its inputs and outputs."""
    inside: dict[int, None] = {}
    inputs: dict[int, None] = {}
    for operation in step.operations:
        for one in _arguments(operation):
            if one not in inside:
                inputs[one] = None
        inside.update(dict.fromkeys(one for one in _results(operation) if one not in inputs))
    leaves = {one.value for one in step.leaves}
    outputs = tuple(one for one in inside if last.get(one, -1) > place or one in leaves)
    kept = tuple((one, saved[one]) for one in inputs if one in saved)
    return PassSegment(step.operations, tuple(inputs), outputs, kept, step.leaves)


def lifted_in(segment: PassSegment) -> tuple[Lifted, ...]:
    """The numbers of a segment that are inputs of its graph."""
    found = (_leaves((one.args, [value for _, value in one.kwargs])) for one in segment.operations)
    return tuple(dict.fromkeys(one for all in found for one in all if isinstance(one, Lifted)))


def _leaves(value: Any) -> Iterable[Any]:
    if isinstance(value, tuple | list):
        for one in value:
            yield from _leaves(one)
    else:
        yield value


def _graph(
    segment: PassSegment, types: Sequence[TensorType | None], symbols: Sequence[Expression]
) -> torch.fx.Graph:
    made = _Graph(segment, types, symbols)
    for operation in segment.operations:
        made.add(operation)
    output = made.graph.output(tuple(made.values[one] for one in segment.outputs))
    set_info(output, NodeInfo(None))
    return made.graph


class _Graph:
    """A graph with its inputs, to which operations are added."""

    def __init__(
        self,
        segment: PassSegment,
        types: Sequence[TensorType | None],
        symbols: Sequence[Expression],
    ) -> None:
        self.graph, self._types = torch.fx.Graph(), types
        self._sizes = {str(one): self._input(str(one), one) for one in symbols}
        self._numbers: dict[Lifted, torch.fx.Node] = {}
        for number in lifted_in(segment):
            assert number.dtype is not None
            name, kind = f"number{len(self._numbers)}", TensorType.contiguous(number.dtype, ())
            self._numbers[number] = self._input(name, kind)
        self.values = {one: self._input(f"v{one}", types[one]) for one in segment.inputs}

    def _input(self, name: str, kind: ValueType) -> torch.fx.Node:
        return set_info(add_node(self.graph, "placeholder", name, (), {}), NodeInfo(kind))

    def _argument(self, value: Any) -> Any:
        if isinstance(value, Register):
            return self.values[value.number]
        if isinstance(value, VaryingSize):
            return _size_node(self.graph, self._sizes, value.size)
        if isinstance(value, Lifted):
            return self._numbers[value]
        if isinstance(value, tuple | list):
            return type(value)(self._argument(one) for one in value)
        return value

    def add(self, operation: RecordedOp) -> None:
        """An operation, and the items of what it answers."""
        kwargs = {name: self._argument(value) for name, value in operation.kwargs}
        args, types, values = self._argument(operation.args), self._types, self.values
        node = add_node(self.graph, "call_function", operation.function, args, kwargs)
        results = operation.results
        if isinstance(results, int):
            set_info(node, NodeInfo(types[results]))
            values.setdefault(results, node)  # an operation in place answers its argument
            return
        set_info(node, NodeInfo(tuple(None if one is None else types[one] for one in results)))
        for position, result in enumerate(results):
            if result is not None and result not in values:
                item = add_node(self.graph, "call_function", operator.getitem, (node, position), {})
                values[result] = set_info(item, NodeInfo(types[result]))


def _size_node(
    graph: torch.fx.Graph, sizes: Mapping[str, torch.fx.Node], size: Size
) -> torch.fx.Node | int:
    """A sum of products of symbols as nodes."""
    if isinstance(size, int):
        return size

    def made(operation: Any, one: Any, other: Any, value: Size) -> torch.fx.Node:
        node = add_node(graph, "call_function", operation, (one, other), {})
        return set_info(node, NodeInfo(value))

    total: torch.fx.Node | None = None
    done: Size = 0
    for monomial, coefficient in size.terms:
        node = sizes[monomial.atoms[0].key]
        value: Size = expression_of(monomial.atoms[0])
        for atom in monomial.atoms[1:]:
            value = value * expression_of(atom)
            node = made(operator.mul, node, sizes[atom.key], value)
        if coefficient != 1:
            value = value * coefficient
            node = made(operator.mul, node, coefficient, value)
        done = done + value
        total = node if total is None else made(operator.add, total, node, done)
    assert total is not None
    return made(operator.add, total, size.constant, size) if size.constant else total
