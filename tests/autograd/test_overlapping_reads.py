"""Ops that read the memory that they write, at other places: eager raises, or answers what its
loops come to; so it does them (W0212). What reads no element that is written runs natively."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.autograd.both import Compile, both, raised

Write = Callable[[Tensor, Tensor], Any]
WRITES: dict[str, Write] = {
    "add_": lambda target, source: target.add_(source, alpha=2),
    "mul_": lambda target, source: target.mul_(source),
    "copy_": lambda target, source: target.copy_(source),
    "lerp_": lambda target, source: target.lerp_(source, 0.3),
    "addcmul_": lambda target, source: target.addcmul_(source, source),
    "foreach": lambda target, source: torch._foreach_add_([target], [source]),
}
# Of one memory: what is written, what is read, and whether they meet.
PLACES: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor], bool]] = {
    "its column": (lambda x: x, lambda x: x[:, 1:2], True),
    "its column as a row": (lambda x: x, lambda x: x[:, 1], True),
    "its diagonal": (lambda x: x, lambda x: x.diagonal(), True),
    "a column, a crossing row": (lambda x: x[:, 0], lambda x: x[2], True),
    "shifted columns": (lambda x: x[:, 1:4], lambda x: x[:, 0:3], True),
    "two columns": (lambda x: x[:, 0], lambda x: x[:, 1], False),
    "even and odd columns": (lambda x: x[:, 0:4:2], lambda x: x[:, 1:4:2], False),
    "two rows": (lambda x: x[1], lambda x: x[0], False),
    "itself": (lambda x: x[:, 1:3], lambda x: x[:, 1:3], False),
    "quarters": (lambda x: x[:2, :2], lambda x: x[2:4, 2:4], False),
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("write", WRITES)
def test_as_eager(write: str, place: str) -> None:
    target, source, meet = PLACES[place]

    def scenario(compile: Compile) -> Any:
        def run(x: Tensor) -> None:
            WRITES[write](target(x), source(x))

        x = torch.arange(25.0, dtype=torch.float64).view(5, 5)
        return raised(lambda: compile(run)(x)), x

    both(scenario, {"a graph, op by op": 1} if meet else None)
