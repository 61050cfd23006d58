"""Two floats from outside, both of which change, beside each other: each outcome is compiled once,
not each value (`if loss < best: best = loss`)."""

from __future__ import annotations

import math
import operator
from typing import Any

import pytest
import torch

import windfall

COMPARISONS = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}
PAIRS = [(0.5, 1.5), (1.25, 2.5), (3.5, 0.75), (2.25, 2.25), (4.5, 0.125), (0.25, 8.5)]


@pytest.mark.parametrize("operation", COMPARISONS)
def test_each_outcome_is_compiled_once(operation: str) -> None:
    compare = COMPARISONS[operation]

    def program(x: torch.Tensor, one: float, other: float) -> torch.Tensor:
        return x + one if compare(one, other) else x - other

    compiled, x = windfall.compile(program), torch.randn(3)
    for pair in PAIRS * 2:
        torch.testing.assert_close(compiled(x, *pair), program(x, *pair))
    told = windfall.explanation(compiled)
    assert len(told.captures) == 3 and not told.breaks  # one of values, one for each outcome
    pair = (math.nan, 1.5)
    torch.testing.assert_close(compiled(x, *pair), program(x, *pair), equal_nan=True)
    assert len(windfall.explanation(compiled).captures) == 3 and not told.eager


def test_one_that_becomes_an_int() -> None:
    def program(x: torch.Tensor, one: float, other: float) -> torch.Tensor:
        return x + one if one < other else x - other

    compiled, x = windfall.compile(program), torch.randn(3)
    for pair in (*PAIRS, (1, 2.5), (0.5, 3), (7, 3), (0.5, 2.5)):
        torch.testing.assert_close(compiled(x, *pair), program(x, *pair))


def test_the_best_loss() -> None:
    """The number is read from data, behind a break; the other one was kept by an earlier call."""

    def step(x: torch.Tensor, kept: dict[str, Any]) -> torch.Tensor:
        now = x.sum().item()
        if now < kept["best"]:
            kept["best"] = now
            kept["times"] += 1
        return x * 2

    compiled = windfall.compile(step)
    one: dict[str, Any] = {"best": math.inf, "times": 0}
    other = dict(one)
    for number in range(12):
        x = torch.randn(4, generator=torch.Generator().manual_seed(number))
        torch.testing.assert_close(compiled(x, one), step(x, other))
        assert one["times"] == other["times"]
        assert one["best"] == pytest.approx(other["best"])
        if number == 7:
            settled = len(windfall.explanation(compiled).captures)
    told = windfall.explanation(compiled)
    assert {one.number for one in told.breaks} == {3} and len(told.captures) == settled
