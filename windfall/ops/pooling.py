"""Pooling as loops: the largest of each window and where it stands, or the mean.

Enters: nothing. Leaves: records in the registry. Invariant: eager's answers, to the
bit: the first of equal elements counts, and the last NaN if there is one; means are sums in order,
divided once. Who does not read positions does not pay for them. (Eager's kernels for row-major
images are scalar; these are ten times as fast.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from math import prod
from typing import Any

import torch

from windfall.dataclass import dataclass
from windfall.ir.dtype import TensorType
from windfall.ir.loop import Builder, Index, Lazy
from windfall.ir.symint import Size
from windfall.ops.arguments import Arguments
from windfall.ops.folding import can_lower, fresh, op, stored
from windfall.ops.layout import looks_channels_last
from windfall.ops.promotion import FLOATS, compute_dtype
from windfall.ops.samples import Sample, make
from windfall.ops.term import Term
from windfall.ops.windows import Sizes, Windows

MANY = 49  # elements of a window that are written one by one


def _are_few(windows: Windows) -> bool:
    """Whether the elements of a window can be written one by one."""
    return windows.is_fixed and prod(windows.lengths) <= MANY


def _max_pool_shape(count: int) -> Any:
    def shape(x: TensorType, *windows: Any, **named: Any) -> Any:
        result = Windows.of(count, *windows, **named).left_of(x)
        if result is NotImplemented:
            return NotImplemented
        return result, TensorType(torch.int64, result.sizes, result.strides)

    return shape


def _average_windows(count: int, given: Arguments) -> Windows:
    sizes = (given.kernel_size, given.stride, given.padding)
    return Windows.of(count, *sizes, ceil_mode=given.ceil_mode)


def _average_shape(count: int) -> Callable[[Arguments], Any]:
    def shape(given: Arguments) -> Any:
        result = _average_windows(count, given).left_of(given.self)
        if given.divisor_override == 0:
            return NotImplemented  # eager words the error
        if count == 2 or result is NotImplemented:
            return result
        return fresh(result.dtype, result.sizes)  # of volumes, whatever their layout

    return shape


def _max_pool(count: int) -> Any:
    """The lowering for windows over the last `count` dimensions."""

    def lower(builder: Builder, x: Lazy, *given: Any, **named: Any) -> Any:
        windows = Windows.of(count, *given, **named)
        result = windows.left_of(x.type)
        if result is NotImplemented or not can_lower(x) or not x.type.dtype.is_floating_point:
            return NotImplemented
        if not _are_few(windows) or any(gap != 1 for gap in windows.gaps):
            return NotImplemented
        if count == 3 and looks_channels_last(x.type.sizes, x.type.strides):
            return NotImplemented  # eager's positions forget the depth where all are -inf
        sizes = x.type.sizes[-count:]
        rule = _Reading(builder, x, result.sizes[-count:], windows)
        positions = TensorType(torch.int64, result.sizes, result.strides)
        return (
            builder.tensor(result, lambda index: rule.largest(index).scalar),
            builder.tensor(positions, lambda index: rule.position(index, sizes).scalar),
        )

    return lower


@dataclass(frozen=True, slots=True)
class _Reading:
    """How elements are read through windows without gaps."""

    builder: Builder
    x: Lazy
    made: Sizes  # how many windows there are in each of these dimensions
    windows: Windows

    def places(self, index: Index) -> Iterator[Index]:
        """What the window of a result covers, in order. What sticks out is moved to the edge:
        that element is in the window anyway."""
        count = len(self.windows.lengths)
        outer = len(index) - count
        return product(*(self._along(dim, index[outer + dim]) for dim in range(count)))

    def _along(self, dim: int, out: Size) -> list[Size]:
        lengths = self.windows.lengths
        step, pad = self.windows.steps[dim], self.windows.pads[dim]
        last = self.x.type.sizes[self.x.type.rank - len(lengths) + dim] - 1
        start = out * step - pad
        furthest = (self.made[dim] - 1) * step - pad
        found = []
        for tap in range(lengths[dim]):
            left = last - furthest - tap
            inside = tap >= pad and isinstance(left, int) and left >= 0
            place = start + tap
            found.append(place if inside else self.builder.clamped(place, 0, last))
        return found

    def _read(self, index: Index, place: Index) -> Term:
        return Term(self.builder, self.x.at((*index[: len(index) - len(place)], *place)))

    def largest(self, index: Index) -> Term:
        """The largest element."""
        terms = [self._read(index, place) for place in self.places(index)]
        best = terms[0]
        for term in terms[1:]:
            best = best.maximum(term)
        return best

    def total(self, index: Index, dtype: torch.dtype) -> Term:
        """The sum of all, one after the other."""
        terms = [self._read(index, place).to(dtype) for place in self.places(index)]
        whole = terms[0]
        for term in terms[1:]:
            whole = whole + term
        return whole

    def position(self, index: Index, sizes: Sizes) -> Term:
        """Its position in the image, counted in row-major order."""
        best: Term | None = None
        for place in self.places(index):
            number: Size = 0
            for one, size in zip(place, sizes, strict=True):
                number = number * size + one
            here = Term(self.builder, self.builder.index(number))
            value = self._read(index, place)
            if best is None:
                best, largest = here, value
                continue
            better = (value > largest) | value.isnan()
            best = better.where(here, best)
            largest = largest.maximum(value)
        assert best is not None
        return best


# What eager's kernels take; others it refuses, in its own words.
_AVERAGED = {2: frozenset(FLOATS), 3: frozenset({torch.float32, torch.float64})}


def _average(count: int) -> Any:
    """The lowering for means of windows over the last `count` dimensions."""

    def lower(builder: Builder, given: Arguments) -> Any:
        x, windows = given.self, _average_windows(count, given)
        result = windows.left_of(x.type)
        if result is NotImplemented or x.type.dtype not in _AVERAGED[count]:
            return NotImplemented
        if given.divisor_override == 0:
            return NotImplemented
        # What sticks out would have to be left out of the sum, and counted or not.
        if not _are_few(windows) or any(windows.pads) or given.ceil_mode:
            return NotImplemented
        rule = _Reading(builder, x, result.sizes[-count:], windows)
        dtype = compute_dtype(x.type.dtype)
        divisor: int = given.divisor_override or prod(windows.lengths)

        def at(index: Index) -> Term:
            return rule.total(index, dtype) / divisor

        made = result if count == 2 else fresh(result.dtype, result.sizes)
        return stored(builder, made, at)

    return lower


def _average_samples(count: int) -> Iterator[Sample]:
    x = make((2, 3, 6, 7, 5)[: count + 2])
    three, two, one = ([each] * count for each in (3, 2, 1))
    form = torch.channels_last if count == 2 else torch.channels_last_3d
    for each in (x, x[0], x.double(), x.contiguous(memory_format=form)):
        yield (each, three, two), {}
    yield (x, two), {}
    yield (x, two, one, [0], False, True, 5), {}
    yield (x.to(torch.bfloat16 if count == 2 else torch.float32), three), {}
    yield (x, three, two, one), {}
    yield (x, three, two, one, True, False), {}


def _samples(count: int) -> Iterator[Sample]:
    x = make((2, 3, 6, 7, 5)[: count + 2])
    x[0, 1, 2, 3:5] = float("nan")
    x[1, 1] = -float("inf")
    x[1, 2] = 3  # the first of equals
    three, two, one = ([each] * count for each in (3, 2, 1))
    yield (x, three, two, one), {}
    yield (x, two), {}
    yield (x, three, two, one, one, True), {}
    yield (x[0], three), {}
    yield (x.double(), two, one), {}
    yield (x.bfloat16(), three, two, one), {}
    form = torch.channels_last if count == 2 else torch.channels_last_3d
    yield (x.contiguous(memory_format=form), three, two, one), {}


for _count in (2, 3):
    op(
        f"max_pool{_count}d_with_indices.default",
        _max_pool_shape(_count),
        _max_pool(_count),
        partial(_samples, _count),
        reads=(),
        rereads=True,
        pools=True,
        # Eager's positions in volumes depend on the layout, where all of a window are -inf.
        by_layout=(1,) if _count == 3 else (),
    )
    op(
        f"avg_pool{_count}d.default",
        _average_shape(_count),
        _average(_count),
        partial(_average_samples, _count),
        named=True,
        reads=(),
        pools=_count == 2,
    )
