"""What is known of a float that varies: between which numbers it lies, and which quotient it is.

Enters: sizes, constants, and operations on them. Leaves: a `Interval`, or None: it may be anything.
Invariant: Python's float is never outside of its span; a `ratio` is the quotient of two integers
that the float is, rounded once, so that cutting it to an integer or comparing it with another such
is exact integer arithmetic.

    n = x.shape[1]            from 2 on, n/1
    n / 4                     from 0.5 on, n/4: math.ceil of it is -(-n // 4)
    1 - 0.9**n                between 0 and 1: its square root cannot raise
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import field
from fractions import Fraction

from windfall.dataclass import dataclass
from windfall.ir.relation import decide
from windfall.ir.symint import Expression, Size, bounds, floor_divide, hint_of, reads_of

Ratio = tuple[Size, int]
Table = tuple[Expression, Callable[[int], float]]
_LARGEST = float(1 << 63)  # integers that vary fit 64 bits
_WIDEST = 1 << 20  # factors and divisors, such that all products stay below 2**53
_FINITE = 1e300


@dataclass(frozen=True, slots=True)
class Interval:
    """From `low` to `high`, both included and finite (but for the extremes of two numbers, which
    may be bounded on one side only); `ratio` where it is one; `table` where it is a function of one
    size."""

    low: float
    high: float
    ratio: Ratio | None = None
    table: Table | None = field(default=None, compare=False)

    @property
    def exact(self) -> bool:
        """Whether it is its ratio without rounding."""
        return self.ratio is not None and _is_power_of_two(self.ratio[1])


def of_size(size: Size) -> Interval:
    """A size as a float."""
    low, high = bounds(size)
    span = Interval(
        -_LARGEST if low is None else float(low),
        _LARGEST if high is None else float(high),
    )
    if not isinstance(size, Expression) or not _is_narrow(size):
        return span
    return Interval(span.low, span.high, (size, 1), (size, float))


def of_number(number: float) -> Interval | None:
    """A constant."""
    if not math.isfinite(number):
        return None
    above, below = float(number).as_integer_ratio()
    small = abs(above) <= _WIDEST and below <= _WIDEST
    return Interval(number, number, (above, below) if small else None)


def _is_narrow(size: Size) -> bool:
    """Whether a size stays far below 2**53."""
    if isinstance(size, int):
        return abs(size) <= 1 << 40
    return abs(size.constant) <= 1 << 40 and all(
        len(monomial.atoms) == 1 and abs(by) <= _WIDEST for monomial, by in size.terms
    )


def _is_power_of_two(number: int) -> bool:
    return number & (number - 1) == 0


# ------------------------------------------------------------------------------------ operations


def cannot_raise(operation: str, left: Interval | None, right: Interval | None) -> bool:
    """Whether Python's floats answer something, whatever these two are."""
    if operation in ("+", "-", "*"):
        return True
    if operation == "/":
        return right is not None and (right.low > 0 or right.high < 0)
    if operation != "**" or left is None or right is None:
        return False
    real = left.low > 0 or (left.low >= 0 and right.low > 0)
    return real and _corners(operation, left, right) is not None


def combined(operation: str, left: Interval | None, right: Interval | None) -> Interval | None:
    """The span of `left operation right`."""
    if left is None or right is None or not cannot_raise(operation, left, right):
        return None
    corners = _corners(operation, left, right)
    if corners is None:
        return None
    table = _table(_COMPUTE[operation], left, right)
    return Interval(min(corners), max(corners), _ratio(operation, left, right), table)


def _table(
    compute: Callable[[float, float], float], left: Interval, right: Interval
) -> Table | None:
    """The function of a size that the result is, where one operand is one and the other fixed."""
    if left.table is not None and right.low == right.high:
        (size, before), fixed = left.table, right.low
        return size, lambda number: compute(before(number), fixed)
    if right.table is not None and left.low == left.high:
        (size, before), fixed = right.table, left.low
        return size, lambda number: compute(fixed, before(number))
    return None


def _corners(operation: str, left: Interval, right: Interval) -> list[float] | None:
    """The results at the ends of both: it is largest and least there. None: not finite."""
    compute = _COMPUTE[operation]
    try:
        found = [compute(a, b) for a in (left.low, left.high) for b in (right.low, right.high)]
    except ArithmeticError:
        return None
    good = all(isinstance(one, float) and abs(one) < _FINITE for one in found)
    return found if good else None


_COMPUTE: dict[str, Callable[[float, float], float]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: a / b,
    "**": lambda a, b: a**b,
}


def _ratio(operation: str, left: Interval, right: Interval) -> Ratio | None:
    """Which quotient the result is: where at most one step of it rounds."""
    if left.ratio is None or right.ratio is None or operation == "**":
        return None
    (a, b), (c, d) = left.ratio, right.ratio
    scales = isinstance(c, int) and c > 0 and _is_power_of_two(c) and _is_power_of_two(d)
    if not (left.exact and right.exact) and not (scales and operation in ("*", "/")):
        return None
    if operation == "*":
        return _checked(a * c, b * d)
    if operation == "/":
        return _checked(a * d, b * c) if isinstance(c, int) and c > 0 else None
    return _checked(a * d + c * b if operation == "+" else a * d - c * b, b * d)


def _checked(above: Size, below: int) -> Ratio | None:
    common = below
    if isinstance(above, Expression):
        common = math.gcd(below, above.constant, *(by for _, by in above.terms))
    else:
        common = math.gcd(below, above)
    above, below = floor_divide(above, common), below // common
    return (above, below) if _is_narrow(above) and below <= _WIDEST else None


# ------------------------------------------------------------------------------------ to integers


def floor(span: Interval | None) -> Size | None:
    """The greatest integer that is not above; None: it is not known."""
    if span is None or span.ratio is None:
        return _fitted(span, math.floor)
    return floor_divide(*span.ratio)


def ceiling(span: Interval | None) -> Size | None:
    """The least integer that is not below."""
    if span is None or span.ratio is None:
        return _fitted(span, math.ceil)
    return -floor_divide(-span.ratio[0], span.ratio[1])


def truncated(span: Interval | None) -> Size | None:
    """Without what is behind the point."""
    if span is None:
        return None
    if span.low >= 0:
        return floor(span)
    return ceiling(span) if span.high <= 0 else None


def rounded(span: Interval | None) -> Size | None:
    """The nearest integer."""
    if span is None or span.ratio is None or span.ratio[1] % 2 == 0:  # there may be ties
        return _fitted(span, round)
    above, below = span.ratio
    return floor_divide(2 * above + below, 2 * below)


def _fitted(span: Interval | None, cut: Callable[[float], int]) -> Size | None:
    """A quotient that is the integer cut from a function of a size, for every size up to some
    thousands, all of them tried: more is assumed not to come. So is `int(0.3 * n)`, where each
    product is rounded, `3 * n // 10`."""
    if span is None or span.table is None or reads_of(span.table[0]):
        return None
    size, function = span.table
    least, _ = bounds(size)
    if least is None or least < 0 or not least < hint_of(size) < _TRIED:
        return None
    wanted = [cut(function(number)) for number in range(least, _TRIED)]
    slope = Fraction(wanted[-1] - wanted[0], len(wanted) - 1).limit_denominator(_DENOMINATOR)
    by, below = slope.numerator, slope.denominator
    rests = [one * below - by * number for number, one in enumerate(wanted, least)]
    if max(rests) - min(rests) >= below or not decide("<", size, _TRIED):
        return None
    return floor_divide(by * size + max(rests), below)


_TRIED = 1 << 14
_DENOMINATOR = 100


def compared(left: Interval | None, right: Interval | None) -> tuple[Size, Size] | None:
    """Two sizes that compare as these two do; None: there are none such."""
    if left is None or right is None or left.ratio is None or right.ratio is None:
        return None
    if not left.exact and not right.exact:
        return None
    (a, b), (c, d) = left.ratio, right.ratio
    return a * d, c * b


def ordered(operation: str, left: Interval, right: Interval) -> bool | None:
    """How a comparison goes whatever the two are between their bounds; None: it depends."""
    if operation in (">", ">="):
        operation, left, right = operation.replace(">", "<"), right, left
    if operation == "<":
        return True if left.high < right.low else False if left.low >= right.high else None
    if operation == "<=":
        return True if left.high <= right.low else False if left.low > right.high else None
    apart = left.high < right.low or right.high < left.low
    return (operation == "!=") if apart else None
