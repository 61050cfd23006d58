"""Where a captured graph is cut: before and after each read of data.

Enters: a captured graph, some of whose nodes say only when they run what (or how much) they answer
(`NodeInfo.reads`). Leaves: subgraphs and the reads between them, in program order. Invariant: each
node stands in one subgraph, or is a read; integer arithmetic stands wherever it is needed.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence

import torch.fx

from windfall import torch_abi
from windfall.dataclass import dataclass
from windfall.errors import Unsupported
from windfall.ir.dtype import TensorType
from windfall.ir.node import info
from windfall.ir.symint import Expression


@dataclass(frozen=True, slots=True)
class Subgraph:
    """Nodes that run without a read among them. `numbers` are the integers that they depend on:
    inputs of the graph, or reads."""

    nodes: tuple[torch.fx.Node, ...]
    numbers: tuple[torch.fx.Node, ...]
    tensors: tuple[torch.fx.Node, ...]
    results: tuple[torch.fx.Node, ...]
    switches: tuple[torch.fx.Node, ...]  # of modes

    def __str__(self) -> str:
        takes = ", ".join(node.name for node in (*self.numbers, *self.tensors))
        return f"subgraph of {', '.join(node.name for node in self.nodes)}, given {takes}"

    @property
    def operations(self) -> int:
        """How many calls it does."""
        return len(self.nodes) - len(self.switches)


def reads_data(graph: torch.fx.Graph) -> bool:
    """Whether a captured graph has to be partitioned."""
    return any(info(node).reads for node in graph.nodes)


def is_number(node: torch.fx.Node) -> bool:
    """Integer arithmetic: done wherever it is needed."""
    return (
        node.op == "call_function"
        and not info(node).reads
        and isinstance(info(node).type, Expression | int)
    )


def _is_free(node: torch.fx.Node) -> bool:
    return node.op == "get_attr" or is_number(node)


def partition(graph: torch.fx.Graph) -> list[Subgraph | torch.fx.Node]:
    """PartitionedGraph and the reads between them, in program order."""
    steps: list[list[torch.fx.Node] | torch.fx.Node] = []
    behind: set[torch.fx.Node] = set()  # parts of what reads answer
    for node in graph.nodes:
        if node.op in ("placeholder", "output") or _is_free(node):
            continue
        part = (
            node.op == "call_function"
            and node.target is operator.getitem
            and node.args[0] in behind
        )
        if info(node).reads or part:
            steps.append(node)
            if not isinstance(info(node).type, TensorType | Expression):
                behind.add(node)
        elif steps and isinstance(steps[-1], list):
            steps[-1].append(node)
        else:
            steps.append([node])
    return [one if isinstance(one, torch.fx.Node) else _subgraph(one) for one in steps]


def roots(node: torch.fx.Node) -> Iterator[torch.fx.Node]:
    """What a node takes that is no arithmetic."""
    for one in node.all_input_nodes:
        if is_number(one):
            yield from roots(one)
        elif one.op != "get_attr":
            yield one


def _subgraph(nodes: Sequence[torch.fx.Node]) -> Subgraph:
    inside = set(nodes)
    taken = dict.fromkeys(root for node in nodes for root in roots(node) if root not in inside)
    results = [node for node in nodes if any(user not in inside for user in _users(node))]
    for node in (*taken, *results):
        if not isinstance(info(node).type, TensorType | Expression):
            raise Unsupported(104, f"{node} is read in parts that stand apart")
    return Subgraph(
        tuple(nodes),
        tuple(one for one in taken if isinstance(info(one).type, Expression)),
        tuple(one for one in taken if isinstance(info(one).type, TensorType)),
        tuple(results),
        tuple(node for node in nodes if torch_abi.is_mode_switch(node.target)),
    )


def _users(node: torch.fx.Node) -> Iterator[torch.fx.Node]:
    for one in node.users:
        if is_number(one):
            yield from _users(one)
        else:
            yield one
