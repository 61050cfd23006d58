"""What fits several examples: sizes that vary, of which the sizes of answers are cases.

Enters: points, the answers of a rule there, and the sizes that it was given. Leaves: an answer
whose sizes are expressions, or `NONE`. Invariant: at each of the points it is the answer there;
where numbers are read from data, but for strides that mean nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd
from typing import Any

from windfall.ir.dtype import TensorType, contiguous_strides
from windfall.ir.symint import (
    Expression,
    Size,
    evaluate,
    floor_divide,
    maximum,
    minimum,
    modulo,
    reads_of,
)
from windfall.ops.sample_sizes import NEAR, Values, flat

NONE: Any = object()  # nothing fits


def sizes_of(given: Sequence[Any]) -> list[Expression]:
    """The sizes and numbers that vary, of tensors and among arguments, each once."""
    found: dict[Expression, None] = {}
    for one in given:
        if isinstance(one, TensorType):
            found |= dict.fromkeys(sizes_of((*one.sizes, *one.strides)))
        elif isinstance(one, list | tuple):
            found |= dict.fromkeys(sizes_of(one))
        elif isinstance(one, Expression):
            found[one] = None
    return list(found)


class General:
    """What fits examples at several points, of which sizes are one of the candidates, or in
    proportion to one."""

    def __init__(self, points: Sequence[Values], candidates: Sequence[Expression]) -> None:
        self._by_values: dict[tuple[int, ...], Size] = {}
        for one in candidates:
            self._by_values.setdefault(tuple(one.evaluate(p) for p in points), one)
        self._points = points

    def value(self, answers: Sequence[Any]) -> Any:
        """The one value that is each of the answers at its point."""
        first = answers[0]
        if any(one.__class__ is not first.__class__ for one in answers):
            return NONE
        if isinstance(first, TensorType):
            return self._type(answers)
        if isinstance(first, list | tuple):
            if any(len(one) != len(first) for one in answers):
                return NONE
            parts = [self.value(each) for each in zip(*answers, strict=True)]
            return NONE if any(one is NONE for one in parts) else tuple(parts)
        return first if all(one == first for one in answers) else NONE

    def _type(self, answers: Sequence[TensorType]) -> Any:
        first = answers[0]
        if any(one.rank != first.rank or one.dtype != first.dtype for one in answers):
            return NONE
        sizes = [self._size(each) for each in zip(*(one.sizes for one in answers), strict=True)]
        if any(one is NONE for one in sizes):
            return NONE
        strides = self._strides(answers, contiguous_strides(tuple(sizes)))
        if any(one is NONE for one in strides):
            return NONE
        return TensorType(first.dtype, tuple(sizes), strides, first.device)

    def _strides(
        self, answers: Sequence[TensorType], row_major: tuple[Size, ...]
    ) -> tuple[Any, ...]:
        if all(
            tuple(evaluate(stride, values) for stride in row_major) == one.strides
            for one, values in zip(answers, self._points, strict=True)
        ):
            return row_major
        return tuple(
            self._size(each) for each in zip(*(one.strides for one in answers), strict=True)
        )

    def _size(self, values: tuple[Any, ...]) -> Any:
        if all(one == values[0] for one in values):
            return values[0]
        found = self._by_values.get(values, NONE)
        return self._in_proportion(values) if found is NONE else found

    def _in_proportion(self, values: tuple[Any, ...]) -> Any:
        for known, size in self._by_values.items():
            if all(a * known[0] == values[0] * b for a, b in zip(values, known, strict=True)):
                common = gcd(values[0], known[0])
                whole, part = size * (values[0] // common), known[0] // common
                if common and modulo(whole, part) == 0:
                    return floor_divide(whole, part)
        return NONE


def candidates_of(given: Sequence[Any]) -> list[Expression]:
    """What a size may be: one of those that are given, where a slice ends that is given its end,
    or a sum of a size and a number."""
    found = dict.fromkeys(sizes_of(given))
    numbers = flat(given)
    places = [one for one in flat(given, int) if abs(one) <= NEAR][:_PLACES]
    sizes = dict.fromkeys(s for one in given if isinstance(one, TensorType) for s in one.sizes)
    for size in sizes:
        ends = [minimum(one, size) for one in numbers]
        ends += [_end_of_slice(one, size) for one in numbers]
        if reads_of(size):
            ends += [minimum(one, size) if one >= 0 else maximum(size + one, 0) for one in places]
        made = [*ends, *(size - end for end in ends)]
        made += [maximum(one - other, 0) for one in ends for other in ends if one is not other]
        made += [size + one for one in numbers] + [size - one for one in numbers]
        made += [maximum(one, -one) for one in numbers if size == 1]  # -1 leaves it, in `expand`
        found |= dict.fromkeys(one for one in made if isinstance(one, Expression))
    return list(found)


_PLACES = 4


def _end_of_slice(number: Size, size: Size) -> Size:
    """Where a slice of `size` ends: a negative number counts from the end, and both are cut."""
    last = maximum(size - 1, 0)
    below = maximum(minimum(number, -1) + size, 0)  # right for negative ones, else `last`
    return minimum(maximum(number, 0), size) + below - last * minimum(maximum(number + 1, 0), 1)


class Unread(General):
    """Likewise, of what is read from data: strides count only where they mean something, and there
    are numbers that are no sizes."""

    def value(self, answers: Sequence[Any]) -> Any:
        if all(type(one) is int for one in answers):
            return self._size(tuple(answers))
        return super().value(answers)

    def _strides(
        self, answers: Sequence[TensorType], row_major: tuple[Size, ...]
    ) -> tuple[Any, ...]:
        return tuple(self._stride(answers, place, one) for place, one in enumerate(row_major))

    def _stride(self, answers: Sequence[TensorType], place: int, row_major: Size) -> Any:
        seen = [
            (one.strides[place], values)
            for one, values in zip(answers, self._points, strict=True)
            if 0 not in one.sizes and one.sizes[place] != 1
        ]
        for one in (row_major, *dict.fromkeys(have for have, _ in seen), *self._by_values.values()):
            if all(evaluate(one, values) == have for have, values in seen):
                return one
        return NONE


def alike(one: Any, other: Any) -> bool:
    """Equal, but for strides that mean nothing: of dimensions of size 1, of empty tensors."""
    if isinstance(one, TensorType) and isinstance(other, TensorType):
        if one.sizes != other.sizes or one.dtype != other.dtype or one.device != other.device:
            return False
        return 0 in one.sizes or all(
            size == 1 or mine == its
            for size, mine, its in zip(one.sizes, one.strides, other.strides, strict=True)
        )
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(alike, one, other))
    return bool(one == other)
