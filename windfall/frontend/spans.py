"""What is known of a float that varies: between which numbers it lies, and which quotient it is.

Enters: sizes, constants, and operations on them. Leaves: a `Span`, or None: it may be anything.
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
from dataclasses import dataclass

from windfall.ir.symint import Expression, Size, bounds, floor_divide

Ratio = tuple[Size, int]
_LARGEST = float(1 << 63)  # integers that vary fit 64 bits
_WIDEST = 1 << 20  # factors and divisors, such that all products stay below 2**53
_FINITE = 1e300


@dataclass(frozen=True, slots=True)
class Span:
    """From `low` to `high`, both included and finite; `ratio` where it is one."""

    low: float
    high: float
    ratio: Ratio | None = None

    @property
    def above_zero(self) -> bool:
        """Whether it is positive."""
        return self.low > 0

    @property
    def exact(self) -> bool:
        """Whether it is its ratio without rounding."""
        return self.ratio is not None and _is_power_of_two(self.ratio[1])


def of_size(size: Size) -> Span:
    """A size as a float."""
    low, high = bounds(size)
    span = Span(
        -_LARGEST if low is None else float(low),
        _LARGEST if high is None else float(high),
    )
    return Span(span.low, span.high, (size, 1)) if _is_narrow(size) else span


def of_number(number: float) -> Span | None:
    """A constant."""
    if not math.isfinite(number):
        return None
    above, below = float(number).as_integer_ratio()
    small = abs(above) <= _WIDEST and below <= _WIDEST
    return Span(number, number, (above, below) if small else None)


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


def cannot_raise(operation: str, left: Span | None, right: Span | None) -> bool:
    """Whether Python's floats answer something, whatever these two are."""
    if operation in ("+", "-", "*"):
        return True
    if operation == "/":
        return right is not None and (right.low > 0 or right.high < 0)
    if operation != "**" or left is None or right is None:
        return False
    real = left.low > 0 or (left.low >= 0 and right.low > 0)
    return real and _corners(operation, left, right) is not None


def combined(operation: str, left: Span | None, right: Span | None) -> Span | None:
    """The span of `left operation right`."""
    if left is None or right is None or not cannot_raise(operation, left, right):
        return None
    corners = _corners(operation, left, right)
    if corners is None:
        return None
    return Span(min(corners), max(corners), _ratio(operation, left, right))


def _corners(operation: str, left: Span, right: Span) -> list[float] | None:
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


def _ratio(operation: str, left: Span, right: Span) -> Ratio | None:
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


def floor(span: Span | None) -> Size | None:
    """The greatest integer that is not above; None: it is not known."""
    if span is None or span.ratio is None:
        return None
    return floor_divide(*span.ratio)


def ceiling(span: Span | None) -> Size | None:
    """The least integer that is not below."""
    if span is None or span.ratio is None:
        return None
    return -floor_divide(-span.ratio[0], span.ratio[1])


def truncated(span: Span | None) -> Size | None:
    """Without what is behind the point."""
    if span is None:
        return None
    if span.low >= 0:
        return floor(span)
    return ceiling(span) if span.high <= 0 else None


def rounded(span: Span | None) -> Size | None:
    """The nearest integer, where there is no tie."""
    if span is None or span.ratio is None:
        return None
    above, below = span.ratio
    return floor_divide(2 * above + below, 2 * below) if below % 2 else None


def compared(left: Span | None, right: Span | None) -> tuple[Size, Size] | None:
    """Two sizes that compare as these two do; None: there are none such."""
    if left is None or right is None or left.ratio is None or right.ratio is None:
        return None
    if not left.exact and not right.exact:
        return None
    (a, b), (c, d) = left.ratio, right.ratio
    return a * d, c * b
