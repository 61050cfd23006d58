"""The graph that a backward pass goes through, and its key.

Enters: the edges at which the pass begins. Leaves: a `BackwardGraph`: nodes in the order of a walk,
their edges as numbers, what they have saved, and a `NodeKey` of each. Invariant: a key is data that
holds no tensor and no node; passes of equal keys do the same operations, but for what is called
live, which no key describes.

    (sum over x * 2)   SumBackward0 -> MulBackward0 -> a leaf
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import torch

from windfall import torch_abi
from windfall.dataclass import dataclass
from windfall.engine.visible import Visibility, visibility
from windfall.errors import WindfallError
from windfall.ir.dtype import TensorType

Edge = tuple[int, int]  # a node by its number, and which of its arriving gradients


class Unfollowed(WindfallError):
    """A graph that is left to torch's engine; the text says why."""


class How(enum.StrEnum):
    """How a node is run."""

    TRACED = "traced"  # its operations are recorded
    LIVE = "live"  # it is called itself, each time
    PYTHON = "Python"  # likewise, an `autograd.Function`
    LEAF = "leaf"  # a gradient is accumulated


@dataclass(frozen=True, slots=True)
class NodeKey:
    """What a pass depends on of one node. Classes that are called live have no state here."""

    name: str
    how: How
    hooks: int
    edges: tuple[Edge | None, ...]
    arriving: tuple[tuple[torch.dtype, tuple[int, ...], torch.device], ...]
    state: tuple[Any, ...] = ()

    def __str__(self) -> str:
        edges = ", ".join("none" if one is None else f"{one[0]}.{one[1]}" for one in self.edges)
        hooks = f", hooks {self.hooks}" if self.hooks else ""
        return f"{self.name} ({self.how}{hooks}) -> {edges or 'nothing'}"


class Followed(NamedTuple):
    """How a node is run: what it has saved, that as data, and what is called to trace it. `kept` is
    what the data refer to by its address."""

    how: How
    saved: Mapping[str, Any] = MappingProxyType({})
    state: tuple[Any, ...] = ()
    call: Callable[..., Any] | None = None
    kept: Any = None


# What our own compiled graphs say of their nodes: what such a node is, its sizes, and its backward
# as a function of gradients that runs operation by operation; None: it is none of them.
Inline = Callable[[Any], tuple[Any, tuple[int, ...], Callable[..., Any]] | None]


def inline_none(node: Any) -> None:
    """No node of Python is traced."""


class BackwardGraph:
    """A graph that was walked."""

    def __init__(self, roots: Sequence[tuple[Any, int]], inline: Inline = inline_none) -> None:
        self.nodes: list[Any] = []
        self.index: dict[Any, int] = {}
        self.keys: list[NodeKey] = []
        self.inline = inline
        self.saved: list[Mapping[str, Any]] = []  # by attribute; of traced nodes
        self.calls: list[Callable[..., Any] | None] = []  # likewise
        self.kept: list[Any] = []
        self.roots: tuple[Edge, ...] = tuple((self._number(node), slot) for node, slot in roots)
        done = 0
        while done < len(self.nodes):
            self._describe(self.nodes[done])
            done += 1

    def _number(self, node: Any) -> int:
        number = self.index.get(node)
        if number is None:
            number = self.index[node] = len(self.nodes)
            self.nodes.append(node)
        return number

    def _describe(self, node: Any) -> None:
        edges = tuple(
            None if child is None else (self._number(child), slot)
            for child, slot in node.next_functions
        )
        arriving = tuple(map(_arriving, torch_abi.arriving(node)))
        hooks = torch_abi.hook_kinds(node)
        found = follow(node, edges, self.inline)
        if found.how is How.TRACED and any(dtype.is_complex for dtype, _, _ in arriving):
            found = Followed(How.PYTHON if _is_python(node) else How.LIVE)
        name = type(node).__name__ if found.how is not How.PYTHON else str(found.how)
        self.keys.append(NodeKey(name, found.how, hooks, edges, arriving, found.state))
        self.saved.append(found.saved)
        self.calls.append(found.call)
        if found.kept is not None:
            self.kept.append(found.kept)

    def edge(self, edge: tuple[Any, int]) -> Edge | None:
        """An edge of the user's as numbers; None: the graph does not reach it."""
        number = self.index.get(edge[0])
        return None if number is None else (number, edge[1])


def _arriving(one: Any) -> tuple[torch.dtype, tuple[int, ...], torch.device]:
    if one.is_nested_tensor:
        raise Unfollowed("a nested tensor")
    return one.dtype, tuple(one.shape), one.device


def _is_python(node: Any) -> bool:
    return isinstance(node, torch_abi.PythonNode)


def follow(node: Any, edges: tuple[Edge | None, ...], inline: Inline = inline_none) -> Followed:
    """How a node is to be run. Complex numbers are not traced: a dispatch mode is no mere observer
    of lazy conjugates (`linalg.lstsq` answers another gradient under any mode)."""
    kind: type = type(node)
    if kind is torch_abi.AccumulateGrad:
        return Followed(How.LEAF)
    if _is_python(node):
        return _follow_python(node, edges, inline)
    seen = visibility(kind)
    if seen is Visibility.HIDDEN or (seen is Visibility.WITH_ALL_EDGES and None in edges):
        return Followed(How.LIVE)
    names, raw = torch_abi.saved_names(kind)
    if any(_is_hooked(getattr(node, one)) for one in raw):
        return Followed(How.LIVE)  # unpacked when it is its turn, by whoever packed it
    saved = {}
    try:
        for name in names:
            saved[name] = getattr(node, name)
        return Followed(How.TRACED, saved, state_of(saved), node)
    except (RuntimeError, _Unreadable):
        # Freed, overwritten, or nothing that a key can hold: the node itself says what is wrong.
        return Followed(How.LIVE)


SAVED_TENSORS = "saved_tensors"  # of a node of Python


def _follow_python(node: Any, edges: tuple[Edge | None, ...], inline: Inline) -> Followed:
    """A node of ours is traced, if its saved tensors can be told apart by where they lie."""
    ours = inline(node)
    if ours is None or _is_hooked(torch_abi.saved_wrappers(node)):
        return Followed(How.PYTHON)
    what, sizes, backward = ours
    try:
        # Operations run without a history, whether these have one does not matter.
        saved = {SAVED_TENSORS: node.saved_tensors}
        state = tuple(_type(one).without_grad() for one in saved[SAVED_TENSORS])
    except (RuntimeError, _Unreadable):
        return Followed(How.PYTHON)
    if not are_apart(saved[SAVED_TENSORS]):
        return Followed(How.PYTHON)
    needed = node.needs_input_grad

    def call(*given: Any) -> list[Any]:
        answers = iter([one for one, need in zip(backward(*given), needed, strict=True) if need])
        return [None if edge is None else next(answers) for edge in edges]

    return Followed(How.TRACED, saved, (id(what), sizes, *state), call, what)


def are_apart(tensors: Sequence[torch.Tensor]) -> bool:
    """Whether no two of these begin at the same place in memory."""
    return len({one.data_ptr() for one in tensors}) == len(tensors)


def _is_hooked(wrapper: Any) -> bool:
    if isinstance(wrapper, tuple):
        return any(map(_is_hooked, wrapper))
    return wrapper is not None and wrapper.unpack_hook is not None


# -------------------------------------------------------------------------- saved values as data


class _Unreadable(Exception):
    """A saved value that no key can hold."""


def state_of(saved: Mapping[str, Any]) -> tuple[Any, ...]:
    """What a node has saved, as data: types of tensors, values of all else. Tensors that are the
    same memory are said to be: a recording that read the one for the other would be wrong
    elsewhere."""
    places: dict[Any, int] = {}
    return tuple(_frozen(one, places) for one in saved.values())


def _frozen(value: Any, places: dict[Any, int]) -> Any:
    if isinstance(value, torch.Tensor):
        return _tensor(value, places)
    if type(value) in (tuple, list, torch.Size):
        return (type(value).__name__, *(_frozen(one, places) for one in value))
    freeze = _FREEZE.get(type(value))
    if freeze is None:
        raise _Unreadable(type(value).__name__)
    return type(value).__name__, freeze(value)


def _tensor(value: torch.Tensor, places: dict[Any, int]) -> Any:
    type_ = _type(value)
    if value.dim() == 0 and torch_abi.is_wrapped_number(value):
        return "number", value.dtype, _FREEZE[type(number := value.item())](number)
    return type_, places.setdefault(geometry(value), len(places))


def _type(value: torch.Tensor) -> TensorType:
    plain = type(value) in (torch.Tensor, torch.nn.Parameter) and torch_abi.is_plain_tensor(value)
    if not plain or value.is_complex():
        raise _Unreadable(type(value).__name__)
    return TensorType.of(value)


def geometry(value: torch.Tensor) -> Any:
    """Where a tensor lies: those of equal geometry hold the same values."""
    return value.data_ptr(), value.shape, value.stride(), value.dtype


def _itself(value: Any) -> Any:
    return value


def _complex(value: complex) -> tuple[str, str]:
    return value.real.hex(), value.imag.hex()


# Numbers are told apart by type and sign of zero; a NaN is equal to itself.
_FREEZE: dict[type, Callable[[Any], Any]] = {
    type(None): _itself,
    bool: _itself,
    int: _itself,
    float: float.hex,
    complex: _complex,
    str: _itself,
    torch.dtype: _itself,
    torch.device: _itself,
    torch.layout: _itself,
    torch.memory_format: _itself,
}
