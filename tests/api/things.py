"""Functions, classes and modules that tests pickle: they must be importable by name."""

from __future__ import annotations

import torch

import windfall


def plain(x: torch.Tensor) -> torch.Tensor:
    return x * 2 + 1


@windfall.compile(fullgraph=True)
def decorated(x: torch.Tensor) -> torch.Tensor:
    """Compiled under its own name."""
    return x.exp() - 1


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Linear(4, 8)
        self.norm = torch.nn.BatchNorm1d(8)
        self.drop = torch.nn.Dropout(0.5)
        self.last = torch.nn.Linear(8, 2)
        self.register_buffer("calls", torch.zeros((), dtype=torch.long))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return self.last(self.drop(self.norm(self.first(x)).relu()))


class Scaled:
    def __init__(self, by: float) -> None:
        self.by = by

    def method(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.by


def eager_backend(module: torch.fx.GraphModule, example_inputs: list[torch.Tensor]) -> object:
    return module.forward
