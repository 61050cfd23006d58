"""Both directions of an operation with bodies, and what bodies are written with.

Enters: a body's joint graph. Leaves: its halves, graphs made of them, and `Directions`: what the
operation becomes. Invariant: each result of a body that is written here is memory of its own and
lies as its type says; constants are inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
import torch.fx

from windfall.autograd.partition import cut
from windfall.autograd.passes import is_view
from windfall.autograd.restride import restride
from windfall.autograd.tracing import dense_like
from windfall.dataclass import dataclass
from windfall.errors import Unsupported
from windfall.ir.control_flow import Subgraphs, output_of, placeholders
from windfall.ir.dtype import TensorType
from windfall.ir.node import NodeInfo, constant, copy_into, info, set_info, tensor_type
from windfall.ir.stages import Joint, Split
from windfall.ops import fake as fakes

aten = torch.ops.aten
Node = torch.fx.Node
DifferentiateBody = Callable[[torch.fx.Graph, Sequence[Any], Sequence[TensorType]], Joint]


@dataclass(frozen=True, slots=True)
class SavedOperand:
    """What was kept for the other direction, by its number."""

    index: int


@dataclass(frozen=True, slots=True)
class ResultTangent:
    """That of a result; zeros where there is none."""

    result: int
    type: TensorType


@dataclass(frozen=True, slots=True)
class ZeroOperand:
    type: TensorType


@dataclass(slots=True)
class Directions:
    """Both directions of an operation. Operands are numbered as `operands`; of the results of
    `forward`, the first `visible` are the user's. Arguments are those above, or stand as they are
    (symbols, constants); of `forward`, operands by their numbers."""

    operands: tuple[torch.Tensor, ...]
    forward: Subgraphs
    forward_arguments: tuple[Any, ...]
    visible: int
    wanted: tuple[int, ...] = ()  # operands that have a gradient
    saved_operands: tuple[int, ...] = ()
    saved_results: tuple[int, ...] = ()
    backward: Subgraphs | None = None
    backward_arguments: tuple[Any, ...] = ()
    gradients: tuple[int, ...] = ()  # which result of `backward` each wanted one is
    # The other direction of the operands alone, and its arguments (operands by their numbers): what
    # is saved besides has no history, which gradients of gradients need. None: there is no such.
    from_operands: Callable[[], tuple[Subgraphs, tuple[Any, ...]]] | None = None


# ---------------------------------------------------------------------------------- graphs


class BodyWriter:
    """A body under construction, of inputs of known types, then constants."""

    def __init__(
        self, inputs: Sequence[tuple[str, TensorType]], constants: Sequence[torch.Tensor]
    ) -> None:
        self.graph = torch.fx.Graph()
        self.inputs = [self._input(name, type) for name, type in inputs]
        self.constants = {
            id(one): self._input(f"constant{place}", TensorType.of(one))
            for place, one in enumerate(constants)
        }

    def _input(self, name: str, type: TensorType) -> Node:
        return set_info(self.graph.placeholder(name), NodeInfo(type.without_grad()))

    def inline(self, body: torch.fx.Graph, given: Sequence[Node]) -> list[Node | None]:
        """The nodes of a graph, with its inputs given; its results."""
        made: dict[Node, Node] = {}
        inputs = iter(given)
        for node in body.nodes:
            if node.op == "placeholder":
                made[node] = next(inputs)
            elif node.op == "get_attr":
                made[node] = self.constants[id(constant(node))]
            elif node.op != "output":
                made[node] = copy_into(self.graph, node, made.__getitem__)
        results: Any = output_of(body).args[0]
        return [None if one is None else made[one] for one in results]

    def inline_as(self, body: torch.fx.Graph, given: Sequence[Node]) -> list[Node | None]:
        """The same, of inputs that lie otherwise: what is saved is packed."""
        types = [tensor_type(one) for one in placeholders(body)]
        pairs = zip(given, types, strict=True)
        return self.inline(body, [restride(self.emit, one, type) for one, type in pairs])

    def emit(self, func: Any, *args: Any, **kwargs: Any) -> Node:
        """A node, its type inferred."""
        types = [info(one).type if isinstance(one, Node) else one for one in args]
        node = self.graph.call_function(func, args, kwargs)
        return set_info(node, NodeInfo(fakes.infer(func, types, kwargs)))

    def zeros(self, type: TensorType) -> Node:
        """Of this type."""
        made = self.emit(
            aten.full.default, list(type.sizes), 0, dtype=type.dtype, device=type.device
        )
        return restride(self.emit, made, type)

    def finish(self, results: Sequence[Node | None], types: Sequence[TensorType]) -> torch.fx.Graph:
        """The graph; each of its results is memory of its own, and lies as it should."""
        taken: set[Node] = set()
        made: list[Node | None] = []
        for one, type in zip(results, types, strict=True):
            if one is not None:
                one = restride(self.emit, one, type)
                if one in taken or is_view(one) or one.op == "placeholder":
                    one = self.emit(aten.clone.default, one)
                taken.add(one)
            made.append(one)
        set_info(self.graph.output(tuple(made)), NodeInfo(None))
        return self.graph


def constants_of(graphs: Iterable[torch.fx.Graph]) -> tuple[torch.Tensor, ...]:
    found = {
        id(value): value
        for graph in graphs
        for node in graph.nodes
        if node.op == "get_attr"
        for value in [constant(node)]
    }
    return tuple(found.values())


def named(prefix: str, types: Iterable[TensorType]) -> list[tuple[str, TensorType]]:
    return [(f"{prefix}{place}", type) for place, type in enumerate(types)]


def halves_of(joint: Joint) -> Split:
    """Both directions of a body; it must be a pure function of its inputs."""
    facts = joint.signature.outputs
    fresh = all(one.kind == "fresh" and one.same_as < 0 for one in facts)
    if joint.signature.writes or joint.signature.hidden or not fresh:
        raise Unsupported(215, "a body writes, or returns, what was there before")
    return cut(joint)


def result_types_of(joint: Joint) -> list[TensorType]:
    found = [one.type for one in joint.signature.outputs]
    return [dense_like(one) for one in found if one is not None]
