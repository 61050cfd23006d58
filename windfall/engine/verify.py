"""Whether another pass has the key of a recorded one, found without making its key.

Enters: the graph of a recorded pass; later, the roots of another one. Leaves: that one's nodes and
saved tensors (`Matched`), or None. Invariant: what matches has an equal key (`backward_graph.py`
makes those; tests compare both), or is a pass of our own nodes whose saved tensors only a recorder
could confuse; what does not may have one nevertheless, and is asked for its key.

Edges, classes, hooks, arriving gradients and types of tensors are compared in machine code
(`native.py`). What only Python tells (numbers that were saved, whether somebody unpacks them, the
tensors themselves) is read by straight code that is generated for this graph:

    e = n0.next_functions
    n1 = e[0][0]
    if n1._raw_saved_self.unpack_hook is not None: return None
    t0 = n1._saved_self
    if n1._saved_dim.__class__ is not int or n1._saved_dim != 1: return None
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch

from windfall import torch_abi
from windfall.engine.backward_graph import SAVED_TENSORS, BackwardGraph, How, Inline, follow
from windfall.engine.native import NativeChecks, WordRow, native_checks, node_words, tensor_words
from windfall.engine.steps import SavedValue
from windfall.engine.visible import Visibility, visibility

_EXACT = (int, bool, str, type(None), torch.dtype, torch.device, torch.layout, torch.memory_format)


class Matched(NamedTuple):
    """A pass of equal key: its nodes by their numbers, their addresses, its saved tensors in the
    order of `Verifier.places`."""

    nodes: tuple[Any, ...]
    addresses: Any
    tensors: list[torch.Tensor]


class Verifier:
    """Compares passes with one that was recorded."""

    def __init__(self, graph: BackwardGraph, inputs: Sequence[Any], checks: NativeChecks) -> None:
        self._checks = checks
        self._count = len(graph.nodes)
        self._roots, self._inputs = graph.roots, tuple(inputs)
        self._array = ctypes.c_uint64 * self._count
        self._table = ctypes.c_uint64 * (1 << (4 * self._count).bit_length())
        self._nodes = WordRow(node_words(graph.nodes, graph.keys))
        source = _Source(graph)
        self.places: tuple[SavedValue, ...] = tuple(source.places)
        self._tensors = WordRow(tensor_words(source.tensors))
        self._leaves = WordRow([_leaf_hooks(graph, one) for one in source.leaves])
        self._items = checks.tuple_items
        self.text = source.text()
        self._gather = source.compiled()

    def match(
        self, roots: Sequence[tuple[Any, int]], inputs: Sequence[tuple[Any, int]]
    ) -> Matched | None:
        """The nodes and tensors of a pass, if it is as recorded."""
        found = self._array()
        firsts = []
        for (number, slot), (node, nth) in zip(self._roots, roots, strict=True):
            address = torch_abi.node_address(node)
            if slot != nth or found[number] not in (0, address):
                return None
            if not found[number]:
                found[number] = address
                firsts.append(node)
        at = ctypes.addressof(found)
        if self._checks.nodes(self._nodes.address, at, self._count):
            return None
        if not self._are_distinct(found) or not self._asks(found, inputs):
            return None
        try:
            gathered = self._gather(*firsts)
        except (RuntimeError, AttributeError, TypeError):  # freed, overwritten, another kind
            return None
        if gathered is None:
            return None
        nodes, tensors, leaves = gathered
        # A tuple is a row of addresses already.
        if self._checks.tensors(self._tensors.address, id(tensors) + self._items, len(tensors)):
            return None
        if self._checks.leaves(self._leaves.address, id(leaves) + self._items, len(leaves)):
            return None
        return Matched(nodes, found, list(tensors))

    def _are_distinct(self, found: Any) -> bool:
        """Whether each number is a node of its own."""
        table = self._table()
        told = self._checks.distinct(
            ctypes.addressof(found), self._count, ctypes.addressof(table), len(table) - 1
        )
        return len(set(found)) == self._count if told < 0 else not told

    def _asks(self, found: Any, inputs: Sequence[tuple[Any, int]]) -> bool:
        """Whether gradients of the same places are asked for."""
        distinct = set(found) if None in self._inputs else ()
        for edge, (node, slot) in zip(self._inputs, inputs, strict=True):
            address = torch_abi.node_address(node)
            if edge is None and address in distinct:
                return False
            if edge is not None and (found[edge[0]] != address or edge[1] != slot):
                return False
        return True

    def release(self, matched: Matched) -> None:
        """Free what all nodes of a pass have saved."""
        self._checks.release(ctypes.addressof(matched.addresses), self._count)


def verifier(graph: BackwardGraph, inputs: Sequence[Any]) -> Verifier | None:
    """What compares with a recorded graph, whose saved values are still there."""
    checks = native_checks()
    return None if checks is None else Verifier(graph, inputs, checks)


def _leaf_hooks(graph: BackwardGraph, number: int) -> int:
    own = torch_abi.TENSOR_HOOKS | torch_abi.POST_ACCUMULATE_HOOKS
    return graph.keys[number].hooks & own


def _state(node: Any, edges: Any, expected: Any) -> Mapping[str, Any] | None:
    """What a node has saved, if it is as expected; by way of its key."""
    found = follow(node, edges)
    return found.saved if found.how is How.TRACED and found.state == expected else None


def _is_live(node: Any, edges: Any) -> bool:
    return follow(node, edges).how is How.LIVE


def _is_python(node: Any, edges: Any, inline: Inline) -> bool:
    return follow(node, edges, inline).how is How.PYTHON


def _is_visible(node: Any, edges: Any) -> bool:
    kind: type = type(node)
    seen = visibility(kind)
    return seen is Visibility.WHOLE or (seen is Visibility.WITH_ALL_EDGES and None not in edges)


class _Source:
    """The text of the straight code, and what it refers to."""

    def __init__(self, graph: BackwardGraph) -> None:
        self._graph = graph
        self._names: dict[str, Any] = {
            "_state": _state,
            "_is_live": _is_live,
            "_is_python": _is_python,
            "_inline": graph.inline,
        }
        self.places: list[SavedValue] = []
        self.tensors: list[torch.Tensor] = []
        self._gathered: list[str] = []  # `tensors` in the text: a name, or all that a name has
        self.leaves: list[int] = []
        self._firsts = list(dict.fromkeys(number for number, _ in graph.roots))
        self._lines: list[str] = []
        bound = set(self._firsts)
        for number, key in enumerate(graph.keys):
            new: dict[int, int] = {}  # children that are met for the first time, and where
            for place, edge in enumerate(key.edges):
                if edge is not None and edge[0] not in bound:
                    bound.add(edge[0])
                    new[edge[0]] = place
            if new:
                self._lines.append(f"e = n{number}.next_functions")
                self._lines.extend(f"n{child} = e[{place}][0]" for child, place in new.items())
            if key.how is How.TRACED and SAVED_TENSORS in graph.saved[number]:
                self._of_ours(number)
            elif key.how is How.TRACED:
                self._traced(number)
            elif key.how is How.PYTHON and graph.inline(graph.nodes[number]) is not None:
                self._unless(f"_is_python(n{number}, {self._constant(key.edges)}, _inline)")
            elif key.how is How.LEAF:
                self.leaves.append(number)
            elif key.how is How.LIVE and _is_visible(graph.nodes[number], key.edges):
                self._live(number)

    def _constant(self, value: Any) -> str:
        name = f"c{len(self._names)}"
        self._names[name] = value
        return name

    def _traced(self, number: int) -> None:
        saved = self._graph.saved[number]
        if not all(map(_is_simple, saved.values())):
            self._by_key(number, saved)
            return
        node = self._graph.nodes[number]
        kind: type = type(node)
        _, raw = torch_abi.saved_names(kind)
        for name in raw:
            if getattr(node, name) is not None:
                self._unless(f"n{number}.{name}.unpack_hook is None")
        mine: list[tuple[int, torch.Tensor]] = []
        for name, value in saved.items():
            if isinstance(value, torch.Tensor):
                index = self._tensor(number, name, None, value, f"n{number}.{name}")
                mine.append((index, value))
            else:
                self._lines.append(f"v = n{number}.{name}")
                self._exactly(value)
        for place, (index, one) in enumerate(mine):
            for other, two in mine[:place]:
                if (one.dtype, one.shape, one.stride()) == (two.dtype, two.shape, two.stride()):
                    same = one.data_ptr() == two.data_ptr()
                    self._unless(f"(t{index}.data_ptr() == t{other}.data_ptr()) is {same}")

    def _of_ours(self, number: int) -> None:
        """A node of a compiled graph of ours."""
        ours = self._graph.inline(self._graph.nodes[number])
        assert ours is not None
        what, sizes = self._constant(ours[0]), self._constant(ours[1])
        tensors = self._graph.saved[number][SAVED_TENSORS]
        name = f"n{number}"
        self._lines.append(f"s = _inline({name})")
        self._unless(f"s is not None and s[0] is {what} and s[1] == {sizes}")
        if tensors:
            # That they lie apart matters to who records: here each has its place.
            self._lines.append(f"s{number} = {name}.saved_tensors")
            self._unless(f"len(s{number}) == {len(tensors)}")
            for place, one in enumerate(tensors):
                self.tensors.append(one)
                self.places.append(SavedValue(number, SAVED_TENSORS, place))
            self._gathered.append(f"*s{number}")

    def _live(self, number: int) -> None:
        """A node that is called live for what it has saved, which may be otherwise now; of complex
        gradients the machine code knows."""
        edges = self._graph.keys[number].edges
        if _is_live(self._graph.nodes[number], edges):
            self._unless(f"_is_live(n{number}, {self._constant(edges)})")

    def _by_key(self, number: int, saved: Mapping[str, Any]) -> None:
        key = self._graph.keys[number]
        edges, state = self._constant(key.edges), self._constant(key.state)
        self._lines.append(f"s = _state(n{number}, {edges}, {state})")
        self._unless("s is not None")
        for name, value in saved.items():
            if isinstance(value, torch.Tensor):
                self._tensor(number, name, None, value, f"s[{name!r}]")
            elif isinstance(value, tuple | list):
                for place, one in enumerate(value):
                    if isinstance(one, torch.Tensor):
                        self._tensor(number, name, place, one, f"s[{name!r}][{place}]")

    def _tensor(
        self, node: int, name: str, place: int | None, value: torch.Tensor, text: str
    ) -> int:
        index = len(self.tensors)
        self.tensors.append(value)
        self.places.append(SavedValue(node, name, place))
        self._gathered.append(f"t{index}")
        self._lines.append(f"t{index} = {text}")
        self._unless(f"t{index}.requires_grad is {value.requires_grad}")
        return index

    def _exactly(self, value: Any) -> None:
        """The condition that `v` is this value, its type told too."""
        if value is None:
            self._unless("v is None")
        elif isinstance(value, float):
            self._unless(f"v.__class__ is float and v.hex() == {value.hex()!r}")
        else:
            name, kind = self._constant(value), self._constant(type(value))
            self._unless(f"v.__class__ is {kind} and v == {name}")

    def _unless(self, condition: str) -> None:
        self._lines.append(f"if not ({condition}): return None")

    def text(self) -> str:
        """The function."""
        nodes = "".join(f"n{number}, " for number in range(len(self._graph.nodes)))
        tensors = "".join(f"{one}, " for one in self._gathered)
        leaves = "".join(f"n{number}.variable, " for number in self.leaves)
        arguments = ", ".join(f"n{number}" for number in self._firsts)
        body = [*self._lines, f"return ({nodes}), ({tensors}), ({leaves})"]
        return "\n    ".join([f"def gather({arguments}):", *body])

    def compiled(self) -> Callable[..., Any]:
        """The function itself."""
        space = dict(self._names)
        exec(compile(self.text(), "<verifier of a backward pass>", "exec"), space)
        made: Callable[..., Any] = space["gather"]
        return made


def _is_simple(value: Any) -> bool:
    """Whether a saved value is compared as it stands."""
    if isinstance(value, torch.Tensor):
        return bool(value.dim()) or not torch_abi.is_wrapped_number(value)
    if type(value) is tuple:
        return all(type(one) is int for one in value)
    return type(value) in _EXACT or type(value) is float
