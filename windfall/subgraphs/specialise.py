"""How a subgraph is compiled for values that are known now: which numbers vary in it.

Enters: a subgraph, and the numbers and tensors of one call. Leaves: its graph with types, and the
guards that say for which numbers and tensors it is right. Invariant: 0, 1 and numbers beyond 32
bits are constants; what is a symbol is one for every value in its range.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
import torch.fx

from windfall import torch_abi
from windfall.ir.dtype import TensorType
from windfall.ir.guard import SYMBOLS, BindsSymbol, Check, Equals, Guard, Holds, TensorIs
from windfall.ir.node import NodeInfo, copy_into, info, set_info
from windfall.ir.relation import Relation
from windfall.ir.source import Slot
from windfall.ir.symint import (
    Atom,
    Expression,
    Size,
    evaluate,
    expression_of,
    size_symbol,
    substitute,
    symbol_atom,
    symbols_of,
)
from windfall.subgraphs.cuts import Subgraph

# An integer beyond these is a constant: products of two would not fit 64 bits.
_SMALLEST, _LARGEST = -(1 << 31), (1 << 31) - 1


class Specialisation:
    """How a subgraph is compiled for values that are known now."""

    def __init__(
        self,
        subgraph: Subgraph,
        numbers: Sequence[int],
        tensors: Sequence[torch.Tensor],
        fixed: set[str],
    ) -> None:
        self._subgraph = subgraph
        self.numbers: list[Expression] = []
        self.places: list[int | tuple[int, int]] = []
        self._now: dict[str, int] = {}
        self._places: dict[Atom, Size] = {}  # what stands for each symbol of the whole graph
        constant: list[tuple[int, int]] = []
        for index, (node, value) in enumerate(zip(subgraph.numbers, numbers, strict=True)):
            atom = symbol_atom(_size(node))
            made = None if atom.key in fixed else _varying(atom, value)
            self._places[atom] = value if made is None else made
            if made is None:
                constant.append((index, value))
            else:
                self._add(made, index, value)
        self.fixed = tuple(constant)
        self.types = [
            self._type(index, _type(node), tensor, fixed)
            for index, (node, tensor) in enumerate(zip(subgraph.tensors, tensors, strict=True))
        ]

    def _add(self, number: Expression, place: int | tuple[int, int], value: int) -> None:
        self.numbers.append(number)
        self.places.append(place)
        self._now[str(number)] = value

    def _type(
        self, index: int, captured: TensorType, tensor: torch.Tensor, fixed: set[str]
    ) -> TensorType:
        """The type of an input: as captured, where that is what the tensor is."""
        real = TensorType.of(tensor)
        if len(captured.sizes) != len(real.sizes):
            return real
        sizes = []
        for dimension, (size, have) in enumerate(zip(captured.sizes, real.sizes, strict=True)):
            assert isinstance(have, int)
            sizes.append(self._size(size, have, (index, dimension), fixed))
        strides = [self._stride(*pair) for pair in zip(captured.strides, real.strides, strict=True)]
        return replace(real, sizes=tuple(sizes), strides=tuple(strides))

    def _size(self, size: Size, have: int, place: tuple[int, int], fixed: set[str]) -> Size:
        """A size as captured; of what stands nowhere else, the tensor itself tells."""
        for atom in sorted(symbols_of(size), key=lambda one: one.key):
            if atom not in self._places and size is expression_of(atom):
                made = None if atom.key in fixed else _varying(atom, have)
                self._places[atom] = have if made is None else made
                if made is not None:
                    self._add(made, place, have)
        return self._stride(size, have)

    def _stride(self, size: Size, have: Size) -> Size:
        if isinstance(size, int) or not symbols_of(size) <= self._places.keys():
            return have
        found = substitute(size, self._places)
        return found if evaluate(found, self._now) == have else have

    def guards(
        self, tensors: Sequence[torch.Tensor], relations: Sequence[Relation]
    ) -> tuple[Guard, ...]:
        """For which numbers and tensors it is compiled."""
        checks: dict[int, Check] = {index: Equals(value) for index, value in self.fixed}
        for number, place in zip(self.numbers, self.places, strict=True):
            if isinstance(place, int):
                checks[place] = BindsSymbol(number)
        first = len(checks)
        for index, (seen, one) in enumerate(zip(self.types, tensors, strict=True)):
            checks[first + index] = TensorIs(seen, type(one), torch_abi.dispatch_keys(one))
        return (
            *(Guard(Slot(index, f"v{index}"), checks[index], "") for index in sorted(checks)),
            *(Guard(SYMBOLS, Holds(one), "") for one in relations),
        )

    def graph(self) -> torch.fx.Graph:
        """The subgraph as a graph of its own."""
        subgraph = self._subgraph
        known: dict[torch.fx.Node, Any] = {}
        graph = torch.fx.Graph(owning_module=subgraph.nodes[0].graph.owning_module)
        for number, place in zip(self.numbers, self.places, strict=True):
            made = set_info(graph.placeholder(str(number)), NodeInfo(number))
            if isinstance(place, int):
                known[subgraph.numbers[place]] = made
        for index, value in self.fixed:
            known[subgraph.numbers[index]] = value
        for node, type in zip(subgraph.tensors, self.types, strict=True):
            known[node] = set_info(graph.placeholder(node.name), NodeInfo(type))
        return filled(graph, subgraph, known)

    def given(self, relations: Sequence[Relation]) -> list[Relation]:
        """What is known of the numbers, as far as it is about these."""
        found = []
        for one in relations:
            if symbols_of(one.left) | symbols_of(one.right) <= self._places.keys():
                left, right = (substitute(each, self._places) for each in (one.left, one.right))
                if isinstance(left - right, Expression):
                    found.append(Relation(one.operation, left, right))
        return [one for one in found if one.holds(self._now)]


def _size(node: torch.fx.Node) -> Expression:
    found = info(node).type
    assert isinstance(found, Expression)
    return found


def _type(node: torch.fx.Node) -> TensorType:
    found = info(node).type
    assert isinstance(found, TensorType)
    return found


def _varying(atom: Atom, value: int) -> Expression | None:
    """The symbol of a number for values like this one; None: it is a constant. 0 and 1 decide what
    operators do."""
    if value in (0, 1) or not _SMALLEST <= value <= _LARGEST:
        return None
    if value < 0:
        return size_symbol(atom.key, value, _SMALLEST, -1)
    high = _LARGEST if atom.high is None else min(atom.high, _LARGEST)
    return size_symbol(atom.key, value, max(atom.low or 2, 2), high)


def filled(
    graph: torch.fx.Graph, subgraph: Subgraph, known: dict[torch.fx.Node, Any]
) -> torch.fx.Graph:
    """A graph with placeholders (in `known`), and the nodes of a subgraph in it."""

    def copy(node: torch.fx.Node) -> Any:
        if node not in known:
            known[node] = copy_into(graph, node, copy)
        return known[node]

    for node in subgraph.nodes:
        copy(node)
    results = tuple(known[node] for node in subgraph.results)
    set_info(graph.output(results), NodeInfo(tuple(info(one).type for one in subgraph.results)))
    return graph
