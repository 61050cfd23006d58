"""Reductions of the same elements, seen with different sizes, in one kernel: each is done once."""

from __future__ import annotations

import pytest
import torch

import windfall

REDUCTIONS = {
    "sum": lambda x: x.sum(),
    "mean": lambda x: x.mean(),
    "var": lambda x: x.var(),
    "std of cubes": lambda x: (x**3).std(),
    "norm": lambda x: x.norm(),
    "product": lambda x: (x / 10 + 1).prod(),
    "softmax": lambda x: x.flatten().softmax(0)[0],
    "logsumexp": lambda x: x.flatten().logsumexp(0),
    "largest": lambda x: x.amax(),
    "where the largest is": lambda x: x.flatten().argmax(),
    "all": lambda x: (x > -9).all(),
}
VIEWS = {
    "flat": lambda x: x.view(-1),
    "longer rows": lambda x: x.view(x.shape[0] // 2, -1),
    "deeper": lambda x: x.unsqueeze(0),
    "turned": lambda x: x.t(),
    "halves": lambda x: x.view(2, -1, x.shape[1]),
}


@pytest.mark.parametrize("size", [4, 33, 600])
@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_the_same_elements_are_reduced_twice(reduction: str, view: str, size: int) -> None:
    reduce, seen = REDUCTIONS[reduction], VIEWS[view]

    def both(x):
        return reduce(seen(x)) * 1, reduce(x) * 1, reduce(seen(x)) + reduce(x)

    x = torch.randn(size * 2, size, dtype=torch.float64)
    compiled = windfall.compile(both)
    torch.testing.assert_close(compiled(x), both(x))
    assert windfall.explanation(compiled).eager == {}


@pytest.mark.parametrize("size", [4, 600])
def test_rows_are_reduced_twice(size: int) -> None:
    def rows(x):
        return x.sum(1) + x.unsqueeze(1).sum((1, 2)), x.view(size, 1, -1).mean(-1) - x.mean(1, True)

    x = torch.randn(size, size * 3, dtype=torch.float64)
    torch.testing.assert_close(windfall.compile(rows)(x), rows(x))
