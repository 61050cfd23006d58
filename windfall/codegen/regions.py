"""Repeated blocks: found in a graph, lowered and scheduled once, called wherever they occur.

Enters: a graph of ATen overloads. Leaves: a `Division` of it into pieces one after the other, many
of which are the same work on other tensors (the layers of a transformer, forward and backward);
then a `Schedule` whose items call the parts. Invariant: what crosses from piece to piece is a
tensor in memory; two pieces share a part only if they are equal node by node, types included.

    embedding, layer, layer, layer, layer, head      pieces 0 1 1 1 1 2: three parts are built

Blocks are found by what nodes do, not by the modules they came from: in the backward graph there
are none. A period is a distance at which many nodes stand that do the same.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
import torch.fx

from windfall.codegen.lower import needed
from windfall.codegen.plan import bytes_of, plan
from windfall.dataclass import dataclass
from windfall.ir.dtype import TensorType
from windfall.ir.graph_key import NoKey, value_key
from windfall.ir.loop import Buffer, BufferView, Call, Part, PartCall, Schedule
from windfall.ir.node import constant, extracted, info, tensor_type
from windfall.ir.periods import periods
from windfall.ir.symint import Expression, hint_of
from windfall.ops.registry import lookup

SMALLEST_GRAPH = 120  # nodes below which there is nothing to win
SMALLEST_BLOCK = 12  # nodes of a block
FEWEST_BLOCKS = 3
GRAM = 6  # nodes in a row that must do the same to vote for a distance
LARGE_WRITES = 1 << 20  # bytes of inputs, which are not copied for the sake of parts

Node = torch.fx.Node


@dataclass(frozen=True, slots=True)
class Piece:
    """A run of nodes: which part it is, what it reads from outside and what others read of it."""

    part: int
    reads: tuple[Node, ...]
    writes: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Division:
    """A graph as pieces in order; `graphs` are the parts, and `written` says of each which of its
    results are new contents of which of its inputs, as of `lower`."""

    graph: torch.fx.Graph
    pieces: tuple[Piece, ...]
    graphs: tuple[torch.fx.Graph, ...]
    written: tuple[tuple[int | None, ...], ...]


# ------------------------------------------------------------------------------------- dividing


def divide(graph: torch.fx.Graph, written: Sequence[int | None] = ()) -> Division | None:
    """The pieces of a graph; None where no block repeats, or where much that is `written` (as of
    `lower`) could not be written in place by parts."""
    wanted = needed(graph)
    nodes = list(_in_order(graph.nodes, wanted))
    if len(nodes) < SMALLEST_GRAPH:
        return None
    try:
        for order in (_as_written, _by_result):
            nodes = list(_in_order(order(graph, wanted), wanted))
            found = _repetition(nodes, _tokens(nodes))
            if found is not None:
                return _divided(graph, nodes, found, wanted, written)
    except NoKey:
        return None
    return None


def _as_written(graph: torch.fx.Graph, wanted: set[Node]) -> Iterable[Node]:
    return graph.nodes


def _by_result(graph: torch.fx.Graph, wanted: set[Node]) -> Iterable[Node]:
    """What each result needs, one result after the other, those that come last first. So a loop
    over tensors inside of each of many steps (`torch._foreach_*`) becomes one over tensors with
    all the steps inside: blocks. Nothing, where the order of nodes is seen."""
    if any(lookup(node.target).random for node in wanted if node.op == "call_function"):
        return ()
    places = {node: place for place, node in enumerate(graph.nodes)}
    (output,) = (node for node in graph.nodes if node.op == "output")
    roots = sorted(output.all_input_nodes, key=places.__getitem__, reverse=True)
    rest = (node for node in graph.nodes if node in wanted)  # refusals that nobody reads
    order: dict[Node, None] = {}
    for root in (*roots, *rest):
        waiting = [root]
        while waiting:
            node = waiting[-1]
            new = () if node in order else [one for one in node.all_input_nodes if one not in order]
            if new:
                waiting.extend(reversed(new))
            else:
                order[waiting.pop()] = None
    return order


def _in_order(nodes: Iterable[Node], wanted: set[Node]) -> Iterator[Node]:
    """The nodes that do something; the items of a tuple directly behind it, so that no tuple
    crosses from piece to piece."""
    for node in nodes:
        if node.op != "call_function" or node not in wanted or node.target is operator.getitem:
            continue
        yield node
        waiting = [node]
        while waiting:
            for user in waiting.pop(0).users:
                if user.target is operator.getitem and user in wanted:
                    yield user
                    waiting.append(user)


def _tokens(nodes: Sequence[Node]) -> list[int]:
    """For each node a number that nodes share which do the same with the same types."""
    numbers: dict[Hashable, int] = {}
    return [numbers.setdefault(_token(node), len(numbers)) for node in nodes]


def _token(node: Node) -> Hashable:
    def outside(other: Node) -> Hashable:
        found = info(other).type
        return found.without_grad() if isinstance(found, TensorType) else found

    return (node.target, value_key(node.args, outside), value_key(node.kwargs, outside))


def _repetition(nodes: Sequence[Node], tokens: Sequence[int]) -> tuple[int, int, int] | None:
    """Where the first block starts, how long a block is, how many there are."""
    best: tuple[int, int, int] | None = None
    for period in periods(tokens, GRAM):
        if period < SMALLEST_BLOCK:
            continue
        start, length = _longest_run(tokens, period)
        if length // period < FEWEST_BLOCKS:
            continue
        if best is None or length > best[1] * 1.05:
            best = (start, length, period)
    if best is None:
        return None
    start, length, period = best
    shift = _rotation(nodes, start, length, period)
    if shift is None:
        return None
    return start + shift, period, (length - shift) // period


def _longest_run(tokens: Sequence[int], period: int) -> tuple[int, int]:
    """The longest stretch that repeats itself after `period` nodes: its start and its length."""
    best, start = (0, 0), 0
    for place in range(len(tokens) - period + 1):
        if place < len(tokens) - period and tokens[place] == tokens[place + period]:
            continue
        if place - start > 0:
            best = max(best, (place - start + period, -start))
        start = place + 1
    return -best[1], best[0]


def _rotation(nodes: Sequence[Node], start: int, length: int, period: int) -> int | None:
    """By how much the first block starts later, so that the least crosses from block to block.
    None: something that is no tensor would."""
    places = {node: place for place, node in enumerate(nodes)}
    most = length // period
    best: tuple[int, int, int] | None = None
    for shift in range(period):
        count = (length - shift) // period
        if count < max(most - 1, FEWEST_BLOCKS):
            break
        begin = start + shift
        crossing = {
            read
            for node in nodes[begin : begin + period]
            for read in node.all_input_nodes
            if places.get(read, begin) < begin
        }
        if all(isinstance(info(read).type, TensorType) for read in crossing):
            cost = (len(crossing), -count, shift)
            best = cost if best is None else min(best, cost)
    return None if best is None else best[2]


def _divided(
    graph: torch.fx.Graph,
    nodes: Sequence[Node],
    found: tuple[int, int, int],
    wanted: set[Node],
    written: Sequence[int | None],
) -> Division | None:
    start, period, count = found
    cuts = [0, *(start + period * index for index in range(count + 1)), len(nodes)]
    runs = [nodes[low:high] for low, high in itertools.pairwise(cuts) if low < high]
    inputs = _written_in_parts(graph, runs, written)
    if inputs is None:
        return None
    parts: dict[Hashable, int] = {}
    graphs: list[torch.fx.Graph] = []
    pieces: list[Piece] = []
    placed: list[tuple[int | None, ...]] = []
    for members in runs:
        key, reads, writes = _described(members, wanted)
        if not all(isinstance(info(node).type, TensorType) for node in (*reads, *writes)):
            return None
        own = tuple(
            reads.index(inputs[node]) if inputs.get(node) in reads else None for node in writes
        )
        part = parts.setdefault((key, own), len(parts))
        if part == len(graphs):
            graphs.append(extracted(members, reads, writes))
            placed.append(own)
        pieces.append(Piece(part, reads, writes))
    return Division(graph, tuple(pieces), tuple(graphs), tuple(placed))


def _written_in_parts(
    graph: torch.fx.Graph,
    runs: Sequence[Sequence[Node]],
    written: Sequence[int | None],
) -> dict[Node, Node] | None:
    """The results that are new contents of an input which the same piece may write in place: no
    later piece reads what it held, or may fail. None: there is more than that, and it is large."""
    given = [node for node in graph.nodes if node.op == "placeholder"]
    (output,) = graph.find_nodes(op="output")
    results: Any = output.args[0]
    places = {node: place for place, run in enumerate(runs) for node in run}
    fails = [place for node, place in places.items() if lookup(node.target).refuses]
    found: dict[Node, Node] = {}
    left = 0
    for node, number in zip(results, written, strict=False):
        if number is None or node is None:
            continue
        input, place = given[number], places.get(node, -1)
        readers = _read_in(input, places)
        if readers is not None and place in readers and max((*readers, *fails)) <= place:
            found[node] = input
        else:
            left += hint_of(bytes_of(tensor_type(input)))
    first = min((places[node] for node in found), default=len(runs))
    if any(place >= first for place in fails):
        left, found = LARGE_WRITES, {}
    return None if left >= LARGE_WRITES else found


def _read_in(input: Node, places: Mapping[Node, int]) -> set[int] | None:
    """The pieces that read an input, or a view of it; None: such a view goes from piece to piece,
    and nobody there knows whose memory it is."""
    found: set[int] = set()
    waiting = [(input, user) for user in input.users]
    while waiting:
        read, user = waiting.pop()
        place = places.get(user)
        if place is None:
            continue  # nobody needs it, or it is the result itself
        if read is not input and places[read] != place:
            return None
        found.add(place)
        if lookup(user.target).view:
            waiting += [(user, one) for one in user.users]
    return found


def _described(
    members: Sequence[Node], wanted: set[Node]
) -> tuple[Hashable, tuple[Node, ...], tuple[Node, ...]]:
    """What makes a piece the same work as another; what it reads; what others read of it."""
    inside = {node: place for place, node in enumerate(members)}
    reads: dict[Node, int] = {}

    def reference(node: Node) -> Hashable:
        place = inside.get(node)
        if place is not None:
            return place
        return ("outside", reads.setdefault(node, len(reads)))

    rows = [
        (node.target, value_key(node.args, reference), value_key(node.kwargs, reference))
        for node in members
    ]
    writes = tuple(
        node
        for node in members
        if any(
            user not in inside and (user in wanted or user.op == "output") for user in node.users
        )
    )
    types = tuple(_plain(node) for node in reads)
    return (tuple(rows), types, tuple(inside[node] for node in writes)), tuple(reads), writes


def _plain(node: Node) -> Hashable:
    found = info(node).type
    return found.without_grad() if isinstance(found, TensorType) else found


# -------------------------------------------------------------------------------------- joining


def join(
    division: Division,
    schedules: Sequence[Schedule],
    symbols: tuple[Expression, ...],
    numbers: Iterator[int] | None = None,
) -> Schedule | None:
    """The whole as calls of its parts; None where a part cannot be native code alone. `numbers`
    name the parts, of which there may be others in the same program."""
    if any(isinstance(one, Call) and one.entry == "python" for one in _items(schedules)):
        return None
    count = itertools.count() if numbers is None else numbers
    parts = [Part(f"part{next(count)}", each, plan(each)) for each in schedules]
    return _Join(division, parts, symbols).run()


def body(name: str, schedule: Schedule) -> Part | None:
    """A schedule as a body of an operation; None where it cannot be native code alone, or where a
    result does not stand in memory of its own."""
    if any(isinstance(one, Call) and one.entry == "python" for one in schedule.items):
        return None
    views = [one for one in schedule.results if one is not None]
    for view in views:
        held = schedule.buffers[view.buffer]
        whole = view.offset == 0 and bytes_of(view.type) == bytes_of(held.type)
        if held.place != "result" or not whole:
            return None
    if len({one.buffer for one in views}) < len(views):
        return None
    if any(one.place == "constant" for one in schedule.buffers.values()):
        return None
    return Part(name, schedule, plan(schedule))


def _items(schedules: Sequence[Schedule]) -> Iterator[Any]:
    return itertools.chain.from_iterable(each.items for each in schedules)


class _Join:
    def __init__(
        self, division: Division, parts: Sequence[Part], symbols: tuple[Expression, ...]
    ) -> None:
        self.division = division
        self.parts = parts
        self.symbols = symbols
        self.buffers: dict[str, Buffer] = {}
        self.views: dict[Node, BufferView] = {}

    def run(self) -> Schedule:
        """One call after the other."""
        graph = self.division.graph
        inputs = []
        for node in graph.nodes:
            if node.op == "placeholder":
                inputs.append(self._outside(node, "input"))
            elif node.op == "get_attr":
                self._outside(node, "constant")
        items = tuple(self._call(piece) for piece in self.division.pieces)
        output = next(node for node in graph.nodes if node.op == "output")
        values: Any = output.args[0]
        given = values if isinstance(values, list | tuple) else (values,)
        results = tuple(None if node is None else self._result(node) for node in given)
        scalars = self.parts[0].schedule.scalars
        return Schedule(self.buffers, tuple(inputs), items, results, scalars, self.symbols)

    def _outside(self, node: Node, place: Any) -> str:
        value = constant(node) if place == "constant" else None
        type = TensorType.of(value).without_grad() if value is not None else tensor_type(node)
        name = self._fresh(node.name)
        self.buffers[name] = Buffer(name, type.without_grad(), place, value)
        self.views[node] = BufferView(name, type.without_grad())
        return name

    def _fresh(self, name: str) -> str:
        while name in self.buffers:
            name += "_"
        return name

    def _call(self, piece: Piece) -> PartCall:
        part = self.parts[piece.part]
        schedule = part.schedule
        given = {
            name: self.views[node] for name, node in zip(schedule.inputs, piece.reads, strict=True)
        }
        for node, view in zip(piece.writes, schedule.results, strict=True):
            assert view is not None, "a piece answers tensors"
            if view.buffer not in given:
                name = self._fresh(node.name)
                type = schedule.buffers[view.buffer].type
                self.buffers[name] = Buffer(name, type, "temporary")
                given[view.buffer] = BufferView(name, type)
            base = given[view.buffer]
            self.views[node] = BufferView(base.buffer, view.type, base.offset + view.offset)
        return PartCall(part, tuple(given.items()), self._block(part))

    def _block(self, part: Part) -> str | None:
        if part.plan.arena_bytes == 0:
            return None
        name = self._fresh(part.name)
        type = TensorType.contiguous(torch.uint8, (part.plan.arena_bytes,))
        self.buffers[name] = Buffer(name, type, "temporary")
        return name

    def _result(self, node: Node) -> BufferView:
        view = self.views[node]
        buffer = self.buffers[view.buffer]
        if buffer.place == "temporary":
            self.buffers[view.buffer] = replace(buffer, place="result")
        return BufferView(view.buffer, tensor_type(node).without_grad(), view.offset)
