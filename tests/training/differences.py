"""What a user can see of two training loops, compared: results, tensors, states.

Enters: two values of any nesting, and where they were found. Leaves: the first difference, in
words. Types, strides and versions count; numbers may differ by rounding.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch


def difference(one: Any, other: Any, where: str, close: float) -> str:
    """What differs first, in words; "": nothing."""
    if type(one) is not type(other):
        return f"{where}: {type(other)}, not {type(one)}"
    if isinstance(one, torch.Tensor):
        return _of_tensors(one, other, where, close)
    if isinstance(one, list | tuple):
        pairs = {f"{where}[{at}]": pair for at, pair in enumerate(zip(one, other, strict=False))}
        if len(one) != len(other):
            return f"{where}: {len(other)} items, not {len(one)}"
    elif isinstance(one, dict):
        if one.keys() != other.keys():
            return f"{where}: {other.keys()}, not {one.keys()}"
        pairs = {f"{where}[{key!r}]": (one[key], other[key]) for key in one}
    elif isinstance(one, float):
        alike = one == pytest.approx(other, rel=close, abs=close / 10, nan_ok=True)
        return "" if alike else f"{where}: {other}, not {one}"
    else:
        return "" if one == other else f"{where}: {other}, not {one}"
    found = (difference(*pair, place, close) for place, pair in pairs.items())
    return next(filter(None, found), "")


def _of_tensors(one: torch.Tensor, other: torch.Tensor, where: str, close: float) -> str:
    alike = ("requires_grad", "is_leaf", "layout", "dtype", "shape")
    for name in alike:
        if getattr(one, name) != getattr(other, name):
            return f"{where}.{name}: {getattr(other, name)}, not {getattr(one, name)}"
    if one.is_sparse:
        return _of_tensors(one.to_dense(), other.to_dense(), where, close)
    # How often an engine has added to a gradient is its own affair.
    if one.stride() != other.stride() or (
        one._version != other._version and "gradients" not in where
    ):
        return f"{where}: strides or version"
    try:
        torch.testing.assert_close(other, one, rtol=close, atol=close / 10, equal_nan=True)
    except AssertionError as error:
        return f"{where}: {error}"
    return ""
