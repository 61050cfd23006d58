"""Convolutions over one dimension: results and gradients lie in memory as eager's do, for operands
in every order of dimensions and for any stride of a dimension of size 1 (torch computes them in
four dimensions, and guesses a layout from strides there)."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from windfall.ir.dtype import TensorType
from windfall.ops.fake import FakeMode, fake

SHAPES = ((1, 3, 8), (2, 1, 8), (2, 3, 1), (1, 1, 8), (2, 1, 1), (1, 3, 1), (2, 3, 8), (2, 4, 8))
# Size of the kernel, padding, output channels, groups.
KINDS = ((1, 0, 1, 1), (1, 0, 4, 1), (3, 1, 1, 1), (3, 1, 5, 1), (3, 1, 4, 2), (3, 1, 4, 4))


def layouts(shape: tuple[int, ...], dtype: torch.dtype) -> Iterator[torch.Tensor]:
    for order in itertools.permutations(range(3)):
        back = [order.index(dimension) for dimension in range(3)]
        yield torch.randn([shape[one] for one in order], dtype=dtype).permute(back)
    yield torch.randn([2 * size for size in shape], dtype=dtype)[::2, ::2, ::2]
    for dimension in range(3):
        if shape[dimension] == 1:
            plain = torch.randn(shape, dtype=dtype)
            for stride in (1, 777):
                strides = list(plain.stride())
                strides[dimension] = stride
                yield plain.as_strided(shape, strides)


def compared(function: Any, *arguments: Any) -> None:
    """The rule's answer has eager's types."""
    expected = function(*arguments)
    stand_ins = [
        fake(TensorType.of(one)) if isinstance(one, torch.Tensor) else one for one in arguments
    ]
    with FakeMode():
        found = function(*stand_ins)
    several = isinstance(expected, tuple)
    pairs = zip(found, expected, strict=True) if several else [(found, expected)]
    for have, want in pairs:
        if want is None:
            assert have is None
        else:
            given = [one.stride() for one in arguments if isinstance(one, torch.Tensor)]
            # Of a weight's gradient, a stride along a size of 1 depends on the library's kernel.
            free = several and want is expected[1]
            assert (have.shape, have.dtype) == (want.shape, want.dtype)
            for size, mine, its in zip(want.shape, have.stride(), want.stride(), strict=True):
                assert mine == its or (free and size == 1), given


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_over_one_dimension(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    aten = torch.ops.aten
    for kernel, padding, channels, groups in KINDS:
        if shape[1] % groups or channels % groups:
            continue
        weight = torch.randn(channels, shape[1] // groups, kernel, dtype=dtype)
        turned = weight.transpose(1, 2).contiguous().transpose(1, 2)
        for x, other in itertools.product(layouts(shape, dtype), (weight, turned)):
            rest = ([1], [padding], [1], False, [0], groups)
            compared(aten.convolution.default, x, other, None, *rest)
            grad = torch.randn_like(aten.convolution(x, other, None, *rest))
            mask = [True, True, True]
            compared(aten.convolution_backward.default, grad, x, other, [channels], *rest, mask)
