"""Strides of `x[positions]`: eager lays a result out by the strides of x and of the positions,
those of dimensions of size 1 among them.

The rule is asked for every pattern of indexed dimensions, of layouts of x and of positions; and one
program of each kind is compiled.
"""

from __future__ import annotations

import itertools

import pytest
import torch

import windfall
from tests.ops.agreement import types_of
from windfall.ops.registry import lookup

LAYOUTS = {
    "rows": lambda: torch.randn(3, 4, 5),
    "columns": lambda: torch.randn(5, 4, 3).permute(2, 1, 0),
    "inner two changed": lambda: torch.randn(3, 5, 4).transpose(1, 2),
    "outer two changed": lambda: torch.randn(4, 3, 5).transpose(0, 1),
    "one row, of columns": lambda: torch.randn(3, 4).t().contiguous().t()[None],
    "one inside": lambda: torch.randn(3, 5)[:, None],
    "one at the end": lambda: torch.randn(4, 3).t()[..., None],
    "ones around": lambda: torch.randn(4)[None, :, None],
    "steps": lambda: torch.randn(3, 4, 10)[..., ::2],
    "repeated": lambda: torch.randn(1, 4, 5).expand(3, 4, 5),
}
POSITIONS = (
    lambda: torch.tensor([0, -1, 0]),
    lambda: torch.tensor([[0, 0], [0, -1]]),
    lambda: torch.tensor([[0, 0], [-1, 0]]).t(),
    lambda: torch.tensor([[0], [-1]]),
    lambda: torch.tensor([0]),
    lambda: torch.tensor(0),
    lambda: torch.tensor([0]).expand(3),
    lambda: torch.tensor([0, 0, 0, 0])[::2],
)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_rule_follows_eager(layout: str) -> None:
    """All patterns of three dimensions, with two kinds of positions beside each other."""
    op = torch.ops.aten.index.Tensor
    rule = lookup(op).shape
    x = LAYOUTS[layout]()
    wrong = []
    for pattern in itertools.product((False, True), repeat=3):
        for first, second in itertools.product(POSITIONS, repeat=2):
            given = itertools.cycle((first(), second()))
            positions = [next(given) if indexed else None for indexed in pattern]
            while positions and positions[-1] is None:
                positions.pop()
            if not positions:
                continue
            try:
                expected = op(x, positions)
            except IndexError:
                continue  # positions that do not broadcast
            found = rule(types_of(x), types_of(positions))
            if (found.sizes, found.strides) != (tuple(expected.shape), expected.stride()):
                wrong.append((positions, expected.stride(), found.strides))
    assert not wrong


@pytest.mark.parametrize("dynamic", [None, True])
def test_compiled(dynamic: bool | None) -> None:
    def program(x, i):
        return x[None, i], x[None, None, i], x[:, None, i], x[i, None], x[None, :, i][0]

    compiled = windfall.compile(program, dynamic=dynamic, fullgraph=True)
    for size in (4, 6):
        for x in (torch.randn(3, size), torch.randn(size, 3).t(), torch.randn(3, 2 * size)[:, ::2]):
            i = torch.tensor([2, 0, 1])
            for expected, given in zip(program(x, i), compiled(x, i), strict=True):
                assert torch.equal(expected, given)
                assert expected.stride() == given.stride()
    assert not windfall.explanation(compiled).fallbacks
