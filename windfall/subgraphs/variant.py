"""A subgraph compiled for some values of its numbers, as a Python function that checks and calls.

Enters: native code and the guards under which it is right. Leaves: `(numbers, tensors)` → the
results, or `MISS`. Invariant: where a tensor that a variant writes shares memory with another one,
it misses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch.fx

from windfall import runtime
from windfall.dataclass import dataclass
from windfall.ir.dtype import TensorType
from windfall.ir.guard import Guard
from windfall.ir.relation import Relation
from windfall.ir.symint import Expression
from windfall.subgraphs.cuts import Subgraph

Call = Callable[..., tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class NativeSubgraph:
    """A subgraph as native code: what it assumes of numbers, and which of its tensors it
    writes."""

    call: Call
    relations: tuple[Relation, ...]
    writes: tuple[int, ...] = ()


# (graph, types of its inputs, name, what is known of sizes) -> native code.
Compile = Callable[
    [torch.fx.Graph, Sequence[TensorType | Expression], str, Sequence[Relation]], NativeSubgraph
]


MISS: Any = object()  # what a variant answers that does not fit


@dataclass(frozen=True, slots=True)
class SubgraphVariant:
    """A subgraph for some values of its numbers. `numbers` are those that vary in it: of the
    subgraph, or sizes of its tensors (`places`: tensor, dimension); the others are fixed. `guards`
    say for which numbers and tensors, the slots of a call, it was compiled."""

    numbers: tuple[Expression, ...]
    places: tuple[int | tuple[int, int], ...]  # where each is: a number of the subgraph, a size
    guards: tuple[Guard, ...]
    compiled: NativeSubgraph

    def _values(self) -> list[str]:
        """How each number that varies is read."""
        return [
            f"n{place}" if isinstance(place, int) else f"t{place[0]}.shape[{place[1]}]"
            for place in self.places
        ]

    def function(self, subgraph: Subgraph, shares: Callable[..., bool], native: bool) -> Call:
        """`(numbers, tensors)` → the results, or `MISS`."""
        numbers = [f"n{index}" for index in range(len(subgraph.numbers))]
        tensors = [f"t{index}" for index in range(len(subgraph.tensors))]
        slots = [*numbers, *tensors]
        check = runtime.compile_check(self.guards, len(slots), native=native)
        lines = [
            "def variant(numbers, tensors):",
            *_unpacked("numbers", numbers),
            *_unpacked("tensors", tensors),
            f"    if not check({', '.join(slots)}):",
            "        return MISS",
        ]
        if self.compiled.writes:
            lines += ["    if shares(tensors, written):", "        return MISS"]
        lines.append(f"    return call({', '.join([*self._values(), *tensors])})")
        namespace = {
            "MISS": MISS,
            "call": self.compiled.call,
            "shares": shares,
            "written": self.compiled.writes,
            "check": check.call,
        }
        return defined("variant", lines, namespace)


def tuple_text(parts: Iterable[str]) -> str:
    return f"({''.join(f'{one}, ' for one in parts)})"


def _unpacked(held: str, names: Sequence[str]) -> list[str]:
    return [f"    {tuple_text(names)} = {held}"] if names else []


def defined(name: str, lines: Sequence[str], namespace: dict[str, Any]) -> Call:
    exec(compile("\n".join(lines), __file__, "exec"), namespace)
    made: Call = namespace[name]
    return made
