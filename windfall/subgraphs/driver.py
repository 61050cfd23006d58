"""A captured graph that reads data on its way: the Python function that runs its subgraphs.

Enters: a captured graph, and whoever compiles a graph without reads. Leaves: a callable that runs
subgraph, read, subgraph. Invariant: each node runs once, in program order, under the modes of the
program; what nobody needs any more is let go.
"""

from __future__ import annotations

from typing import Any

import torch.fx

from windfall import torch_abi
from windfall.ir.node import constant
from windfall.subgraphs.cuts import Subgraph, is_number, partition, roots
from windfall.subgraphs.runner import Runner, Shared
from windfall.subgraphs.variant import Call, defined, tuple_text


class PartitionedGraph:
    """A captured graph in subgraphs, and what they share."""

    def __init__(
        self,
        graph: torch.fx.Graph,
        name: str,
        shared: Shared,
    ) -> None:
        self.graph = graph  # whose constants the steps use
        self._inputs = [node for node in graph.nodes if node.op == "placeholder"]
        (output,) = (node for node in graph.nodes if node.op == "output")
        self._results: tuple[torch.fx.Node, ...] = tuple(output.args[0])
        self.steps = partition(graph)
        self._runners = [
            Runner(one, f"{name} subgraph {index}", shared) if isinstance(one, Subgraph) else None
            for index, one in enumerate(self.steps)
        ]
        self._switches = any(isinstance(one, Subgraph) and one.switches for one in self.steps)
        self._dropped = self._last_uses()

    def _last_uses(self) -> list[list[torch.fx.Node]]:
        """For each step, what nobody needs after it."""
        last: dict[torch.fx.Node, int] = {}
        for index, step in enumerate(self.steps):
            if isinstance(step, Subgraph):
                used = (*step.numbers, *step.tensors, *step.results)
            else:
                used = (step, *roots(step))
            last |= dict.fromkeys(used, index)
        kept = set(self._results)
        dropped: list[list[torch.fx.Node]] = [[] for _ in self.steps]
        for node, index in last.items():
            if node not in kept:
                dropped[index].append(node)
        return dropped

    def __str__(self) -> str:
        return "\n".join(map(str, self.steps))

    def call(self) -> Call:
        """What runs the graph."""
        run = self._function()
        if not self._switches:
            return run

        def restoring(*inputs: Any) -> tuple[Any, ...]:
            modes = torch_abi.modes()
            try:
                return run(*inputs)
            finally:  # as of native code: what comes after the graph sets them
                torch_abi.set_modes(modes)

        return restoring

    def _function(self) -> Call:
        """The steps as a Python function."""
        text = _DriverText()
        inputs = [text.name(one) for one in self._inputs]
        lines = [f"def run({', '.join(inputs)}):"]
        for index, (step, runner, dropped) in enumerate(
            zip(self.steps, self._runners, self._dropped, strict=True)
        ):
            if isinstance(step, Subgraph):
                text.namespace[f"p{index}"] = runner
                results = tuple_text(text.name(one) for one in step.results)
                numbers = tuple_text(text.name(one) for one in step.numbers)
                tensors = tuple_text(text.name(one) for one in step.tensors)
                to = f"{results} = " if step.results else ""
                lines.append(f"    {to}p{index}({numbers}, {tensors})")
                lines += [f"    {text.call(node)}" for node in step.switches]
            else:
                lines.append(f"    {text.name(step)} = {text.call(step)}")
            if dropped:
                lines.append(f"    del {', '.join(text.name(one) for one in dropped)}")
        lines.append(f"    return {tuple_text(map(text.value, self._results))}")
        return defined("run", lines, text.namespace)


class _DriverText:
    """Nodes as Python text."""

    def __init__(self) -> None:
        self.namespace: dict[str, Any] = {}
        self._names: dict[torch.fx.Node, str] = {}

    def name(self, node: torch.fx.Node) -> str:
        """The variable of a node."""
        return self._names.setdefault(node, f"v{len(self._names)}")

    def value(self, one: Any) -> str:
        """An argument."""
        if isinstance(one, torch.fx.Node):
            if one.op == "get_attr":
                return self._constant(constant(one))
            return self.call(one) if is_number(one) else self.name(one)
        if one is None or type(one) in (int, bool, str):
            return repr(one)
        if type(one) in (tuple, torch.fx.immutable_collections.immutable_list, list):
            parts = tuple_text(map(self.value, one))
            return parts if type(one) is tuple else f"[*{parts}]"
        if isinstance(one, dict):
            return f"{{{', '.join(f'{key!r}: {self.value(each)}' for key, each in one.items())}}}"
        if isinstance(one, slice):
            return f"slice({', '.join(map(self.value, (one.start, one.stop, one.step)))})"
        return self._constant(one)

    def call(self, node: torch.fx.Node) -> str:
        """What a node does."""
        arguments = [self.value(one) for one in node.args]
        named = [f"{name}={self.value(one)}" for name, one in node.kwargs.items()]
        if node.op == "call_method":
            return f"{arguments[0]}.{node.target}({', '.join([*arguments[1:], *named])})"
        return f"{self._constant(node.target)}({', '.join([*arguments, *named])})"

    def _constant(self, value: Any) -> str:
        name = f"c{len(self.namespace)}"
        self.namespace[name] = value
        return name
