"""Numbers that vary, given to an op as Python's own: they stay where a dtype holds them.

Enters: an overload and its arguments as types, among which expressions stand where the schema says
`Scalar`. Leaves: the fact, relied upon in every call of what is being compiled, that each of these
numbers lies in the range of the dtype it is converted to; where it does not now, a `Specialise`:
then it is a constant, of which eager says what it means (`value cannot be converted to type int8_t
without overflow`, or an answer). Invariant: no number is wrapped or rounded to infinity that eager
would refuse. Integers that vary are at most 32 bits wide, so that wide dtypes ask nothing.

    x: i8[3], n        x.fill_(n)      -128 <= n, n <= 127
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from windfall.errors import Specialise
from windfall.ir.dtype import TensorType
from windfall.ir.relation import assumptions, decide, told
from windfall.ir.symint import Expression, Size, hint_of, reads_of
from windfall.ops.schema import Plan


def range_of(dtype: torch.dtype) -> tuple[int, int]:
    """The least and the greatest integer that a dtype holds. (Of bool, each is a truth.)"""
    if dtype is torch.bool:
        dtype = torch.int64
    if dtype.is_floating_point or dtype.is_complex:
        most = int(torch.finfo(dtype).max)
        return -most, most
    limits = torch.iinfo(dtype)
    return limits.min, limits.max


def holds(dtype: torch.dtype, number: Any) -> bool:
    """Whether a dtype holds a constant. (Expressions, complex numbers and truths are not asked
    about; infinities and NaNs are numbers of floating-point types only.)"""
    if type(number) not in (int, float):
        return True
    if type(number) is float and not math.isfinite(number):
        return dtype.is_floating_point or dtype.is_complex
    low, high = range_of(dtype)
    return bool(low <= number <= high)


def rely_on_ranges(plan: Plan, func: Any, types: Sequence[Any], named: Mapping[str, Any]) -> None:
    """Rely on it that the numbers among these arguments fit, if anything may be assumed now. (What
    is derived from a capture, a gradient say, has the numbers of the capture.)"""
    assumed = assumptions()
    if assumed is None or assumed.closed:
        return
    for position in plan.numbers:
        value = plan.argument(position, types, named)
        for one in value if isinstance(value, list | tuple) else (value,):
            if isinstance(one, Expression):
                rely_on_range(one, dtype_beside(plan, types, named), str(func))


def rely_on_range(size: Size, dtype: torch.dtype, purpose: str) -> None:
    """Rely on it that a number lies in the range of a dtype."""
    for operation, limit in zip((">=", "<="), range_of(dtype), strict=True):
        rely_on_bound(size, operation, limit, f"{purpose} of {dtype}")


def rely_on_bound(size: Size, operation: str, limit: int, purpose: str) -> None:
    """Rely on a comparison that eager makes of a number; where it fails, the number is needed."""
    if abs(limit) >= _WIDEST:
        return  # no size is wider
    fits = told(operation, size, limit)
    if fits is None and not reads_of(size):
        fits = _HOLDS[operation](hint_of(size), limit) and decide(operation, size, limit)
    if not fits and isinstance(size, Expression):
        reason = Specialise(size.names, f"whether {purpose} takes {size}")
        # Other values may do without; what is read from data is another one each time.
        reason.passing = not reads_of(size)
        raise reason


_WIDEST = (1 << 63) - 1
_HOLDS = {
    ">=": lambda value, limit: value >= limit,
    "<=": lambda value, limit: value <= limit,
}


def dtype_beside(plan: Plan, types: Sequence[Any], named: Mapping[str, Any]) -> torch.dtype:
    """What numbers are converted to: what the call asks for, else the dtype of its tensors. (Where
    the number decides, `torch.full((), n)`, it is int64.)"""
    if "dtype" in plan.names:
        asked = plan.argument(plan.names.index("dtype"), types, named)
        if isinstance(asked, torch.dtype):
            return asked
    for one in (*types, *named.values()):
        for each in one if isinstance(one, list | tuple) else (one,):
            if isinstance(each, TensorType):
                return each.dtype
    return torch.int64
