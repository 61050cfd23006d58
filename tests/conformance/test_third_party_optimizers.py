"""Optimizers of other libraries (the extra `dev-libraries`): a step is one graph, as eager's, and
settles."""

from __future__ import annotations

import importlib
import warnings
from typing import Any

import pytest
import torch

import windfall

# Library, optimizer, and after how many steps nothing is compiled any more.
OPTIMIZERS = [
    ("pytorch_optimizer", "Lion", 3),
    ("pytorch_optimizer", "AdaBelief", 3),
    ("pytorch_optimizer", "Lamb", 3),
    ("pytorch_optimizer", "RAdam", 7),  # one branch of it is taken from the sixth step on
    ("pytorch_optimizer", "Adan", 3),
    ("pytorch_optimizer", "AdaFactor", 3),
    ("torch_optimizer", "DiffGrad", 3),
    ("torch_optimizer", "AdaBound", 3),
    ("torch_optimizer", "RAdam", 31),  # a ring of ten places, filled and found again
]


def step_with(library: Any, name: str) -> tuple[list[torch.nn.Parameter], Any]:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
    x = torch.randn(4, 6)
    optimizer = getattr(library, name)(model.parameters(), lr=1e-3)

    def step() -> torch.Tensor:
        loss: torch.Tensor = model(x).pow(2).mean()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return list(model.parameters()), step


@pytest.mark.conformance
@pytest.mark.parametrize(("library", "name", "settled"), OPTIMIZERS)
def test_steps(library: str, name: str, settled: int) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # theirs
        module = pytest.importorskip(library)
        mine, step = step_with(module, name)
        theirs, reference = step_with(importlib.import_module(library), name)
        compiled, captures = windfall.compile(step), 0
        for count in range(settled + 6):
            torch.testing.assert_close(compiled(), reference(), rtol=1e-5, atol=1e-6)
            torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-6)
            if count == settled - 1:
                captures = len(windfall.explanation(compiled).captures)
    told = windfall.explanation(compiled)
    assert not told.breaks and not told.eager and not told.fallbacks
    assert len(told.captures) == captures
