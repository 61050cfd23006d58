"""Results without a tangent, of sizes that vary and that nothing relates: the backward pass asks
nothing that was not decided when its forward pass was compiled."""

from __future__ import annotations

import torch

from tests.fuzz.chains import Argument, Chain, Recipe, problems

SIZES = (4, 3, 5)


def test_a_zero_of_unrelated_sizes() -> None:
    arguments = (
        Argument(SIZES, torch.float32, False),
        Argument(SIZES[1:], torch.float32, True),
        Argument(SIZES, torch.float32, True),
    )
    recipe = Recipe(arguments, SIZES, alias=False, gradient=True)
    lines = ("v0 = x2.masked_fill(x0>0,-1)", "v1 = torch.clip(v0,x2,x1)")
    found, explained = problems(Chain(20022, recipe, lines, ("v0", "v1")))
    assert not found
    assert explained.graphs
    assert not explained.breaks
