"""Operands that repeat (a stride of 0), made by a kernel of ours for a kernel of torch's.

Such an operand is stored densely. Its rows have to stay rows: torch's attention is chosen for
tensors whose last dimension has no gaps, and takes that for granted.
"""

from __future__ import annotations

import itertools

import pytest
import torch
from torch.nn import functional

import windfall
from windfall.codegen.builder import _packed
from windfall.ir.dtype import TensorType

SIZES = (2, 4, 8, 16)


def _narrow(repeated: tuple[int, ...], transposed: bool, seed: int) -> torch.Tensor:
    """A tensor that is expanded along these dimensions; positions stand before heads in memory."""
    sizes = [1 if place in repeated else size for place, size in enumerate(SIZES)]
    torch.manual_seed(seed)
    if transposed:
        sizes[1], sizes[2] = sizes[2], sizes[1]
        return torch.randn(sizes).transpose(1, 2)
    return torch.randn(sizes)


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("repeated", [(0,), (1,), (2,), (0, 1), (1, 2), (0, 1, 2)])
@pytest.mark.parametrize("which", ["query", "key", "value", "all"])
def test_attention_over_what_repeats(
    which: str, repeated: tuple[int, ...], transposed: bool
) -> None:
    def attention(query, key, value):
        given = {"query": query, "key": key, "value": value}
        for name, one in given.items():
            given[name] = (one * 2).expand(SIZES)
        return functional.scaled_dot_product_attention(**given)

    operands = [
        _narrow(repeated if which in (name, "all") else (), transposed, seed)
        for seed, name in enumerate(("query", "key", "value"))
    ]
    compiled = windfall.compile(attention)
    with torch.no_grad():
        torch.testing.assert_close(compiled(*operands), attention(*operands))
    told = windfall.explanation(compiled)
    assert not told.breaks and not told.eager


@pytest.mark.parametrize("heads", [1, 2])
def test_training_with_keys_that_heads_share(heads: int) -> None:
    def attention(query, key, value):
        shared = [
            one.transpose(1, 2)[:, :, None].expand(2, heads, 4 // heads, 8, 16).reshape(2, 4, 8, 16)
            for one in (key * 2, value + 1)
        ]
        return functional.scaled_dot_product_attention(query.transpose(1, 2), *shared)

    def trained(function):
        torch.manual_seed(0)
        given = [torch.randn(2, 8, n, 16, requires_grad=True) for n in (4, heads, heads)]
        answer = function(*given)
        (answer * torch.arange(16.0)).sum().backward()
        return answer, [one.grad for one in given]

    compiled = windfall.compile(attention)
    torch.testing.assert_close(trained(compiled), trained(attention))
    told = windfall.explanation(compiled)
    assert not told.breaks and not told.eager


def test_packed_as_torch_copies() -> None:
    """Each layout with repeats in three dimensions, against `empty_like`."""
    for order in itertools.permutations(range(3)):
        for count in range(4):
            for repeated in itertools.combinations(range(3), count):
                sizes = [1 if place in repeated else 2 + place for place in range(3)]
                dense = torch.empty([sizes[place] for place in order])
                back = [order.index(place) for place in range(3)]
                given = dense.permute(back).expand(2, 3, 4)
                known = TensorType(given.dtype, tuple(given.shape), given.stride())
                assert _packed(known).strides == torch.empty_like(given).stride()
