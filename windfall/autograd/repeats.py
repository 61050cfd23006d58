"""Equal blocks of a captured graph, and the short graph in which each stands four times.

Enters: a captured graph and the types of its inputs. Leaves: a `Short`: the graph with all blocks
of each run taken out but the first three and the last, and where its nodes come from. What the
short graph is differentiated to is made long again by `unroll.py`.

    embedding, layer * 12, head      =>      embedding, layer * 4, head

Invariant: blocks of a run are equal node by node, constants included. What a node of a block reads
is of its own block, of the block before it (for the first: of what comes before the run), an input
that its block alone reads (a weight), or the same for all blocks. Nothing else reads from blocks;
what comes after the run reads from the last one. So a block is a function of what the block before
it leaves and of its own inputs, and four of them tell what any number would do.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
import torch.fx

from windfall.dataclass import dataclass
from windfall.ir.node import copy_into
from windfall.ir.periods import periods

Node = torch.fx.Node

KEPT = 4  # blocks of a run in the short graph: at both ends one, and two to be compared
GRAM = 4  # nodes in a row that must do the same to vote for a distance
WORTHWHILE = 16  # nodes that must be left out


@dataclass(frozen=True, slots=True)
class Run:
    """Equal blocks, one behind the other: positions among the nodes that are no inputs. `own` are
    for each block, in the same order, the inputs (by their numbers) that it alone reads."""

    start: int
    period: int
    count: int
    own: tuple[tuple[int, ...], ...] = ()

    @property
    def end(self) -> int:
        """Where what comes after the run begins."""
        return self.start + self.period * self.count

    @property
    def left_out(self) -> int:
        """How many blocks the short graph does without."""
        return self.count - KEPT

    def block(self, position: int) -> int:
        """The number of the block at a position, from 1."""
        return (position - self.start) // self.period + 1

    def kept_as(self, block: int) -> int | None:
        """The number that a block has in the short graph; None: it is left out."""
        return block if block < KEPT else KEPT if block == self.count else None


class Label(NamedTuple):
    """Where a node of a short graph belongs: which block (from 1) of which run."""

    run: int
    block: int


@dataclass(frozen=True, slots=True)
class Short:
    """A captured graph, shortened. `body` are the nodes of the whole one that are no inputs,
    `positions` says which of them a node of the short one is a copy of. `kept` numbers the inputs
    that are left. `entries`: for each block but the first of each run, by the node that it begins
    with, what it reads of what came before it: in the same order for each block."""

    graph: torch.fx.Graph
    whole: torch.fx.Graph
    runs: tuple[Run, ...]
    body: Sequence[Node]
    positions: Mapping[Node, int]
    labels: Mapping[Node, Label]
    kept: tuple[int, ...]
    entries: Mapping[Node, tuple[Label, tuple[Node, ...]]]
    input_names: Sequence[str]  # of the whole graph


def shorten(graph: torch.fx.Graph, inputs: Sequence[Any]) -> Short | None:
    """The short graph; None where no block is repeated often enough. `inputs` are told apart by
    equality: their types."""
    body = [node for node in graph.nodes if node.op not in ("placeholder", "output")]
    if len(body) < KEPT + WORTHWHILE:
        return None
    numbers: dict[Hashable, int] = {}
    tokens = [numbers.setdefault((node.op, node.target), len(numbers)) for node in body]
    guesses = periods(tokens, GRAM)
    if not guesses:
        return None
    finder = _Finder(graph, body, tokens, inputs)
    runs = finder.runs(guesses)
    return finder.short(runs) if runs else None


def same_value(one: Any, other: Any, pairs: list[tuple[Node, Node]]) -> bool:
    """Whether two arguments are equal, but for the nodes in them, which are added to `pairs`."""
    kind = one.__class__
    if kind is not other.__class__:
        return False
    if kind is Node:
        pairs.append((one, other))
        return True
    if one is other and kind in _WITHOUT_NODES:
        return True
    if issubclass(kind, list | tuple):
        if len(one) != len(other):
            return False
        for first, second in zip(one, other, strict=True):
            if not same_value(first, second, pairs):
                return False
        return True
    if issubclass(kind, dict):
        names = list(one)
        return names == list(other) and same_value(
            [one[name] for name in names], [other[name] for name in names], pairs
        )
    if kind is slice:
        first, second = ((each.start, each.stop, each.step) for each in (one, other))
        return same_value(first, second, pairs)
    # -0.0 is equal to 0.0, and prints otherwise; what prints its address is itself alone.
    return one is other or repr(one) == repr(other)


_WITHOUT_NODES = frozenset((int, bool, float, str, type(None), torch.dtype, torch.device))


class _Finder:
    """Looks for runs in one graph."""

    def __init__(
        self,
        graph: torch.fx.Graph,
        body: list[Node],
        tokens: Sequence[int],
        inputs: Sequence[Any],
    ) -> None:
        self._graph = graph
        self._body = body
        self._tokens = tokens
        self._positions = {node: position for position, node in enumerate(body)}
        placeholders = [node for node in graph.nodes if node.op == "placeholder"]
        self._placeholders = {node: index for index, node in enumerate(placeholders)}
        self._inputs = inputs

    def runs(self, guesses: Sequence[int]) -> list[Run]:
        """Runs, one after the other; where two would overlap, that of the likelier period."""
        found: list[Run] = []
        for period in guesses:
            for start, end in self._stretches(period):
                if all(end <= run.start or run.end <= start for run in found):
                    found.extend(self._runs(period, start, end))
        return sorted(found, key=lambda run: run.start)

    def _stretches(self, period: int) -> Iterator[tuple[int, int]]:
        """Where nodes call what is called a period later, for long enough: from the first of them
        to behind the last such node of the period after."""
        start = 0
        limit = len(self._tokens) - period
        for position in range(limit + 1):
            if position < limit and self._tokens[position] == self._tokens[position + period]:
                continue
            if position - start >= period * (KEPT - 1) + WORTHWHILE:
                yield start, position + period
            start = position + 1

    def _runs(self, period: int, start: int, end: int) -> Iterator[Run]:
        """Runs in a stretch: nodes that are what the nodes a period later are."""
        partners: dict[Node, Node] = {}
        for position in range(start, end - period + 1):
            inside = position < end - period
            if inside and self._equal(position, period, start, partners):
                continue
            count = self._independent(Run(start, period, (position - start) // period + 1))
            if (count - KEPT) * period >= WORTHWHILE:
                own = self._own(Run(start, period, count), partners)
                if own is not None:
                    yield Run(start, period, count, own)
            start, partners = position + 1, {}

    def _equal(self, position: int, period: int, start: int, partners: dict[Node, Node]) -> bool:
        """Whether a node and the one a period later do the same, if a run starts at `start`."""
        one, other = self._body[position], self._body[position + period]
        pairs: list[tuple[Node, Node]] = []
        if not same_value(one.args, other.args, pairs):
            return False
        if (one.kwargs or other.kwargs) and not same_value(one.kwargs, other.kwargs, pairs):
            return False
        return all(self._alike(*pair, start, position, period, partners) for pair in pairs)

    def _alike(
        self,
        read: Node,
        later: Node,
        start: int,
        position: int,
        period: int,
        partners: dict[Node, Node],
    ) -> bool:
        """Whether what a node reads is to it what `later` is to the node a period later."""
        before, after = self._positions.get(read, -1), self._positions.get(later, -1)
        if read is later:
            return before < start  # the same for all blocks
        if after >= start:
            first = (position - start) // period * period + start
            reaches = after >= first  # it is of the node's own block, or of the one before
            comes_in = before < start and after < start + period
            return reaches and (after - before == period or comes_in)
        if read not in self._placeholders or later not in self._placeholders:
            return False
        same = partners.setdefault(read, later) is later
        return same and self._type(read) == self._type(later)

    def _type(self, node: Node) -> Any:
        return self._inputs[self._placeholders[node]]

    def _independent(self, run: Run) -> int:
        """How many blocks there are before something reads from a block that is neither in it nor
        in the next one."""
        places, last = self._positions, len(self._body)  # the output comes last
        for block in range(1, run.count):
            beyond = run.start + run.period * (block + 1)
            for node in self._body[beyond - 2 * run.period : beyond - run.period]:
                for user in node.users:
                    if places.get(user, last) >= beyond:
                        return block
        return run.count

    def _own(self, run: Run, partners: Mapping[Node, Node]) -> tuple[tuple[int, ...], ...] | None:
        """The inputs of each block; None where one of them is read by others as well."""
        first = self._body[run.start : run.start + run.period]
        own = dict.fromkeys(read for node in first for read in node.all_input_nodes)
        blocks = [[read for read in own if read in partners]]
        while len(blocks) < run.count:
            blocks.append([partners[read] for read in blocks[-1]])
        for number, block in enumerate(blocks):
            low = run.start + run.period * number
            places = [self._positions.get(user, -1) for read in block for user in read.users]
            if any(not low <= place < low + run.period for place in places):
                return None
        return tuple(tuple(self._placeholders[read] for read in block) for block in blocks)

    def short(self, runs: Sequence[Run]) -> Short:
        """The graph without the blocks in between."""
        graph = torch.fx.Graph()
        graph.owning_module = self._graph.owning_module
        made: dict[Node, Node] = {}
        labels: dict[Node, Label] = {}
        owned = {
            index: Label(number, block)
            for number, run in enumerate(runs)
            for block, own in enumerate(run.own, 1)
            for index in own
        }
        kept = []
        for node, index in self._placeholders.items():
            label = _kept_as(runs, owned.get(index))
            if label is not None or index not in owned:
                made[node] = copy_into(graph, node, made.__getitem__)
                kept.append(index)
                if label is not None:
                    labels[made[node]] = label
        positions: dict[Node, int] = {}
        entries: dict[Node, tuple[Label, tuple[Node, ...]]] = {}
        where = self._where(runs)
        for position, node in enumerate(self._body):
            whole = where[position]
            label = _kept_as(runs, whole)
            if whole is not None and label is None:
                # The last block is to read from the third what it reads from the one before it.
                made[node] = made[self._body[position - runs[whole.run].period]]
                continue
            copy = made[node] = copy_into(graph, node, made.__getitem__)
            positions[copy] = position
            if label is not None:
                labels[copy] = label
                run = runs[label.run]
                if label.block > 1 and (position - run.start) % run.period == 0:
                    reads = self._reads_of_others(position, run, owned)
                    entries[copy] = (label, tuple(made[read] for read in reads))
        copy_into(graph, next(iter(reversed(self._graph.nodes))), made.__getitem__)
        return Short(
            *(graph, self._graph, tuple(runs), self._body, positions, labels, tuple(kept), entries),
            [node.name for node in self._placeholders],
        )

    def _where(self, runs: Sequence[Run]) -> list[Label | None]:
        """For each position the block, as it is numbered in the whole graph."""
        found: list[Label | None] = [None] * len(self._body)
        for number, run in enumerate(runs):
            for block in range(run.count):
                low = run.start + block * run.period
                found[low : low + run.period] = [Label(number, block + 1)] * run.period
        return found

    def _reads_of_others(self, first: int, run: Run, owned: Mapping[int, Label]) -> list[Node]:
        """What the block that begins at a position reads, but for its own inputs."""
        block = self._body[first : first + run.period]
        inside = set(block)
        reads = dict.fromkeys(read for node in block for read in node.all_input_nodes)
        return [
            read
            for read in reads
            if read not in inside and self._placeholders.get(read, -1) not in owned
        ]


def _kept_as(runs: Sequence[Run], label: Label | None) -> Label | None:
    """The block as it is numbered in the short graph; None if it is not there."""
    block = None if label is None else runs[label.run].kept_as(label.block)
    return None if label is None or block is None else Label(label.run, block)
