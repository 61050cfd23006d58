"""The compilers under comparison: windfall with either backend, torch.compile, and none.

Enters: a function. Leaves: its compiled form, and how many graphs with how many operations were
made of it, counted in the same way for each: by the backend that receives them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.fx


class CountingBackend:
    """Runs a graph as it is, and counts it."""

    def __init__(self) -> None:
        self.modules: list[torch.fx.GraphModule] = []

    def __call__(self, module: torch.fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
        self.modules.append(module)
        return module.forward

    def operations(self) -> list[int]:
        """How many operations each graph has; graphs without any do not count."""
        counts = [operations(module.graph) for module in self.modules]
        return [count for count in counts if count]


def operations(graph: torch.fx.Graph) -> int:
    """The nodes that do something."""
    return sum(node.op.startswith("call") for node in graph.nodes)


class Uncompiled:
    """The function itself: what the harness must find no difference in."""

    exact = True

    def compile(self, function: Callable[..., Any]) -> Callable[..., Any]:
        return function

    def graphs(self) -> list[int]:
        return []

    def notes(self) -> list[str]:
        return []


class TorchCompile:
    """The peer, with a backend that runs graphs as they are."""

    exact = False  # its rewriting of the optimizer changes the last bit

    def __init__(self, **settings: Any) -> None:
        self.settings = settings
        self.backend = CountingBackend()

    def compile(self, function: Callable[..., Any]) -> Callable[..., Any]:
        torch._dynamo.reset()
        return torch.compile(function, backend=self.backend, **self.settings)

    def graphs(self) -> list[int]:
        return self.backend.operations()

    def notes(self) -> list[str]:
        return []


class Windfall:
    """windfall; `backend` "eager" runs captured graphs as they are, "windfall" compiles them."""

    def __init__(self, backend: str = "eager", **options: Any) -> None:
        self.exact = backend == "eager"
        self.backend = backend
        self.options = {"strict": True, "verify": True, **options}

    def compile(self, function: Callable[..., Any]) -> Callable[..., Any]:
        import windfall

        self.compiled: Any = windfall.compile(function, backend=self.backend, options=self.options)
        return self.compiled

    @property
    def explanation(self) -> Any:
        import windfall

        return windfall.explanation(self.compiled)

    def graphs(self) -> list[int]:
        return [operations(one.graph) for one in self.explanation.graphs]

    def notes(self) -> list[str]:
        told = self.explanation
        breaks = [f"break W{one.number:04d} at {one.where}: {one.detail}" for one in told.breaks]
        return breaks + [f"ran eagerly: {reason}" for reason in told.fallbacks]
