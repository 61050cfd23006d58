"""Control flow as operations: targets of nodes that hold the graphs of their bodies.

Enters: graphs. Leaves: `Branch`, `Scan`, `While`: callables of tensors. A captured graph has them
with bodies of torch functions, a joint graph with bodies of ATen overloads; both are called the
same way, and run op by op where nobody has compiled them. Invariant: bodies are pure: they write
nothing that was there before, and their results are dense and share memory with nothing else. What
a body answers None for is memory that nobody looks into after this way was taken.

    branch(flag, sizes, *operands)             bodies: (*sizes, *operands) → results
    scan(sizes, *carried, *scanned, *others)   body: (*sizes, *carried, *slices, *others)
                                                     → (*carried, *parts of results)
    while_loop(sizes, *carried, *others)       condition: → (flag,), body: → carried
    unwind(sizes, *turned, *sums, *carried, *others)   the other direction of such a loop

`sizes` are integers that vary: the first inputs of bodies of captured graphs; those of joint graphs
take none, expressions of `symbols` stand in them.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import torch
import torch.fx

from windfall.ir.dtype import TensorType
from windfall.ir.graph_key import graph_key
from windfall.ir.node import constant, info
from windfall.ir.symint import Expression, Size, evaluate

Graph = torch.fx.Graph
Results = tuple[Any, ...]


class Subgraphs:
    """The base: graphs, symbols, and what tells two of a kind apart (`facts`)."""

    kind: str  # the name in text
    parts: tuple[str, ...]  # what each graph is called
    is_followed = False  # whether it is recorded as the operations that calling it comes to

    def __init__(
        self, graphs: Sequence[Graph], symbols: Sequence[Expression] = (), facts: Results = ()
    ) -> None:
        assert len(graphs) == len(self.parts)
        self.graphs = tuple(graphs)
        self.symbols = tuple(symbols)
        self.facts = tuple(facts)
        self.__name__ = self.__qualname__ = self.kind
        self.__module__ = __name__

    def __str__(self) -> str:
        return f"windfall.{self.kind}"

    @cached_property
    def key(self) -> Hashable:
        """Equal for equal work; None: that cannot be told."""
        keys = tuple(graph_key(one) for one in self.graphs)
        if None in keys:
            return None
        return (self.kind, keys, self.facts, self.symbols)

    def __hash__(self) -> int:
        return hash(self.key) if self.key is not None else id(self)

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        same = isinstance(other, Subgraphs) and self.key is not None
        return same and self.key == other.key  # type: ignore[attr-defined]

    @property
    def result_types(self) -> tuple[TensorType, ...]:
        """What it answers."""
        raise NotImplementedError

    def __call__(self, *arguments: Any) -> Results:
        """Do it, op by op."""
        raise NotImplementedError

    def follow(self, standing_for: Callable[[Any], Any] | None, *arguments: Any) -> Results:
        """Do one that is followed, with other functions where `standing_for` knows some."""
        raise NotImplementedError

    def _run(
        self,
        graph: Graph,
        sizes: Sequence[int],
        inputs: Sequence[Any],
        standing_for: Callable[[Any], Any] | None = None,
    ) -> Results:
        if not self.symbols:
            return run(graph, (*sizes, *inputs), {}, standing_for)
        values = dict(zip(map(str, self.symbols), sizes, strict=True))
        return run(graph, inputs, values, standing_for)


class Branch(Subgraphs):
    """One of two bodies, as a flag says."""

    kind = "branch"
    parts = ("true", "false")

    @property
    def result_types(self) -> tuple[TensorType, ...]:
        """Of each result, as one of the bodies has it."""
        pairs = zip(*(output_types(one) for one in self.graphs), strict=True)
        return tuple(one or other for one, other in pairs)

    def __call__(self, *arguments: Any) -> Results:
        """The body that is chosen. What needs a gradient has one, zeros where the other body is
        the one that uses it."""
        flag, sizes, *operands = arguments
        results = self._run(self.graphs[0 if bool(flag) else 1], sizes, operands)
        return connected(self._filled(results, sizes), operands)

    def _filled(self, results: Results, sizes: Sequence[int]) -> Results:
        values = dict(zip(map(str, self.symbols), sizes, strict=True)) if self.symbols else {}
        pairs = zip(results, self.result_types, strict=True)
        return tuple(empty(type, values) if one is None else one for one, type in pairs)


class Scan(Subgraphs):
    """A body for each slice of some operands, from the first to the last, or back: it takes on what
    the one before it left. `facts`: how many are carried, how many are scanned, how many slices
    there are, whether they go backward. Results: what is carried last, then the others, stacked."""

    kind = "scan"
    parts = ("body",)

    @property
    def carried(self) -> int:
        """How many values go from one slice to the next."""
        count: int = self.facts[0]
        return count

    @property
    def scanned(self) -> int:
        """How many operands are taken slice by slice."""
        count: int = self.facts[1]
        return count

    @property
    def length(self) -> Size:
        """How many slices there are."""
        count: Size = self.facts[2]
        return count

    @property
    def backward(self) -> bool:
        """Whether the last slice is the first."""
        return bool(self.facts[3])

    @property
    def result_types(self) -> tuple[TensorType, ...]:
        """What is carried lies as it was given, the others row-major."""
        made = [one for one in output_types(self.graphs[0])[self.carried :] if one is not None]
        carried = _carried_types(self.graphs[0], self.carried)
        return (*carried, *(stacked(one, self.length) for one in made))

    def __call__(self, *arguments: Any) -> Results:
        """One slice after the other."""
        _, *operands = arguments
        return connected(self.unrolled(None, *arguments), operands)

    def unrolled(self, standing_for: Callable[[Any], Any] | None, *arguments: Any) -> Results:
        """The same, as nothing but the operations of its bodies."""
        sizes, *operands = arguments
        last = self.carried + self.scanned
        carried, others = operands[: self.carried], operands[last:]
        scanned = operands[self.carried : last]
        count = scanned[0].shape[0]
        made: list[Results] = []
        for index in reversed(range(count)) if self.backward else range(count):
            slices = [one[index] for one in scanned]
            found = self._run(self.graphs[0], sizes, (*carried, *slices, *others), standing_for)
            carried = list(found[: self.carried])
            made.append(found[self.carried :])
        if self.backward:
            made.reverse()
        return (*carried, *(torch.stack(one) for one in zip(*made, strict=True)))


def _carried_types(graph: Graph, count: int) -> tuple[TensorType, ...]:
    """The types of the first tensors that a body takes."""
    given = [info(one).type for one in placeholders(graph)]
    return tuple([one.without_grad() for one in given if isinstance(one, TensorType)][:count])


class While(Subgraphs):
    """A body for as long as a condition holds. `facts`: how many values are carried."""

    kind = "while_loop"
    parts = ("condition", "body")

    @property
    def carried(self) -> int:
        """How many values go from one round to the next."""
        count: int = self.facts[0]
        return count

    @property
    def result_types(self) -> tuple[TensorType, ...]:
        """What is carried lies as it was given."""
        return _carried_types(self.graphs[1], self.carried)

    def __call__(self, *arguments: Any) -> Results:
        """Round after round; results are new tensors, though there was none."""
        sizes, *operands = arguments
        carried, others = operands[: self.carried], operands[self.carried :]
        rounds = 0
        while bool(self._run(self.graphs[0], sizes, (*carried, *others))[0]):
            carried = list(self._run(self.graphs[1], sizes, (*carried, *others)))
            rounds += 1
        made = tuple(carried) if rounds else tuple(one.clone() for one in carried)
        return connected(made, operands)


class Unwind(Subgraphs):
    """The rounds of a `While` from the last to the first: what was carried into each is computed
    again. `facts`: how many gradients of carried values, how many sums, how many carried values."""

    kind = "unwind"
    parts = ("condition", "body", "turn")

    @property
    def result_types(self) -> tuple[TensorType, ...]:
        """The gradients of what was carried first, then the sums."""
        turned, sums, _ = self.facts
        return _carried_types(self.graphs[2], turned + sums)

    def __call__(self, *arguments: Any) -> Results:
        """Forward, noting what is carried, then back."""
        sizes, *operands = arguments
        turned, sums, count = self.facts
        found, operands = tuple(operands[: turned + sums]), operands[turned + sums :]
        carried, others = tuple(operands[:count]), operands[count:]
        condition, body, turn = self.graphs
        rounds: list[Results] = []
        while bool(self._run(condition, sizes, (*carried, *others))[0]):
            rounds.append(carried)
            carried = self._run(body, sizes, (*carried, *others))
        while rounds:
            found = self._run(turn, sizes, (*found, *rounds.pop(), *others))
        return found


# ------------------------------------------------------------------------------ op by op


def run(
    graph: Graph,
    inputs: Sequence[Any],
    values: Mapping[str, int],
    standing_for: Callable[[Any], Any] | None = None,
) -> Results:
    """What a body answers; `values` are those of the symbols that stand in it, `standing_for` may
    know other functions to call."""
    found: dict[torch.fx.Node, Any] = {}
    given = iter(inputs)
    for node in graph.nodes:
        if node.op == "placeholder":
            found[node] = next(given)
        elif node.op == "get_attr":
            found[node] = constant(node)
        elif node.op != "output":
            args = [_settled(one, found, values) for one in node.args]
            kwargs = {name: _settled(one, found, values) for name, one in node.kwargs.items()}
            if node.op == "call_method":
                found[node] = getattr(args[0], str(node.target))(*args[1:], **kwargs)
            else:
                target = node.target if standing_for is None else standing_for(node.target)
                found[node] = target(*args, **kwargs)
    results: Any = output_of(graph).args[0]
    return tuple(_settled(one, found, values) for one in results)


def _settled(value: Any, found: Mapping[torch.fx.Node, Any], values: Mapping[str, int]) -> Any:
    """An argument, with tensors and numbers in it."""
    if isinstance(value, torch.fx.Node):
        return found[value]
    if isinstance(value, Expression):
        return evaluate(value, values)
    if isinstance(value, tuple | list):
        return type(value)(_settled(one, found, values) for one in value)
    if isinstance(value, dict):
        return {key: _settled(one, found, values) for key, one in value.items()}
    if isinstance(value, slice):
        parts = (value.start, value.stop, value.step)
        return slice(*(_settled(one, found, values) for one in parts))
    return value


def empty(type: TensorType, values: Mapping[str, int]) -> torch.Tensor:
    """Memory that nobody looks into."""
    sizes = [evaluate(one, values) for one in type.sizes]
    strides = [evaluate(one, values) for one in type.strides]
    return torch.empty_strided(sizes, strides, dtype=type.dtype, device=type.device)


class _Connected(torch.autograd.Function):
    """Results, and operands that have a gradient of zeros by them."""

    @staticmethod
    def forward(context: Any, count: int, *tensors: torch.Tensor) -> Any:
        context.likenesses = [(one.shape, one.dtype, one.device) for one in tensors[count:]]
        return tuple(one.clone() for one in tensors[:count])

    @staticmethod
    def backward(context: Any, *gradients: Any) -> Any:
        zeros = [
            torch.zeros(shape, dtype=dtype, device=device)
            for shape, dtype, device in context.likenesses
        ]
        return (None, *gradients, *zeros)


def connected(results: Results, operands: Sequence[Any]) -> Results:
    """Results that are made of all operands, as far as autograd can tell."""
    tensors = [one for one in operands if isinstance(one, torch.Tensor) and one.requires_grad]
    if not tensors or not torch.is_grad_enabled():
        return results
    known = [place for place, one in enumerate(results) if differentiable(one.dtype)]
    made = _Connected.apply(len(known), *(results[one] for one in known), *tensors)  # type: ignore[no-untyped-call]
    places = dict(zip(known, made, strict=True))
    return tuple(places.get(place, one) for place, one in enumerate(results))


def differentiable(dtype: torch.dtype) -> bool:
    """Whether tensors of a dtype may need a gradient."""
    return dtype.is_floating_point or dtype.is_complex


# ---------------------------------------------------------------------------------- graphs


def output_of(graph: Graph) -> torch.fx.Node:
    """The node with the results."""
    found: torch.fx.Node = next(iter(reversed(graph.nodes)))
    return found


def output_types(graph: Graph) -> tuple[TensorType | None, ...]:
    """The types of the results of a body."""
    results: Any = output_of(graph).args[0]
    return tuple(None if one is None else _type(one) for one in results)


def _type(node: torch.fx.Node) -> TensorType:
    found = info(node).type
    assert isinstance(found, TensorType)
    return found.without_grad()


def stacked(type: TensorType, length: Size) -> TensorType:
    """The type of so many of a type, row-major."""
    made = TensorType.contiguous(type.dtype, (length, *type.sizes))
    return replace(made, device=type.device)


def placeholders(graph: Graph) -> list[torch.fx.Node]:
    """The inputs of a body."""
    return [node for node in graph.nodes if node.op == "placeholder"]


def subgraphs_in(graph: Graph) -> Iterator[Subgraphs]:
    """The targets with bodies in a graph, nested ones not."""
    return (node.target for node in graph.nodes if isinstance(node.target, Subgraphs))


KINDS: dict[str, type[Subgraphs]] = {one.kind: one for one in (Branch, Scan, While, Unwind)}
