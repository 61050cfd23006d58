"""Loop indices taken apart: digits of a linear index, blocks of a long one.

Enters: axes and index expressions. Leaves: axes, and an index as an expression of them. Invariant:
the axes count what the index counted, in the same order.

    >>> [str(part) for part in split_axis(axis("o", 24), "o", [axis("o", 24).symbol % 4])]
    ['o0<6', 'o1<4']
"""

from __future__ import annotations

from collections.abc import Sequence

from windfall.ir.loop import Axis, axis, is_size
from windfall.ir.symint import (
    Atom,
    Expression,
    Size,
    coefficient_of,
    hint_of,
    minimum,
    substitute,
    symbols_of,
)

BLOCK = 64  # additions in a row before a partial sum is set aside: keeps rounding errors small


def trailing(count: Axis, sizes: Sequence[Size]) -> Size:
    """How far the last digit of an index reaches, in which expressions use it."""
    return split_axis(count, "d", sizes)[-1].extent


def growth_within(offset: Size, count: Axis, block: int) -> int | None:
    """How an offset grows while the last digit of `count` does."""
    high = axis("h", _extent_of(count) // block)
    low = axis("l", block)
    moved = substitute(offset, {count.atom: high.symbol * block + low.symbol})
    return coefficient_of(moved, low.atom)


def _extent_of(each: Axis) -> int:
    assert isinstance(each.extent, int)
    return each.extent


def linear(parts: Sequence[Axis]) -> Size:
    """The linear index of which `parts` are the digits."""
    total: Size = 0
    for part in parts:
        total = total * part.extent + part.symbol
    return total


def blocked(whole: Axis, size: int) -> tuple[tuple[Axis, ...], Size]:
    """`whole` as blocks of `size`, and blocks of blocks, so that no sum is long; and `whole` as an
    expression of these."""
    extent = whole.extent
    if not isinstance(extent, int):
        return _blocked_once(whole, size)
    if extent <= 2 * size:
        return (whole,), whole.symbol
    unit = size // BLOCK
    even = (each for each in range(size, size // 2, -1) if extent % each == 0 and each % unit == 0)
    size = next(even, size)
    count = -(-extent // size)
    blocks, block = blocked(axis(f"b{whole.symbol}", count), BLOCK)
    within = axis(f"{whole.symbol}w", size)
    start = size * block
    return (*blocks, Axis(within.symbol, minimum(size, extent - start))), start + within.symbol


def _blocked_once(whole: Axis, size: int) -> tuple[tuple[Axis, ...], Size]:
    """The same for an extent that varies."""
    count = axis(f"b{whole.symbol}", (whole.extent + size - 1) // size)
    within = axis(f"{whole.symbol}w", size)
    start = size * count.symbol
    end = minimum(size, whole.extent - start)
    return (count, Axis(within.symbol, end)), start + within.symbol


def split_axis(linear: Axis, letter: str, sizes: Sequence[Size]) -> tuple[Axis, ...]:
    """`linear` as the fewest digits in which the expressions need no division."""
    points: set[Size] = set()
    for size in sizes:
        if linear.atom in symbols_of(size):
            _collect(size, linear.atom, points)
    extent = linear.extent
    steps: list[Size] = [1]
    for point in sorted(points, key=lambda point: (hint_of(point), str(point))):
        follows = point not in (steps[-1], extent) and point % steps[-1] == 0
        if follows and extent % point == 0 and hint_of(point) < hint_of(extent):
            steps.append(point)
    if len(steps) == 1:
        return (linear,)
    ends: list[Size] = [*steps[1:], extent]
    extents = [end // step for step, end in zip(steps, ends, strict=True)]
    return tuple(axis(f"{letter}{place}", extent) for place, extent in enumerate(reversed(extents)))


def _collect(size: Size, atom: Atom, points: set[Size]) -> None:
    """Where the digits of `atom` end, as divisions and remainders in `size` tell."""
    if not isinstance(size, Expression):
        return
    for monomial, _ in size.terms:
        for part in monomial.atoms:
            if not part.operation or atom not in part.symbols:
                continue
            if part.operation in ("//", "%"):
                value, divisor = part.arguments
                if all(map(is_size, symbols_of(divisor))):
                    step, inner = _quotient(value, atom)
                    if inner:
                        points.update({step, step * divisor})
            for argument in part.arguments:
                _collect(argument, atom, points)


def _quotient(value: Size, atom: Atom) -> tuple[Size, bool]:
    """`(d, True)` where `value` is `atom // d`."""
    part = value.atom if isinstance(value, Expression) else None
    if part is atom:
        return 1, True
    if part is not None and part.operation == "//":
        inner, divisor = part.arguments
        fixed = all(map(is_size, symbols_of(divisor)))
        if isinstance(inner, Expression) and inner.atom is atom and fixed:
            return divisor, True
    return 1, False
