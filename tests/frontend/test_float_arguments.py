"""Floats from outside that go straight into a function of torch: what varies is compiled twice, not
for each value; answers and gradients are eager's, at ties and NaN too."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

import windfall

Program = Callable[[torch.Tensor, torch.Tensor, float], torch.Tensor]
PROGRAMS: dict[str, Program] = {
    "lerp": lambda x, y, b: x.lerp(y, b),
    "lerp in place": lambda x, y, b: x.clone().lerp_(y, b),
    "clamp": lambda x, y, b: x.clamp(-b, b),
    "clamp, one end fixed": lambda x, y, b: x.clamp(-1, b),
    "clamp, by name": lambda x, y, b: torch.clamp(x, max=b),
    "clamp in place": lambda x, y, b: (x * 1).clamp_(min=b),
    "clip": lambda x, y, b: x.clip(b, None),
    "clamp_min": lambda x, y, b: torch.clamp_min(x, b),
    "clamp_max": lambda x, y, b: x.clamp_max(b),
    "fill": lambda x, y, b: torch.fill(x, b) * y,
    "fill in place": lambda x, y, b: (x * 1).fill_(b) + x * y,
    "masked_fill": lambda x, y, b: x.masked_fill(y > 0, b),
    "add": lambda x, y, b: torch.add(x, y, alpha=b),
    "addcmul": lambda x, y, b: torch.addcmul(x, x, y, value=b),
    "pow": lambda x, y, b: torch.pow(x.abs() + 1, b),
}
CHOOSING = ("cl", "masked_fill")  # which compute nothing: equal to the bit
NUMBERS = (0.5, 0.25, 0.37, 0.62, 0.71, 2.0, 3.5)


def _outcome(program: Program, kind: torch.dtype, number: float) -> tuple[torch.Tensor, ...]:
    values = [number, -number, 0.3, math.nan, -0.0, 5.0, -1.0, 1.0]
    x = torch.tensor(values, dtype=kind, requires_grad=True)
    y = torch.linspace(-1, 1, 8, dtype=kind).requires_grad_()
    answer = program(x, y, number)
    leads = [one for one in torch.autograd.grad(answer.sum(), (x, y), allow_unused=True)]
    return answer.detach(), *(torch.zeros(0) if one is None else one for one in leads)


@pytest.mark.parametrize("kind", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", PROGRAMS)
def test_floats_vary(name: str, kind: torch.dtype) -> None:
    program = PROGRAMS[name]
    compiled: Any = windfall.compile(program)
    for number in NUMBERS:
        found, wanted = _outcome(compiled, kind, number), _outcome(program, kind, number)
        tolerance = 0.0 if name.startswith(CHOOSING) else 1e-6  # sums of products are contracted
        for one, other in zip(found, wanted, strict=True):
            torch.testing.assert_close(one, other, rtol=tolerance, atol=tolerance, equal_nan=True)
    told = windfall.explanation(compiled).to_dict()
    assert told["break_count"] == 0
    assert told["graph_count"] <= 3  # a fraction, a float that varies, one that is no fraction


def test_wide_integers_beside_a_float_that_varies() -> None:
    """2**53 + 1 is no double: the float is needed, and the answer is eager's."""

    def program(x: torch.Tensor, b: float) -> torch.Tensor:
        return x.clamp(b, 2**53 + 1)

    compiled = windfall.compile(program)
    x = torch.tensor([1e30, 0.1], dtype=torch.float64)
    for number in NUMBERS:
        assert torch.equal(compiled(x, number), program(x, number))
