"""Where tensors lie beside each other in memory: whether two of them share an element.

Enters: types of strided tensors, and the bytes from the start of one to the start of the other.
Leaves: whether they meet, exactly: columns of one matrix interleave and do not. Invariant: never
wrongly denied; where there is too much to look at, they are said to meet.

    >>> row = TensorType(torch.float32, (4,), (2,))       # every second element
    >>> meet(row, row, 4), meet(row, row, 8)
    (False, True)
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch

from windfall.ir.dtype import TensorType

MOST_RUNS = 1 << 20  # runs of bytes that are looked at


def meet(one: TensorType, other: TensorType, distance: int) -> bool:
    """Whether two tensors of fixed sizes share a byte; `distance` is from the first byte of `one`
    to the first byte of `other`."""
    if one.elements == 0 or other.elements == 0:
        return False
    if _interleave(one, other, distance):
        return False
    runs = [_runs(type) for type in (one, other)]
    if any(found is None for found in runs):
        return True
    (starts, length), (others, its_length) = runs  # type: ignore[misc]
    starts, others = starts.sort().values, others + distance
    # The last run that starts before an end of the other's must have ended before that one starts.
    places = torch.searchsorted(starts, others + its_length) - 1
    before = starts[places.clamp(min=0)]
    return bool(((places >= 0) & (before + length > others)).any())


def _interleave(one: TensorType, other: TensorType, distance: int) -> bool:
    """Whether they take turns: all elements of both lie at multiples of one step from their first
    ones, and in each step there is room for both."""
    step = math.gcd(*(stride for type in (one, other) for stride in _steps(type)))
    if not step:
        return distance >= one.dtype.itemsize or -distance >= other.dtype.itemsize
    place = distance % step
    return one.dtype.itemsize <= place and place + other.dtype.itemsize <= step


def _steps(type: TensorType) -> Iterator[int]:
    """Bytes from element to element, along each dimension that has several."""
    for stride, size in zip(type.strides, type.sizes, strict=True):
        if size != 1:
            yield int(str(stride)) * type.dtype.itemsize


def _runs(type: TensorType) -> tuple[torch.Tensor, int] | None:
    """Where the runs of bytes start that a tensor consists of, and how long they are."""
    run = item = type.dtype.itemsize
    pairs = zip(type.strides, type.sizes, strict=True)
    dims = sorted((int(str(stride)) * item, int(str(size))) for stride, size in pairs if size != 1)
    while dims and dims[0][0] == run:
        run *= dims.pop(0)[1]
    count = 1
    for _, size in dims:
        count *= size
    if count > MOST_RUNS:
        return None
    starts = torch.zeros(1, dtype=torch.int64)
    for stride, size in dims:
        starts = (starts[:, None] + torch.arange(size, dtype=torch.int64) * stride).flatten()
    return starts, run
