"""Integers at their limits: powers wrap, and ops refuse numbers that a type does not hold."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import windfall

DTYPES = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)


@pytest.mark.parametrize("dtype", DTYPES)
def test_powers(dtype: torch.dtype) -> None:
    """Every kind of base, and exponents of every length."""
    about = torch.iinfo(dtype)
    ends = [about.max, about.max - 1, about.max // 2, about.max // 2 + 1, about.min]
    numbers = [
        *ends,
        0,
        1,
        2,
        3,
        5,
        7,
        8,
        15,
        31,
        63,
        64,
        100,
        *([-1, -2, -3] if about.min else []),
    ]
    bases = torch.tensor(numbers, dtype=dtype)
    exponents = torch.tensor([one for one in numbers if one >= 0], dtype=dtype)

    def run(a: Tensor, b: Tensor) -> tuple[Tensor, ...]:
        return a[:, None] ** b, 3**b, a**2, a**3, a**7, a.pow(0)

    compiled = windfall.compile(run)
    for ours, eagers in zip(compiled(bases, exponents), run(bases, exponents), strict=True):
        assert ours.dtype == eagers.dtype
        assert torch.equal(ours, eagers)
    assert windfall.explanation(compiled).eager == {}


OUTSIDE: dict[str, Callable[[Tensor], Tensor]] = {
    "clamp": lambda a: a.clamp(-5, 1 << 70),
    "clamp_max": lambda a: a.clamp_max(1 << 63),
    "a bound": lambda a: a.clamp(max=torch.iinfo(a.dtype).max + 1),
    "pow": lambda a: a ** (torch.iinfo(a.dtype).max + 1),
    "hardtanh": lambda a: F.hardtanh(a, -3, 3),
    "below an unsigned type": lambda a: a.clamp(min=-1),
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("op", OUTSIDE)
def test_numbers_that_a_type_does_not_hold(op: str, dtype: torch.dtype) -> None:
    """Most are refused; some wrap."""
    a, function = torch.tensor([0, 1, 2, 100], dtype=dtype), OUTSIDE[op]
    try:
        wanted = function(a)
    except (RuntimeError, OverflowError) as error:
        with pytest.raises(type(error)):
            windfall.compile(function)(a)
    else:
        assert torch.equal(windfall.compile(function)(a), wanted)
