"""Strides of empty tensors: nobody finds an element by them, but a program can read them."""

from __future__ import annotations

import pytest
import torch

import windfall

SIZES = ((0, 1, 0, 0), (4, 4, 0, 5), (0, 3, 2, 2), (2, 0, 3, 4), (2, 3, 0, 0), (2, 3, 0, 4, 5))


@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_channels_last(sizes: tuple[int, ...]) -> None:
    format = torch.channels_last if len(sizes) == 4 else torch.channels_last_3d

    def program(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = x + 1
        return y.contiguous(memory_format=format), y.clone(memory_format=format), y * 2

    compiled = windfall.compile(program)
    expected, given = program(torch.empty(sizes)), compiled(torch.empty(sizes))
    assert [one.stride() for one in given] == [one.stride() for one in expected]
    assert not windfall.explanation(compiled).fallbacks
