"""Which dtype an op computes in: torch's type promotion, from our own tables.

Enters: the operands of an op, `TensorType`s and Python numbers. Leaves: a dtype. Invariant: equals
`torch.result_type` for every mix of tensors with dimensions, 0-dim tensors and numbers, at the
cost of a few dict lookups (every fake op asks).

    >>> common_dtype((TensorType.contiguous(torch.int32, (2,)), 1.5))
    torch.float32
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from windfall.ir.dtype import TensorType

Number = bool | int | float | complex

REDUCED = (torch.float16, torch.bfloat16)
FLOATS = (torch.float64, torch.float32, *REDUCED)
INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool)

# What generated code can hold in a register: the lowering of anything else is a call of the op.
LOWERABLE = frozenset((*FLOATS, *INTEGERS))

# 0 bool, 1 integer, 2 float, 3 complex: a lower category never changes a higher one's dtype.
_CATEGORY: dict[torch.dtype, int] = {}
_PROMOTED: dict[tuple[torch.dtype, torch.dtype], torch.dtype] = {}
# bfloat16 has a complex dtype of its own from torch 2.15 on: asked, not written.
_TO_COMPLEX = {dtype: dtype.to_complex() for dtype in FLOATS}
TO_REAL = {
    torch.complex32: torch.float16,
    torch.complex64: torch.float32,
    torch.complex128: torch.float64,
}


def category(dtype: torch.dtype) -> int:
    """0 for bool, 1 for integers, 2 for floats, 3 for complex numbers."""
    found = _CATEGORY.get(dtype)
    if found is None:
        found = 3 if dtype.is_complex else 2 if dtype.is_floating_point else 1
        found = _CATEGORY[dtype] = 0 if dtype is torch.bool else found
    return found


def promote(first: torch.dtype, second: torch.dtype) -> torch.dtype:
    """The smallest dtype that both fit in, by torch's lattice."""
    if first is second:
        return first
    found = _PROMOTED.get((first, second))
    if found is None:
        found = _PROMOTED[(first, second)] = torch.promote_types(first, second)
    return found


def number_dtype(value: Any) -> torch.dtype:
    """The dtype of a Python number among tensors: the default one of its category."""
    if isinstance(value, bool):
        return torch.bool
    if isinstance(value, float):
        return torch.get_default_dtype()
    if isinstance(value, complex):
        return _TO_COMPLEX[torch.get_default_dtype()]
    return torch.int64  # an int, or a size that is not known yet


def _combine(higher: torch.dtype | None, lower: torch.dtype | None) -> torch.dtype | None:
    """Join two priorities (tensors with dimensions before 0-dim ones before numbers): the lower
    one counts only where its category is above the higher one's."""
    if higher is None or lower is None:
        return higher or lower
    if category(higher) >= category(lower):
        return higher
    if category(higher) == 2:
        return _TO_COMPLEX.get(higher, lower)
    return promote(higher, lower)


def common_dtype(operands: Iterable[Any]) -> torch.dtype:
    """`torch.result_type` of operands: `TensorType`s and Python numbers (None is skipped)."""
    dimensioned: torch.dtype | None = None
    zero: torch.dtype | None = None
    number: torch.dtype | None = None
    for operand in operands:
        if isinstance(operand, TensorType):
            dtype = operand.dtype
            if operand.sizes:
                dimensioned = dtype if dimensioned is None else promote(dimensioned, dtype)
            else:
                zero = dtype if zero is None else promote(zero, dtype)
        elif operand is not None:
            dtype = number_dtype(operand)
            number = dtype if number is None else promote(number, dtype)
    if dimensioned is not None and zero is None and number is None:
        return dimensioned
    result = _combine(dimensioned, _combine(zero, number))
    assert result is not None, "an op needs an operand"
    return result


def to_float(dtype: torch.dtype) -> torch.dtype:
    """The dtype itself, or the default float for integers."""
    return dtype if category(dtype) >= 2 else torch.get_default_dtype()


def compute_dtype(dtype: torch.dtype) -> torch.dtype:
    """What eager computes in: half precision is widened to float32, then rounded once."""
    return torch.float32 if dtype in REDUCED else dtype
